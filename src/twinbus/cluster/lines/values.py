"""Values that cross a line now and then: commands, replies, outcomes and the like, each with its type. No pickles.

    tag | what it needs        one byte each: None, true, false, integer, float, text, bytes, list, tuple, dict, set,
                               record (its number, then its fields), member of an enumeration, AMQP value

A record is one of the classes of `RECORDS`, whose order is part of the protocol: new ones are added at the end, and so are new
fields, which then need a default. Values that applications give, such as the properties of an abandoned message, may have any
type of AMQP and travel in its encoding. Messages by the hundred do not come this way: see `columns`.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import Enum
from struct import Struct, error
from typing import Any, Final

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.errors import AmqpError
from twinbus.broker import commands, outcomes, replies
from twinbus.broker.consumer import ReceiveMode, SessionRequest, TakenMessage
from twinbus.broker.target import TargetName
from twinbus.cluster.lines.frames import LineBroken
from twinbus.model import descriptions
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import BacklogShares, NumberedTime, PackedRows, Share

DEPTH_MAX = 40

RECORDS: Final[tuple[type[Any], ...]] = (
    commands.Peek,
    commands.PeekMerged,
    commands.PeekRange,
    commands.RangePage,
    commands.ReceiveDeferred,
    commands.CancelScheduled,
    commands.Purge,
    commands.Claim,
    commands.DeleteDeferred,
    commands.Undefer,
    commands.UndeferAll,
    commands.Repair,
    commands.Refusal,
    commands.RepairPage,
    commands.RepairPreview,
    commands.PreviewPage,
    commands.PreviewRepair,
    commands.GetSessionState,
    commands.SetSessionState,
    commands.ListSessions,
    commands.SessionCount,
    commands.SessionCounts,
    commands.CountSessions,
    commands.FragmentHead,
    commands.ListFragments,
    commands.FindTimes,
    commands.CountShares,
    outcomes.Complete,
    outcomes.Abandon,
    outcomes.Defer,
    outcomes.DeadLetter,
    outcomes.Release,
    replies.QueueCounts,
    replies.Holdings,
    descriptions.SqlFilter,
    descriptions.SqlAction,
    StoredMessage,
    TakenMessage,
    SessionRequest,
    TargetName,
    NumberedTime,
    BacklogShares,
    Share,
    commands.PeekPacked,
    PackedRows,
)
ENUMERATIONS: Final[tuple[type[Enum], ...]] = (MessageState, ReceiveMode)

_RECORD_NUMBERS = {kind: number for number, kind in enumerate(RECORDS)}
_ENUMERATION_NUMBERS = {kind: number for number, kind in enumerate(ENUMERATIONS)}
_NAMES: Mapping[type[Any], tuple[str, ...]] = {
    kind: getattr(kind, "_fields", None) or tuple(each.name for each in fields(kind)) for kind in RECORDS
}
_SIZE, _INTEGER, _FLOAT = Struct("<I"), Struct("<q"), Struct("<d")


def encode(value: object) -> bytes:
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def decode(data: bytes) -> Any:
    """Raises LineBroken for anything but the bytes of one value."""
    try:
        value, end = _read(data, 0, 0)
    except LineBroken:
        raise
    except (error, IndexError, ValueError, TypeError, KeyError, AmqpError, RecursionError) as fault:
        raise LineBroken(f"A value came that no node sends: {fault}") from None
    if end != len(data):
        raise LineBroken("There is more behind a value than belongs to it.")
    return value


def _write(value: Any, parts: list[bytes]) -> None:
    kind = type(value)
    if value is None:
        parts.append(b"N")
    elif kind is bool:
        parts.append(b"T" if value else b"F")
    elif kind is int:
        if -(2**63) <= value < 2**63:
            parts.append(b"i" + _INTEGER.pack(value))
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            parts += (b"I", _SIZE.pack(len(data)), data)
    elif kind is str:
        data = value.encode("utf-8", "surrogatepass")
        parts += (b"s", _SIZE.pack(len(data)), data)
    elif kind is bytes:
        parts += (b"b", _SIZE.pack(len(value)), value)
    elif kind is list or kind is tuple or kind is set or kind is frozenset or kind is range:
        tag = b"t" if kind is tuple else b"z" if kind is set or kind is frozenset else b"l"
        parts += (tag, _SIZE.pack(len(value)))
        for item in value:
            _write(item, parts)
    elif kind is dict:
        parts += (b"d", _SIZE.pack(len(value)))
        for key, item in value.items():
            _write(key, parts)
            _write(item, parts)
    elif kind in _RECORD_NUMBERS:
        names = _NAMES[kind]
        parts += (b"r", bytes((_RECORD_NUMBERS[kind], len(names))))
        for name in names:
            _write(getattr(value, name), parts)
    elif kind in _ENUMERATION_NUMBERS:
        parts += (b"e", bytes((_ENUMERATION_NUMBERS[kind],)))
        _write(value.value, parts)
    elif kind is float:
        parts += (b"f", _FLOAT.pack(value))
    else:
        data = encode_value(value)
        parts += (b"a", _SIZE.pack(len(data)), data)


def _read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    reader = _READERS.get(data[at])
    if reader is None or depth > DEPTH_MAX:
        raise LineBroken("A value came of a type that no node sends, or too deep.")
    return reader(data, at + 1, depth + 1)


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = _SIZE.unpack_from(data, at)
    at += _SIZE.size
    if at + size > len(data):
        raise LineBroken("A value ends before it is complete.")
    return data[at : at + size], at + size


def _items(data: bytes, at: int, depth: int, each: int = 1) -> tuple[list[Any], int]:
    (count,) = _SIZE.unpack_from(data, at)
    at += _SIZE.size
    if count * each > len(data) - at:
        raise LineBroken("A value has more items than there are bytes.")
    found = []
    for _ in range(count * each):
        item, at = _read(data, at, depth)
        found.append(item)
    return found, at


def _list(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    return _items(data, at, depth)


def _tuple(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    found, at = _items(data, at, depth)
    return tuple(found), at


def _set(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    found, at = _items(data, at, depth)
    return frozenset(found), at


def _dict(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    found, at = _items(data, at, depth, 2)
    return dict(zip(found[::2], found[1::2], strict=True)), at


def _text(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    raw, at = _sized(data, at)
    return raw.decode("utf-8", "surrogatepass"), at


def _large(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    raw, at = _sized(data, at)
    return int.from_bytes(raw, "little", signed=True), at


def _amqp(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    raw, at = _sized(data, at)
    value, end = decode_value(raw, 0)
    if end != len(raw):
        raise LineBroken("There is more behind an AMQP value than belongs to it.")
    return value, at


def _record(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    kind, count = RECORDS[data[at]], data[at + 1]
    if count > len(_NAMES[kind]):
        raise LineBroken(f"A {kind.__name__} came with {count} fields, which are too many.")
    at += 2
    values = []
    for _ in range(count):
        value, at = _read(data, at, depth)
        values.append(value)
    return kind(*values), at


def _member(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    kind = ENUMERATIONS[data[at]]
    value, at = _read(data, at + 1, depth)
    return kind(value), at


_READERS: Final[Mapping[int, Callable[[bytes, int, int], tuple[Any, int]]]] = {
    ord("N"): lambda data, at, depth: (None, at),
    ord("T"): lambda data, at, depth: (True, at),
    ord("F"): lambda data, at, depth: (False, at),
    ord("i"): lambda data, at, depth: (_INTEGER.unpack_from(data, at)[0], at + 8),
    ord("I"): _large,
    ord("f"): lambda data, at, depth: (_FLOAT.unpack_from(data, at)[0], at + 8),
    ord("s"): _text,
    ord("b"): lambda data, at, depth: _sized(data, at),
    ord("l"): _list,
    ord("t"): _tuple,
    ord("z"): _set,
    ord("d"): _dict,
    ord("r"): _record,
    ord("e"): _member,
    ord("a"): _amqp,
}
