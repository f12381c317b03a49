"""Messages as rows: columns of payloads in, Arrow record batches out, none of them larger than a few MiB.

Spark's own batching counts rows, whatever their size; ours counts bytes, so that large messages do not fill a worker. Rows keep
the order of the messages: a sink may give them ids by their places.

    payloads --by shape--> groups --columns of each--> put together in the order of the payloads
       '--no shape, or few that have it--> decoded one by one (`message_rows`, which decides what a message means)

No message of a known shape becomes an object of Python, and a column of bodies is passed on as it came.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from twinbus.amqp.errors import DecodeError
from twinbus.client.entity_extras import PackedPage
from twinbus.client.received_message import ReceivedMessage
from twinbus.model.packed_payloads import unpack_numbers
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.pipeline.source.rows.columns import ARROW_TYPES, LARGE, NAMES, TEXT, TIME, arrow_schema
from twinbus.pipeline.source.rows.message_parts import ANNOTATIONS, APPLICATION, PROPERTIES, parts_of
from twinbus.pipeline.source.rows.message_rows import (
    ABSOLUTE_EXPIRY,
    CREATION,
    ENTITY,
    KINDS,
    MESSAGE_STATE,
    MICROS,
    MILLIS_MAX,
    MILLIS_MIN,
    PLACES,
    READERS,
    constant,
    decoded,
    record_batch,
)
from twinbus.pipeline.source.rows.message_shapes import TEXT as TEXT_KIND
from twinbus.pipeline.source.rows.message_shapes import Place, Shape, numbers, texts
from twinbus.pipeline.source.rows.shaped_properties import ShapedProperties

BATCH_BYTES_MAX = 4 * 1024 * 1024
BATCH_ROWS_MAX = 10_000
SHAPES_MAX = 24
"""Shapes that a reader remembers: ids and keys of a few lengths each make that many."""
NEW_SHAPES_MAX = 12
"""That are looked for in one batch."""
GROUP_MIN = 8
"""Fewer messages of a shape are decoded one by one."""
BODY, PROPERTIES_NAME = "body", "properties"


@dataclass(frozen=True, slots=True)
class Payloads:
    """Some messages: what lies before the data of their bodies, and those; without bodies if nobody wants them."""

    fronts: pa.BinaryArray
    bodies: pa.BinaryArray | None

    @classmethod
    def of_page(cls, page: PackedPage) -> "Payloads":
        """Raises ArrowInvalid where the ends do not belong to the bytes."""
        bodies = None if page.bodies is None or page.body_ends is None else _column_of(page.bodies, page.body_ends)
        return cls(_column_of(page.fronts, page.front_ends), bodies)

    @classmethod
    def joined(cls, parts: Sequence["Payloads"]) -> "Payloads":
        if len(parts) == 1:
            return parts[0]
        bodies = [part.bodies for part in parts]
        return cls(
            pa.concat_arrays([part.fronts for part in parts]), None if None in bodies else pa.concat_arrays(bodies)
        )

    @property
    def count(self) -> int:
        return len(self.fronts)

    @property
    def size_bytes(self) -> int:
        return _bytes_before(self, self.count) - _bytes_before(self, 0)

    def taken(self, places: pa.Array) -> "Payloads":
        return Payloads(self.fronts.take(places), None if self.bodies is None else self.bodies.take(places))

    def slice(self, start: int, count: int) -> "Payloads":
        return Payloads(
            self.fronts.slice(start, count), None if self.bodies is None else self.bodies.slice(start, count)
        )

    def messages(self) -> list[ReceivedMessage]:
        fronts = self.fronts.to_pylist()
        bodies = [b""] * len(fronts) if self.bodies is None else self.bodies.to_pylist()
        return [ReceivedMessage(front + body) for front, body in zip(fronts, bodies, strict=True)]


def _column_of(joined: bytes, ends: bytes) -> pa.BinaryArray:
    offsets = array("I", [0])
    offsets.extend(unpack_numbers(ends))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    column = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
    column.validate(full=True)
    return column


def record_batches(pages: Iterable[Payloads], path: str, names: Sequence[str] = NAMES) -> Iterator[pa.RecordBatch]:
    """Pages joined to batches of `BATCH_BYTES_MAX`; only a single message may make one that is larger."""
    rows = ShapedRows(path, names)
    waiting: list[Payloads] = []
    size = count = 0
    for page in pages:
        start = 0
        while start < page.count:
            fitting = min(_fitting(page, start, BATCH_BYTES_MAX - size), BATCH_ROWS_MAX - count)
            if not fitting and not waiting:
                fitting = 1
            if fitting:
                part = page.slice(start, fitting)
                waiting.append(part)
                size += part.size_bytes
                start, count = start + fitting, count + fitting
            if start < page.count:
                yield rows.batch(Payloads.joined(waiting))
                waiting, size, count = [], 0, 0
    if waiting:
        yield rows.batch(Payloads.joined(waiting))


def _bytes_before(payloads: Payloads, place: int) -> int:
    columns = [payloads.fronts] if payloads.bodies is None else [payloads.fronts, payloads.bodies]
    return sum(memoryview(column.buffers()[1]).cast("i")[column.offset + place] for column in columns)


def _fitting(page: Payloads, start: int, room: int) -> int:
    """How many messages from a place on have no more bytes than there is room."""
    before = _bytes_before(page, start)
    places = range(start + 1, page.count + 1)
    return bisect_right(places, room, key=lambda place: _bytes_before(page, place) - before)


class ShapedRows:
    """Rows of one entity, by the shapes of its messages as far as they have some in common.

    Where every message has a shape of its own there is nothing to gain, and messages are decoded one by one.
    """

    def __init__(self, path: str, names: Sequence[str]) -> None:
        self._path = path
        self._names = tuple(names)
        self._plans: list[_ShapePlan] = []
        self._misses = self._hits = 0

    def batch(self, payloads: Payloads) -> pa.RecordBatch:
        groups, rest = self._sorted_out(payloads)
        if not groups:
            return record_batch(payloads.messages(), self._path, self._names)
        arrays = {} if len(rest) else self._common(payloads, [plan for plan, _ in groups])
        names = [name for name in self._names if name not in arrays]
        if len(groups) == 1 and not len(rest):
            parts = [self._arrays(groups[0][0], _Group(payloads), names)]
        else:
            parts = [self._arrays(plan, _Group(payloads, places), names) for plan, places in groups]
        if len(rest):
            parts.append(decoded(payloads.taken(rest).messages(), self._path, names))
        columns = parts[0]
        if len(parts) > 1:
            order = pa.concat_arrays([*(places for _, places in groups), *([rest] if len(rest) else [])])
            inverse = pc.sort_indices(order)
            columns = [pa.concat_arrays(each).take(inverse) for each in zip(*parts, strict=True)]
        arrays |= zip(names, columns, strict=True)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._names], schema=arrow_schema(self._names))

    def _common(self, payloads: Payloads, plans: "Sequence[_ShapePlan]") -> dict[str, pa.Array]:
        """Columns that need not be put together: what is the same in all shapes, and bodies if all of them are data."""
        values = [plan.constants for plan in plans]
        first, *others = values
        common = {
            name: constant(name, self._path if name == ENTITY else value, payloads.count)
            for name, value in first.items()
            if all(name in other and other[name] == value for other in others)
        }
        if BODY in self._names and payloads.bodies is not None and all(plan.has_data for plan in plans):
            common[BODY] = payloads.bodies
        return common

    def _sorted_out(self, payloads: Payloads) -> "tuple[list[tuple[_ShapePlan, pa.Array]], pa.Array]":
        """Groups of payloads by shape, as places, and the places of what is decoded one by one."""
        left = _Left(payloads, _places(range(payloads.count)))
        groups: list[tuple[_ShapePlan, pa.Array]] = []
        for plan in list(self._plans):
            if left.count:
                self._pick(plan, left, groups)
        alone: list[int] = []
        for _ in range(NEW_SHAPES_MAX):
            if not left.count or (self._misses > SHAPES_MAX and self._misses > self._hits):
                break
            self._misses += 1
            found = self._new_plan(left.first())
            if found is None:
                alone.append(left.drop_first())
            else:
                self._plans.insert(0, found)
                self._pick(found, left, groups)
        self._misses += left.count
        if self._misses > SHAPES_MAX and self._misses > self._hits:
            self._plans.clear()
        del self._plans[SHAPES_MAX:]
        self._hits += sum(len(places) for _, places in groups)
        few = [places for _, places in groups if len(places) < GROUP_MIN]
        rest = pa.concat_arrays([left.places, left.odd, *few, _places(alone)])
        return [group for group in groups if len(group[1]) >= GROUP_MIN], rest

    def _pick(self, plan: "_ShapePlan", left: "_Left", groups: "list[tuple[_ShapePlan, pa.Array]]") -> None:
        places = left.pick(plan.shape)
        if len(places):
            groups.append((plan, places))
            self._plans.remove(plan)
            self._plans.insert(0, plan)

    def _new_plan(self, message: ReceivedMessage) -> "_ShapePlan | None":
        try:
            return _ShapePlan(Shape(message.payload), message, self._names)
        except (ValueError, DecodeError):
            return None

    def _arrays(self, plan: "_ShapePlan", group: "_Group", names: Sequence[str]) -> list[pa.Array]:
        try:
            return plan.arrays(group, self._path, names)
        except (pa.ArrowInvalid, OverflowError, ValueError):
            # Text that is not UTF-8, or a time outside the calendar: null where it is.
            return decoded(group.messages(), self._path, names)


class _Group:
    """Payloads of one shape. Their bodies are taken together only where somebody needs them."""

    def __init__(self, payloads: Payloads, places: pa.Int64Array | None = None) -> None:
        """Without places it is all of them."""
        self._payloads = payloads
        self._places = places
        self.fronts = payloads.fronts if places is None else payloads.fronts.take(places)
        self.count = len(self.fronts)

    def bodies(self) -> pa.BinaryArray:
        bodies = self._payloads.bodies
        return bodies if self._places is None or bodies is None else bodies.take(self._places)

    def messages(self) -> list[ReceivedMessage]:
        payloads, places = self._payloads, self._places
        return (payloads if places is None else payloads.taken(places)).messages()


def _places(values: Iterable[int]) -> pa.Int64Array:
    kept = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(kept), [None, pa.py_buffer(kept)])


class _Left:
    """Payloads of a batch whose shape is not known yet, and their places in it."""

    def __init__(self, payloads: Payloads, places: pa.Int64Array) -> None:
        self._payloads = payloads
        self._fronts = payloads.fronts
        self._sizes = None if payloads.bodies is None else pc.binary_length(payloads.bodies)
        self.places = places
        self.odd = _places(())
        """Of those whose front and body do not belong together."""

    @property
    def count(self) -> int:
        return len(self.places)

    def first(self) -> ReceivedMessage:
        return self._payloads.slice(self.places[0].as_py(), 1).messages()[0]

    def drop_first(self) -> int:
        place: int = self.places[0].as_py()
        self._fronts, self.places = self._fronts[1:], self.places[1:]
        return place

    def pick(self, shape: Shape) -> pa.Int64Array:
        """The places of those that have the shape, which are left no longer."""
        fits = shape.fitting(self._fronts)
        if fits.true_count == 0:
            return self.places[:0]
        fronts, places = self._fronts, self.places
        if fits.true_count < len(fits):
            others = pc.invert(fits)
            fronts, places = fronts.filter(fits), places.filter(fits)
            self._fronts, self.places = self._fronts.filter(others), self.places.filter(others)
        else:
            self._fronts, self.places = fronts[:0], places[:0]
        if self._sizes is not None:
            sizes = self._sizes if len(places) == len(self._sizes) else self._sizes.take(places)
            agrees = shape.has_size(fronts, sizes)
            if agrees.true_count < len(agrees):
                self.odd = pa.concat_arrays([self.odd, places.filter(pc.invert(agrees))])
                places = places.filter(agrees)
        return places


class _ShapePlan:
    """How each of the wanted columns is made of the payloads of a shape."""

    def __init__(self, shape: Shape, example: ReceivedMessage, names: Sequence[str]) -> None:
        self.shape = shape
        self.has_data = shape.body_at is not None
        wanted = {place for name in names for place in READERS[name].sections}
        parts = parts_of(example, wanted)
        self._sources: dict[str, Place] = {}
        self.constants: dict[str, Any] = {}
        """Columns that are the same in all messages of the shape, by name."""
        for name in names:
            found = _source(shape, name)
            if found is _SAME:
                self.constants[name] = None if name == ENTITY else READERS[name].read(parts)
            elif isinstance(found, Place):
                self._sources[name] = found
        self._properties = None
        if PROPERTIES_NAME in names and shape.has_application and parts.application:
            with suppress(ValueError):
                self._properties = ShapedProperties(shape.application, parts.application)

    def arrays(self, group: _Group, path: str, names: Sequence[str]) -> list[pa.Array]:
        slow = [name for name in names if self._is_slow(name)]
        found: dict[str, pa.Array] = {}
        if self._properties is not None and PROPERTIES_NAME in slow:
            with suppress(ValueError):  # where a text has to be escaped, for example
                found[PROPERTIES_NAME] = self._properties.column(group.fronts)
                slow.remove(PROPERTIES_NAME)
        if slow:
            found |= zip(slow, decoded(group.messages(), path, slow), strict=True)
        return [found[name] if name in found else self._array(name, group, path) for name in names]

    def _is_slow(self, name: str) -> bool:
        return name not in self.constants and name not in self._sources and name != BODY

    def _array(self, name: str, group: _Group, path: str) -> pa.Array:
        if name == ENTITY:
            return constant(name, path, group.count)
        if name in self.constants:
            return constant(name, self.constants[name], group.count)
        if name == BODY:
            return group.bodies()
        return _column(name, self._sources[name], group.fronts)


_SAME = object()
"""The value of a column is the same in all messages of a shape."""


def _source(shape: Shape, name: str) -> object:
    """A place, `_SAME`, or None where the column is decoded from each message."""
    if name == ENTITY:
        return _SAME
    if name == BODY:
        return _SAME if shape.body_at is None else None
    if name in ("deliveryCount", "state"):
        return _SAME if name == "deliveryCount" else _of(shape.annotations.get(MESSAGE_STATE))
    if name == "timeToLive":
        return _SAME if _is_plain_time_to_live(shape) else None
    if name == "expiresAt":
        absolute = shape.properties.get(ABSOLUTE_EXPIRY)
        if absolute is not None and not absolute.is_constant:
            return _of(absolute)
        return None if shape.has_time_to_live else _SAME
    if name == "properties":
        return _SAME if not shape.has_application else None
    kind, key = PLACES[name]
    places: Any = {ANNOTATIONS: shape.annotations, PROPERTIES: shape.properties, APPLICATION: shape.application}[kind]
    return _of(places.get(key))


def _of(place: Place | None) -> object:
    if place is None or place.is_constant:
        return _SAME
    return place if place.kind is not None else None


def _is_plain_time_to_live(shape: Shape) -> bool:
    """It is in the header alone, and so the same in all."""
    places = (shape.properties.get(ABSOLUTE_EXPIRY), shape.properties.get(CREATION))
    return all(place is None or place.is_constant for place in places)


def _column(name: str, place: Place, fronts: pa.BinaryArray) -> pa.Array:
    """Raises ArrowInvalid or ValueError where a value needs a closer look."""
    kind = KINDS[name]
    if place.kind == TEXT_KIND:
        if kind != TEXT:
            raise ValueError("text where a number is expected")
        return texts(fronts, place)
    values = numbers(fronts, place)
    if name == "fragment":
        return pc.shift_right(values, SEQUENCE_BITS).cast(pa.int32())
    if kind == TIME:
        span = pc.min_max(values)
        if not MILLIS_MIN <= span["min"].as_py() <= span["max"].as_py() <= MILLIS_MAX:
            raise ValueError("a time outside the calendar")
        return pc.multiply(values, MICROS).cast(ARROW_TYPES[TIME])
    if kind != LARGE:
        raise ValueError("a number where text is expected")
    return values
