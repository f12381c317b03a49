"""A stored message on its way out: content in, payload of a transfer out.

What the sender sent is not changed, but for its time to live where the entity shortened that. It is preceded by a header with the delivery count, the delivery annotations with the
lock token, and one map of message annotations with the broker's own entries first and the sender's after them. In the
content, the bare message follows these bytes:

header | delivery annotations: x-opt-lock-token, sender's | message annotations: the broker's, sender's | bare message
"""

from struct import Struct

from twinbus.amqp.codec.encode import encode_symbol, encode_value
from twinbus.amqp.codec.types import Long, UInt
from twinbus.clock import NEVER, Millis
from twinbus.model import wire_names
from twinbus.model.content import PREFIX
from twinbus.model.effective_lifetime import own_time_to_live, shown_header, shown_properties

_unpack_prefix = PREFIX.unpack_from
_PREFIX_SIZE = PREFIX.size

_LOCK_TOKEN = encode_symbol(wire_names.LOCK_TOKEN) + b"\x98"
_ENQUEUED_TIME = encode_symbol(wire_names.ENQUEUED_TIME) + b"\x83"
_SEQUENCE_NUMBER = encode_symbol(wire_names.SEQUENCE_NUMBER) + b"\x81"
_LOCKED_UNTIL = encode_symbol(wire_names.LOCKED_UNTIL) + b"\x83"
_MESSAGE_STATE = encode_symbol(wire_names.MESSAGE_STATE)
_ENQUEUE_SEQUENCE_NUMBER = encode_symbol(wire_names.ENQUEUED_SEQUENCE_NUMBER)

_DELIVERY_ANNOTATIONS = b"\x00\x53\x71"
_NO_DELIVERY_ANNOTATIONS = _DELIVERY_ANNOTATIONS + b"\xc1\x01\x00"
_ONLY_LOCK_TOKEN = _DELIVERY_ANNOTATIONS + b"\xc1" + bytes((len(_LOCK_TOKEN) + 17, 2)) + _LOCK_TOKEN
# Always in the form with 4-byte size and count, so that one template fits all.
_MESSAGE_ANNOTATIONS = b"\x00\x53\x72\xd1"

_guid = Struct("<IHH8s").unpack
_uuid = Struct(">IHH8s").pack
_size_count = Struct(">II").pack
_int64 = Struct(">q").pack

# Everything between the header and the sender's entries of an ordinary delivery, packed in one call.
_LOCKED = f"{len(_ONLY_LOCK_TOKEN)}sIHH8s"
_MAP_HEAD = f"{len(_MESSAGE_ANNOTATIONS)}sII"
_OWN = f"{len(_ENQUEUED_TIME)}sq{len(_SEQUENCE_NUMBER)}sq"
_pack_locked = Struct(f">{_LOCKED}{_MAP_HEAD}{_OWN}{len(_LOCKED_UNTIL)}sq").pack
_pack_unlocked = Struct(f">{len(_NO_DELIVERY_ANNOTATIONS)}s{_MAP_HEAD}{_OWN}").pack

_COUNT_SIZE = 4  # the size of a map includes its count
_UNLOCKED_SIZE = _COUNT_SIZE + len(_ENQUEUED_TIME) + len(_SEQUENCE_NUMBER) + 16
_LOCKED_SIZE = _UNLOCKED_SIZE + len(_LOCKED_UNTIL) + 8


