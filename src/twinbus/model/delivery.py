"""A stored message on its way out: content in, payload of a transfer out.

What the sender sent is not changed, but for its time to live where the entity shortened that. It is preceded by a header with the delivery count, the delivery annotations with the
lock token, and one map of message annotations with the broker's own entries first and the sender's after them. In the
content, the bare message follows these bytes:

header | delivery annotations: x-opt-lock-token, sender's | message annotations: the broker's, sender's | bare message

In a burst most messages begin alike, as their senders repeat themselves. What comes before the sender's entries then differs
in lock, times and number only, and is packed in one call (`encode_locked`, `split_peeked`).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, Protocol

from twinbus.amqp.codec.encode import encode_symbol, encode_value
from twinbus.amqp.codec.transfer_writer import FrontedPayload, Payload
from twinbus.amqp.codec.types import Long, Timestamp, UInt
from twinbus.clock import NEVER, Millis
from twinbus.model import wire_names
from twinbus.model.claim_owner import owner_name
from twinbus.model.content import PREFIX, annotation, with_annotations
from twinbus.model.effective_lifetime import own_time_to_live, shown_header, shown_properties

_unpack_prefix = PREFIX.unpack_from
_PREFIX_SIZE = PREFIX.size

_LOCK_TOKEN = encode_symbol(wire_names.LOCK_TOKEN) + b"\x98"
_ENQUEUED_TIME = encode_symbol(wire_names.ENQUEUED_TIME) + b"\x83"
_SEQUENCE_NUMBER = encode_symbol(wire_names.SEQUENCE_NUMBER) + b"\x81"
_LOCKED_UNTIL = encode_symbol(wire_names.LOCKED_UNTIL) + b"\x83"
_MESSAGE_STATE = encode_symbol(wire_names.MESSAGE_STATE)
_ENQUEUE_SEQUENCE_NUMBER = encode_symbol(wire_names.ENQUEUED_SEQUENCE_NUMBER)
_CLAIMED_BY = encode_symbol(wire_names.CLAIMED_BY)
DEFERRED = wire_names.MessageState.DEFERRED

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

_UNKNOWN = b"\xff"  # no content begins like this
VIEW_SIZE_MIN = 8 * 1024
"""From this size on, a view costs less than a slice."""

ALIKE_MAX = 64
"""Beginnings that are remembered of the contents of one page: ids and keys of a few lengths each make that many."""
_DATA_SHORT, _DATA_LONG = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"

_COUNT_SIZE = 4  # the size of a map includes its count
_UNLOCKED_SIZE = _COUNT_SIZE + len(_ENQUEUED_TIME) + len(_SEQUENCE_NUMBER) + 16
_LOCKED_SIZE = _UNLOCKED_SIZE + len(_LOCKED_UNTIL) + 8


class Delivered(Protocol):
    """A row on its way to a receiver."""

    sequence_number: int
    content: bytes
    enqueued_at: Millis
    expires_at: Millis
    delivery_count: int
    enqueued_sequence_number: int

    @property
    def state(self) -> int: ...


class Peeked(Delivered, Protocol):
    """A row that is shown to whoever looks, and stays."""

    due_at: Millis  # of a deferred row: the number of who claimed it


def encode_locked(deliveries: Sequence[tuple[Delivered, bytes, Millis]]) -> list[tuple[bytes, Payload]]:
    """Lock tokens and payloads of peek-lock deliveries, of rows with lock token and end of the lock."""
    encoded: list[tuple[bytes, Payload]] = []
    known, known_size, has_next = _UNKNOWN, 0, len(deliveries) > 1
    pack: Callable[..., bytes] = _pack_locked
    before_token = before_time = b""
    for row, token, locked_until in deliveries:
        content = row.content
        if (
            content[:known_size] == known
            and row.expires_at == NEVER
            and not (row.delivery_count or row.state or row.enqueued_sequence_number)
        ):
            front = pack(
                before_token,
                *_guid(token),
                before_time,
                row.enqueued_at,
                _SEQUENCE_NUMBER,
                row.sequence_number,
                _LOCKED_UNTIL,
                locked_until,
            )
            if len(content) < VIEW_SIZE_MIN:
                encoded.append((token, front + content[known_size:]))
            else:
                encoded.append((token, FrontedPayload(front, memoryview(content)[known_size:])))
            continue
        payload = encode_delivery(
            content,
            sequence_number=row.sequence_number,
            enqueued_at=row.enqueued_at,
            delivery_count=row.delivery_count,
            lock_token=token,
            locked_until=locked_until,
            state=row.state,
            enqueued_sequence_number=row.enqueued_sequence_number,
            expires_at=row.expires_at,
        )
        encoded.append((token, payload))
        _, header_size, _, count, delivery_size, size, _, _ = _unpack_prefix(content)
        if has_next and not delivery_size:
            known_size = _PREFIX_SIZE + header_size
            known = content[:known_size]
            before_token = known[_PREFIX_SIZE:] + _ONLY_LOCK_TOKEN
            before_time = _MESSAGE_ANNOTATIONS + _size_count(_LOCKED_SIZE + size, 6 + count) + _ENQUEUED_TIME
            pack = _pack_alike(len(before_token), len(before_time))
    return encoded


@lru_cache(maxsize=64)
def _pack_alike(token_at: int, time_at: int) -> Callable[..., bytes]:
    return Struct(f">{token_at}sIHH8s{time_at}sq{len(_SEQUENCE_NUMBER)}sq{len(_LOCKED_UNTIL)}sq").pack


def encode_peeked(rows: Sequence[Peeked]) -> list[bytes]:
    """Payloads of rows that somebody looks at, each with its state."""
    fronts, bodies, _ = split_peeked(rows)
    return [b"".join(parts) for parts in zip(fronts, bodies, strict=True)]


class _Alike(NamedTuple):
    """What peeked rows have in common whose contents begin alike."""

    pack: Callable[..., bytes]
    before_time: bytes
    shown_state: bytes  # with the claim
    state: int
    due_at: Millis
    delivery_count: int
    body_at: int  # in the content


class SplitPayloads(NamedTuple):
    fronts: list[bytes]
    bodies: list[bytes | memoryview]
    sizes: list[int]  # of the contents, as far as they are in here


def split_peeked(rows: Sequence[Peeked], *, with_bodies: bool = True) -> SplitPayloads:
    """As `encode_peeked`, each payload in two parts: up to where the data of its body begin, and those.

    A body that is anything but one data section belongs to the first part. Bodies that nobody wants are empty, and so is what follows
    them.
    """
    fronts: list[bytes] = []
    bodies: list[bytes | memoryview] = []
    sizes: list[int] = []
    known: dict[bytes, _Alike] = {}
    known_size = 0
    form, form_size, data_at = b"", -1, 0  # of the last body: what comes before its data, and the size of the content
    for row in rows:
        content = row.content
        alike = known.get(content[:known_size])
        if (
            alike is not None
            and row.expires_at == NEVER
            and row.state == alike.state
            and row.delivery_count == alike.delivery_count
            and row.due_at == alike.due_at
            and not row.enqueued_sequence_number
            and not (row.due_at and content.find(_CLAIMED_BY, 0, alike.body_at) >= 0)
        ):
            pack, before_time, shown_state, _, _, _, body_at = alike
            if not with_bodies:
                data_at = body_at
            elif len(content) != form_size or content[body_at:data_at] != form:
                data_at = _data_at(content, body_at)
                form, form_size = content[body_at:data_at], len(content)
            front = pack(before_time, row.enqueued_at, _SEQUENCE_NUMBER, row.sequence_number, shown_state)
            fronts.append(front + content[known_size:data_at])
        else:
            payload = encode_peeked_row(row)
            _, header_size, _, count, delivery_size, size, properties, application = _unpack_prefix(content)
            known_size = _PREFIX_SIZE + header_size
            body_at = known_size + delivery_size + size + properties + application
            data_at = _data_at(content, body_at) if with_bodies else body_at
            form, form_size = content[body_at:data_at], len(content)
            fronts.append(payload[: len(payload) - len(content) + data_at])
            if not delivery_size and (not row.due_at or row.state == DEFERRED):
                if len(known) == ALIKE_MAX:
                    known.clear()
                known[content[:known_size]] = _alike(row, content[_PREFIX_SIZE:known_size], count, size, body_at)
        if with_bodies:
            bodies.append(content[data_at:] if len(content) < VIEW_SIZE_MIN else memoryview(content)[data_at:])
            sizes.append(len(content))
        else:
            sizes.append(data_at)
    return SplitPayloads(fronts, bodies if with_bodies else [b""] * len(fronts), sizes)


def _alike(row: Peeked, header: bytes, count: int, size: int, body_at: int) -> _Alike:
    shown_state = _MESSAGE_STATE + encode_value(int(row.state))
    if row.due_at:
        shown_state += _CLAIMED_BY + encode_value(owner_name(row.due_at))
        count += 2
    annotations = _MESSAGE_ANNOTATIONS + _size_count(_UNLOCKED_SIZE + len(shown_state) + size, 6 + count)
    if row.delivery_count:
        header = _with_delivery_count(header, row.delivery_count)
    before_time = header + _NO_DELIVERY_ANNOTATIONS + annotations + _ENQUEUED_TIME
    pack = _pack_peeked_alike(len(before_time), len(shown_state))
    return _Alike(pack, before_time, shown_state, row.state, row.due_at, row.delivery_count, body_at)


def _data_at(content: bytes, body_at: int) -> int:
    """Where the data of a body begin that is one data section; else the end of the content."""
    form = content[body_at : body_at + 4]
    if form == _DATA_LONG:
        data_at = body_at + 8
        if int.from_bytes(content[body_at + 4 : data_at]) == len(content) - data_at:
            return data_at
    elif form == _DATA_SHORT and content[body_at + 4] == len(content) - body_at - 5:
        return body_at + 5
    return len(content)


@lru_cache(maxsize=64)
def _pack_peeked_alike(time_at: int, state_size: int) -> Callable[..., bytes]:
    return Struct(f">{time_at}sq{len(_SEQUENCE_NUMBER)}sq{state_size}s").pack


def encode_peeked_row(row: Peeked, locked_until: Millis | None = None) -> bytes:
    content, due_at = row.content, row.due_at
    claimed_by = None
    if due_at and row.state == DEFERRED:
        claimed_by, due_at = owner_name(due_at), 0
        if _CLAIMED_BY in content:
            content, claimed_by = with_annotations(content, {wire_names.CLAIMED_BY: claimed_by}), None
    elif due_at and annotation(content, wire_names.SCHEDULED_ENQUEUE_TIME) != due_at:
        # Abandoned with a delay: no sender wrote down when it comes again.
        content = with_annotations(content, {wire_names.SCHEDULED_ENQUEUE_TIME: Timestamp(due_at)})
    return encode_delivery(
        content,
        sequence_number=row.sequence_number,
        enqueued_at=row.enqueued_at,
        delivery_count=row.delivery_count,
        locked_until=locked_until,
        state=row.state,
        show_state=True,
        enqueued_sequence_number=row.enqueued_sequence_number,
        expires_at=row.expires_at,
        claimed_by=claimed_by,
        # The time to live of a scheduled message counts from when it is due, unless it was delivered before.
        lives_since=0 if row.delivery_count else due_at,
    )


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
    claimed_by: str | None = None,
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
        if claimed_by is not None:
            elements += [_CLAIMED_BY, encode_value(claimed_by)]
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
