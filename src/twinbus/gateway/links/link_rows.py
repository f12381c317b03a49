"""What the operations of one client on one entity have in common, and rows made with it: keys of sums, exact rows."""

from collections.abc import Sequence

from twinbus.clock import Millis
from twinbus.meter.book import Key
from twinbus.meter.operation import Cause, EntityType, Operation, path_of, units_of
from twinbus.model.content import PREFIX
from twinbus.model.message import Message, message_id_of
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.changes import StoredMessage

OVERHEAD = PREFIX.size
"""Bytes of a stored message that are the store's own."""


class LinkRows:
    __slots__ = ("_entity", "_entity_type", "_keys", "_path", "_who")

    def __init__(self, entity: str, entity_type: EntityType, who: str) -> None:
        self._entity = entity
        self._entity_type = entity_type
        self._who = who
        self._path = path_of(entity, who)
        self._keys: dict[tuple[Cause, int], Key] = {}

    def key(self, cause: Cause, fragment: int) -> Key:
        key = self._keys.get((cause, fragment))
        if key is None:
            key = Key(cause, self._entity, fragment, self._path, self._who, self._entity_type)
            self._keys[cause, fragment] = key
        return key

    def of_sent(
        self, at: Millis, cause: Cause, fragment: int, messages: Sequence[Message], numbers: Sequence[int] | None
    ) -> list[Operation]:
        """`numbers` as `LinkMeter.sent` has them. Pings are left out."""
        known: Sequence[int] = [0] * len(messages) if numbers is None else numbers
        return [
            self._row(at, cause, fragment, message.content, message.message_id, number or None)
            for message, number in zip(messages, known, strict=True)
            if not message.is_ping
        ]

    def of_stored(self, at: Millis, cause: Cause, messages: Sequence[StoredMessage]) -> list[Operation]:
        return [self._stored_row(at, cause, message.content, message.sequence_number) for message in messages]

    def _stored_row(self, at: Millis, cause: Cause, content: bytes, number: int) -> Operation:
        return self._row(at, cause, number >> SEQUENCE_BITS, content, message_id_of(content), number)

    def _row(
        self, at: Millis, cause: Cause, fragment: int, content: bytes, message_id: str, number: int | None
    ) -> Operation:
        size = len(content) - OVERHEAD
        path, who, kind = self._path, self._who, self._entity_type
        return Operation(
            at, cause, self._entity, fragment, 1, size, units_of(size), path, who, message_id, number, kind
        )