def encode_delivery(
    content: bytes,
    *,
    sequence_number: int,
    enqueued_at: Millis,
    delivery_count: int,
    lock_token: bytes | None = None,
    locked_until: Millis | None = None,
    state: int = 0,
    show_state: bool = False,
    enqueued_sequence_number: int = 0,
    expires_at: Millis = NEVER,
    lives_since: Millis = 0,
) -> bytes:
    """The payload for a receiver.

    `lock_token` (16 bytes in GUID order) and `locked_until` make it a peek-lock delivery; without them, the
    delivery annotations are written without a lock token. A state other than active is always written.
    A message that expires shows the time to live that it has, counted from `lives_since`, or else from `enqueued_at`.
    """
    _, header_size, delivery_entry_count, count, delivery_size, size, properties_size, _ = _unpack_prefix(content)
    delivery_at = _PREFIX_SIZE + header_size
    entries_at = delivery_at + delivery_size
    header = content[_PREFIX_SIZE:delivery_at]
    rest: bytes | memoryview = memoryview(content)[entries_at:]
    if expires_at != NEVER:
        since, properties_at = lives_since or enqueued_at, entries_at + size
        asked_for = own_time_to_live(header, content, properties_at)
        if asked_for is None or asked_for > expires_at - since:
            header = shown_header(header, expires_at - since)
            properties_end = properties_at + properties_size
            properties = shown_properties(content[properties_at:properties_end], since, expires_at)
            rest = b"".join((content[entries_at:properties_at], properties, memoryview(content)[properties_end:]))
    if delivery_count:
        header = _with_delivery_count(header, delivery_count)
    extra = b""
    if state or show_state or enqueued_sequence_number:
        elements = _extra_elements(state, show_state, enqueued_sequence_number)
        extra = b"".join(elements)
        size += len(extra)
        count += len(elements)
    if delivery_entry_count or (lock_token is None) is not (locked_until is None):
        own = _own_entries(enqueued_at, sequence_number, locked_until)
        front = (
            _delivery_annotations(lock_token, content[delivery_at:entries_at], delivery_entry_count)
            + _MESSAGE_ANNOTATIONS
            + _size_count(_COUNT_SIZE + len(own) + size, count + (4 if locked_until is None else 6))
            + own
        )
    elif lock_token is None:
        front = _pack_unlocked(
            _NO_DELIVERY_ANNOTATIONS,
            _MESSAGE_ANNOTATIONS,
            _UNLOCKED_SIZE + size,
            4 + count,
            _ENQUEUED_TIME,
            enqueued_at,
            _SEQUENCE_NUMBER,
            sequence_number,
        )
    else:
        front = _pack_locked(
            _ONLY_LOCK_TOKEN,
            *_guid(lock_token),
            _MESSAGE_ANNOTATIONS,
            _LOCKED_SIZE + size,
            6 + count,
            _ENQUEUED_TIME,
            enqueued_at,
            _SEQUENCE_NUMBER,
            sequence_number,
            _LOCKED_UNTIL,
            locked_until,
        )
    return b"".join((header, front, extra, rest))


def _with_delivery_count(header: bytes, delivery_count: int) -> bytes:
    """The header section with another count, which is its last field and takes one byte as long as it is 0."""
    count = encode_value(UInt(delivery_count))
    return header[:4] + bytes((header[4] + len(count) - 1,)) + header[5:-1] + count


def _delivery_annotations(lock_token: bytes | None, entries: bytes, count: int) -> bytes:
    own = b"" if lock_token is None else _LOCK_TOKEN + _uuid(*_guid(lock_token))
    size = _COUNT_SIZE + len(own) + len(entries)
    return _DELIVERY_ANNOTATIONS + b"\xd1" + _size_count(size, count + (2 if own else 0)) + own + entries


def _own_entries(enqueued_at: Millis, sequence_number: int, locked_until: Millis | None) -> bytes:
    entries = _ENQUEUED_TIME + _int64(enqueued_at) + _SEQUENCE_NUMBER + _int64(sequence_number)
    return entries if locked_until is None else entries + _LOCKED_UNTIL + _int64(locked_until)


def _extra_elements(state: int, show_state: bool, enqueued_sequence_number: int) -> list[bytes]:
    """Keys and values, in turn, of the annotations that an ordinary delivery does not have."""
    elements: list[bytes] = []
    if state or show_state:
        elements += (_MESSAGE_STATE, encode_value(int(state)))
    if enqueued_sequence_number:
        elements += (_ENQUEUE_SEQUENCE_NUMBER, encode_value(Long(enqueued_sequence_number)))
    return elements
