"""Which messages travel in one transfer: encoded messages in, batches out, none larger than the peer accepts.

A batch is a message of its own (`wire_names.BATCH_FORMAT`) whose data sections each hold a whole message. The service accepts or
refuses it as a whole, and a partitioned entity accepts only messages with one key together. So messages are grouped by key, which
keeps the order within each key but not between keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct, error

from twinbus.amqp.codec.encode import encode_descriptor, encode_value
from twinbus.amqp.codec.section_bounds import ordered_sections
from twinbus.amqp.codec.sections import DATA, MESSAGE_ANNOTATIONS, PROPERTIES, MessageProperties, trimmed
from twinbus.amqp.codec.types import Symbol
from twinbus.errors import ArgumentError, MessagingError
from twinbus.model import wire_names
from twinbus.model.annotations import read_annotations
from twinbus.model.content import compound_start
from twinbus.model.identity import read_identity
from twinbus.model.message_limits import BATCH_COUNT_MAX, MESSAGE_SIZE_MAX
from twinbus.model.partition_key import folded

BATCH_SIZE_DEFAULT = MESSAGE_SIZE_MAX
"""If the peer announces no limit."""
PARTITION_KEY = Symbol(wire_names.PARTITION_KEY)

_SECTION = Struct(">3sBI")
_DATA_DESCRIPTOR = encode_descriptor(DATA)
_BINARY32 = 0xB0


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages by their places in what was handed in; `payload` is the transfer that carries them."""

    places: Sequence[int]
    payload: bytes
    message_format: int


@dataclass(frozen=True, slots=True)
class Plan:
    batches: list[Batch]
    refused: list[tuple[int, MessagingError]]
    """Messages that cannot be read and would make their whole batch fail."""


class _Group:
    """Messages of one key that wait to fill a batch."""

    def __init__(self, identity: "Identity", key: str | None) -> None:
        self.key = key
        self.envelope = _envelope(identity, key)
        self.places: list[int] = []
        self.size = len(self.envelope)


Identity = tuple[str | None, str | None, str | None]
"""Message id, session id and partition key."""


def plan_batches(payloads: Sequence[bytes], size_max: int, *, keeps_keys_apart: bool) -> Plan:
    plan = Plan([], [])
    groups: dict[str | None, _Group] = {}
    for place, payload in enumerate(payloads):
        try:
            identity = read_identity_of(payload)
        except MessagingError as refusal:
            plan.refused.append((place, refusal))
            continue
        key = (identity[1] or identity[2]) if keeps_keys_apart else None
        size = _SECTION.size + len(payload)
        # Keys that differ in case alone are of one message session, whose order is kept, and not written in one envelope.
        place_key = None if key is None else folded(key)
        group = groups.get(place_key)
        if group is not None and (
            group.key != key or group.size + size > size_max or len(group.places) == BATCH_COUNT_MAX
        ):
            plan.batches.append(_close(group, payloads))
            group = None
        if group is None:
            group = groups[place_key] = _Group(identity, key)
        group.places.append(place)
        group.size += size
    plan.batches.extend(_close(group, payloads) for group in groups.values())
    return plan


def read_identity_of(payload: bytes) -> Identity:
    """The ids that route an encoded message. Raises ArgumentError or DecodeError if it is not a message."""
    try:
        payload, bounds = ordered_sections(payload)
        _, _, annotations_at, properties_at, application_at, _ = bounds
        partition_key = message_id = session_id = None
        if properties_at > annotations_at:
            count, pos = compound_start(payload, annotations_at + 3)
            partition_key = read_annotations(payload, pos, properties_at, count)[2]
        if application_at > properties_at:
            message_id, session_id = read_identity(payload, properties_at + 3, application_at)
        return message_id, session_id, partition_key
    except (IndexError, error, UnicodeDecodeError):
        raise ArgumentError(
            "This is not an encoded message. Create one with twinbus.client.message.encode_message."
        ) from None


def _close(group: _Group, payloads: Sequence[bytes]) -> Batch:
    # A batch of one would only be larger than its message.
    if len(group.places) == 1:
        return Batch(group.places, payloads[group.places[0]], 0)
    parts = [group.envelope]
    for place in group.places:
        payload = payloads[place]
        parts += (_SECTION.pack(_DATA_DESCRIPTOR, _BINARY32, len(payload)), payload)
    return Batch(group.places, b"".join(parts), wire_names.BATCH_FORMAT)


def _envelope(identity: Identity, key: str | None) -> bytes:
    """What the service reads without opening the batch: the ids of the first message, and the key that all share."""
    message_id, session_id, _ = identity
    annotations = b""
    if key is not None:
        annotations = encode_descriptor(MESSAGE_ANNOTATIONS) + encode_value({PARTITION_KEY: key})
    properties = MessageProperties(message_id=message_id, group_id=session_id)
    return annotations + encode_descriptor(PROPERTIES) + encode_value(trimmed(properties))
