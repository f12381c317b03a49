"""Messages that look alike, read without decoding each: payloads in, columns of Arrow out.

Messages of one sender mostly differ in a few values of a fixed width: the number, the time, an id. Such messages have the same
bytes everywhere else, so one comparison tells whether a payload has a known shape, one `struct` takes its values out, and
what is the same in all of them is a constant column. A shape is made of a message that was decoded in the ordinary way, and
whatever it does not understand is left to that way, column by column: what a message means is decided in `message_rows`
alone.
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from twinbus.amqp.codec.decode import decode_value
from twinbus.amqp.codec.layout import WIDTHS, skip_value
from twinbus.amqp.codec.section_bounds import section_bounds
from twinbus.amqp.errors import DecodeError
from twinbus.model.content import DESCRIPTOR_SIZE

LONG, TIMESTAMP, TEXT = "long", "timestamp", "text"
"""Kinds of values that a shape can take out by their place."""

_KINDS = {0x81: LONG, 0x83: TIMESTAMP}
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
        self.application = _map_places(payload, application_at, body_at)
        self.body_at = _body_at(payload, body_at)
        """Where the bytes of the body are; None: there is no body, and nothing behind the front."""
        self.size = body_at if self.body_at is None else self.body_at
        mask = bytearray(b"\xff" * self.size)
        for places in (self.annotations, self.properties, self.application):
            for place in places.values():
                if not place.is_constant:
                    mask[place.start : place.end] = bytes(place.end - place.start)
        if self.body_at is not None:
            mask[body_at + len(_DATA_LONG) : self.body_at] = bytes(self.body_at - body_at - len(_DATA_LONG))
        self._size_at = body_at + len(_DATA_LONG)
        self._mask = int.from_bytes(mask, "big")
        self._bits = int.from_bytes(payload[: self.size], "big") & self._mask

    def fits(self, payload: bytes) -> bool:
        if int.from_bytes(payload[: self.size], "big") & self._mask != self._bits:
            return False
        if self.body_at is None:
            return len(payload) == self.size
        return int.from_bytes(payload[self._size_at : self.body_at], "big") == len(payload) - self.body_at


def taker(places: Sequence[Place]) -> Callable[[bytes], tuple[bytes | int, ...]]:
    """Takes the values at these places, which rise, out of a payload of their shape."""
    text, position = ">", 0
    for place in places:
        width = place.end - place.start
        text += f"{place.start - position}x" + (f"{width}s" if place.kind == TEXT else "q")
        position = place.end
    return Struct(text).unpack_from


def value_at(payload: bytes, place: Place) -> object:
    return decode_value(payload, place.at)[0]


def _list_places(payload: bytes, start: int, end: int, *, keeps_all: bool = False) -> dict[int, Place]:
    return dict(enumerate(_elements(payload, start, end, keeps_all=keeps_all)))


def _map_places(payload: bytes, start: int, end: int) -> Mapping[str, Place]:
    places = _elements(payload, start, end)
    names = [value_at(payload, place) for place in places[::2]]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError("a map has keys that are not names, or one of them twice")
    # Names are the same in all messages of a shape.
    return {str(name): place for name, place in zip(names, places[1::2], strict=True)}


def _elements(payload: bytes, start: int, end: int, *, keeps_all: bool = False) -> list[Place]:
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
