"""Which fragment of a partitioned entity a send needs: the messages in, a fragment or none out.

The hash that places a key is the service's own, so a session id or partition key is enough to know the fragment here and in
Azure, once it is known how many fragments there are: sixteen in a namespace of the standard tier. What a namespace of another tier
has cannot be asked, and a key without the right to manage cannot ask at all; then an entity is one whole.
"""

import uuid
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from azure.core.exceptions import ResourceNotFoundError

from twinbus.errors import NotAllowed
from twinbus.model import wire_names
from twinbus.model.descriptions import FRAGMENT_COUNT
from twinbus.model.partition_key import key_hash, pinning_key
from twinbus.pairing.rewriting.transfer import AnyMessage, annotated

STANDARD = "Standard"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """Of one entity; an ordinary one has one fragment."""

    fragment_count: int
    detects_duplicates: bool = False
    has_sessions: bool = False

    def fragment_of(self, messages: Iterable[AnyMessage]) -> int | None:
        """The one that all of them need; None if there is none, as for messages without a key."""
        if self.fragment_count == 1:
            return None
        found = {self._fragment_of(message) for message in messages}
        return found.pop() if len(found) == 1 else None

    def fragment_of_key(self, key: str) -> int | None:
        return key_hash(key) % self.fragment_count if self.fragment_count > 1 else None

    def key_in(self, fragment: int | None) -> str:
        """A new key that belongs to this fragment, or to any."""
        while True:
            key = str(uuid.uuid4())
            if fragment is None or self.fragment_of_key(key) == fragment:
                return key

    def _fragment_of(self, message: AnyMessage) -> int | None:
        session_id, partition_key, message_id = keys_of(message)
        try:
            key = pinning_key(session_id, partition_key, message_id, self.detects_duplicates, self.has_sessions)
        except NotAllowed:
            return None  # the primary refuses it
        return None if not key and not self.has_sessions else self.fragment_of_key(key or "")


def keys_of(message: AnyMessage) -> tuple[str | None, str | None, str]:
    """Session id, partition key, message id."""
    raw = annotated(message)
    properties, annotations = raw.properties, raw.annotations or {}
    partition_key = annotations.get(wire_names.PARTITION_KEY, annotations.get(wire_names.PARTITION_KEY.encode()))
    if properties is None:
        return None, _text(partition_key), ""
    return _text(properties.group_id), _text(partition_key), _text(properties.message_id) or ""


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None if value is None else str(value)


# Asking the primary

Question: TypeAlias = Callable[[Any], Any]
"""Given an administration client of the SDK: the call to make, or to await."""


def ask(path: str) -> Generator[Question, Any, Partitioning | None]:
    """None where the namespace does not say how many fragments an entity of it has."""
    try:
        found = yield lambda administration: administration.get_queue(path)
        has_sessions = bool(found.requires_session)
    except ResourceNotFoundError:
        found = yield lambda administration: administration.get_topic(path)
        has_sessions = False
    if not found.enable_partitioning:
        return Partitioning(1)
    namespace = yield lambda administration: administration.get_namespace_properties()
    if namespace.messaging_sku != STANDARD:
        return None
    return Partitioning(FRAGMENT_COUNT, bool(found.requires_duplicate_detection), has_sessions)
