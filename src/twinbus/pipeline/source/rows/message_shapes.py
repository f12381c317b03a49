"""What messages that look alike have in common: a payload in, the places of its values out.

Messages of one sender mostly differ in a few values of a fixed width: the number, the time, an id. Such messages have the same
bytes everywhere else: that is their shape. `fitting` says which of many payloads have it, by a few comparisons of whole columns,
and `texts` and `numbers` cut out what is at a place of all of them. Here payloads are *fronts*: a body of data follows its front
and is no part of it.
"""

import sys
from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.layout import WIDTHS, skip_value
from twinbus.amqp.codec.section_bounds import section_bounds
from twinbus.amqp.errors import DecodeError
from twinbus.model.content import DESCRIPTOR_SIZE

LONG, TIMESTAMP, TEXT, INT = "long", "timestamp", "text", "int"
"""Kinds of values that a shape can take out by their place."""

_KINDS = {0x81: LONG, 0x83: TIMESTAMP}
_SMALL_KINDS = {0x54: INT, 0x71: INT, 0x55: LONG}
"""Of application properties, which may be numbers of any size."""
_TEXTS = {0xA1: 2, 0xB1: 5}  # constructor -> bytes before the text
_NULL = 0x40
_SMALL_COMPOUNDS, _LARGE_COMPOUNDS = (0xC0, 0xC1), (0xD0, 0xD1)
_EMPTY_LIST = 0x45
_DATA_SHORT, _DATA_LONG = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"
_TIME_TO_LIVE = 2  # place in the header
_KEPT_WIDTH = 1
"""Values of this width or less are part of a shape: counts and states, of which there are few different ones. So is the
header, and so are symbols, such as the content type."""


class Place(NamedTuple):
    """Where a value is in every payload of a shape; `kind` is None for what is the same in all, or not understood."""

    kind: str | None
    start: int  # of the bytes of the value, behind its constructor and size
    end: int
    at: int  # of its constructor
    is_constant: bool


class Shape:
    """`header`, `annotations`, `properties` and `application` are the places of their values, by position or name."""

    def __init__(self, payload: bytes) -> None:
        """Raises DecodeError, or ValueError for a message whose shape is of no use."""
        bounds = section_bounds(payload)
        if bounds is None:
            raise ValueError("its sections are not in the standard order")
        header_at, delivery_at, annotations_at, properties_at, application_at, body_at = bounds
        self.header = _list_places(payload, header_at, delivery_at, keeps_all=True)
        ttl = self.header.get(_TIME_TO_LIVE)
        self.has_time_to_live = ttl is not None and payload[ttl.at] != _NULL
        self.annotations = _map_places(payload, annotations_at, properties_at)
        self.properties = _list_places(payload, properties_at, application_at)
        self.has_application = application_at < body_at
        self.application = _map_places(payload, application_at, body_at, _SMALL_KINDS)
        self.body_at = _body_at(payload, body_at)
        """Where the bytes of the body would be; None: there is no body."""
        self.size = body_at if self.body_at is None else self.body_at
        mask = bytearray(b"\xff" * self.size)
        for places in (self.annotations, self.properties, self.application):
            for place in places.values():
                if not place.is_constant:
                    mask[place.start : place.end] = bytes(place.end - place.start)
        if self.body_at is not None:
            mask[body_at + len(_DATA_LONG) : self.body_at] = bytes(self.body_at - body_at - len(_DATA_LONG))
        self._constants = [
            (start, end, pa.scalar(payload[start:end], pa.binary())) for start, end in _runs(bytes(mask))
        ]
        # The size that a data section says, in one byte or four.
        self._said = (
            None if self.body_at is None else Place(None, body_at + 4, self.body_at, body_at, is_constant=False)
        )

    def fitting(self, fronts: pa.BinaryArray) -> pa.BooleanArray:
        """Which of them have this shape, but for the size of their bodies: see `has_size`."""
        fits = pc.equal(pc.binary_length(fronts), self.size)
        for start, end, value in self._constants:
            fits = pc.and_(fits, pc.equal(pc.binary_slice(fronts, start, end), value))
        return fits

    def has_size(self, fronts: pa.BinaryArray, body_sizes: pa.Int32Array) -> pa.BooleanArray:
        """Which fronts of this shape say that their body has the size that it has."""
        if self._said is None:
            return pc.equal(body_sizes, 0)
        return pc.equal(_unsigned(fronts, self._said), body_sizes)


def texts(fronts: pa.BinaryArray, place: Place) -> pa.StringArray:
    """Raises ArrowInvalid where one is not UTF-8."""
    return pc.binary_slice(fronts, place.start, place.end).cast(pa.string())


def numbers(fronts: pa.BinaryArray, place: Place) -> pa.Int64Array:
    """Of eight bytes each."""
    return pa.Array.from_buffers(pa.int64(), len(fronts), [None, _swapped(fronts, place, "q")])


def signed(fronts: pa.BinaryArray, place: Place) -> pa.Int64Array:
    """Of one byte, four or eight."""
    kind, form = {1: (pa.int8(), "b"), 4: (pa.int32(), "i"), 8: (pa.int64(), "q")}[place.end - place.start]
    return pa.Array.from_buffers(kind, len(fronts), [None, _swapped(fronts, place, form)]).cast(pa.int64())


def _unsigned(fronts: pa.BinaryArray, place: Place) -> pa.Array:
    """Of one byte or four."""
    kind, form = (pa.uint8(), "B") if place.end - place.start == 1 else (pa.uint32(), "I")
    return pa.Array.from_buffers(kind, len(fronts), [None, _swapped(fronts, place, form)]).cast(pa.int64())


def _swapped(fronts: pa.BinaryArray, place: Place, form: str) -> pa.Buffer:
    """What all fronts have at a place, without gaps and in the byte order of this machine."""
    cut = pc.binary_slice(fronts, place.start, place.end)
    values = array(form)
    values.frombytes(memoryview(cut.buffers()[2])[: len(fronts) * (place.end - place.start)])
    if sys.byteorder == "little":
        values.byteswap()
    return pa.py_buffer(values)


def _runs(mask: bytes) -> Iterator[tuple[int, int]]:
    """Where the mask is set: first place and end of each run."""
    start = 0
    while (start := mask.find(b"\xff", start)) >= 0:
        end = mask.find(b"\x00", start)
        end = len(mask) if end < 0 else end
        yield start, end
        start = end


def value_at(payload: bytes, place: Place) -> object:
    return decode_value(payload, place.at)[0]


def _list_places(payload: bytes, start: int, end: int, *, keeps_all: bool = False) -> dict[int, Place]:
    return dict(enumerate(_elements(payload, start, end, keeps_all=keeps_all)))


def _map_places(payload: bytes, start: int, end: int, more_kinds: Mapping[int, str] = {}) -> Mapping[str, Place]:
    """`more_kinds` are those of values besides the ones that every section may have."""
    places = _elements(payload, start, end, more_kinds=more_kinds)
    names = [value_at(payload, place) for place in places[::2]]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError("a map has keys that are not names, or one of them twice")
    # Names are the same in all messages of a shape.
    return {str(name): place for name, place in zip(names, places[1::2], strict=True)}


def _elements(
    payload: bytes, start: int, end: int, *, keeps_all: bool = False, more_kinds: Mapping[int, str] = {}
) -> list[Place]:
    """Of the list or map that is the value of the section there; none if there is no such section."""
    if start == end:
        return []
    at = start + DESCRIPTOR_SIZE
    form = payload[at]
    if form == _EMPTY_LIST:
        return []
    if form in _SMALL_COMPOUNDS:
        count, position = payload[at + 2], at + 3
    elif form in _LARGE_COMPOUNDS:
        count, position = int.from_bytes(payload[at + 5 : at + 9], "big"), at + 9
    else:
        raise ValueError("a section is neither a list nor a map")
    found = []
    for _ in range(count):
        following = skip_value(payload, position)
        if following > end:
            raise DecodeError("a value extends beyond its section")
        if payload[position] in more_kinds:
            kind = more_kinds[payload[position]]
            found.append(Place(kind, position + 1, following, position, is_constant=False))
        else:
            found.append(_place(payload, position, following, keeps_all=keeps_all))
        position = following
    return found


def _place(payload: bytes, at: int, following: int, *, keeps_all: bool) -> Place:
    form = payload[at]
    if form in _TEXTS:
        start = at + _TEXTS[form]
        return Place(TEXT, start, following, at, keeps_all or start == following)
    width = WIDTHS[form]
    if keeps_all or not width > _KEPT_WIDTH:
        return Place(None, at + 1, following, at, is_constant=True)
    return Place(_KINDS.get(form), at + 1, following, at, is_constant=False)


def _body_at(payload: bytes, at: int) -> int | None:
    if at == len(payload):
        return None
    if payload.startswith(_DATA_LONG, at):
        return at + len(_DATA_LONG) + 4
    if payload.startswith(_DATA_SHORT, at):
        return at + len(_DATA_SHORT) + 1
    raise ValueError("its body is not data")
