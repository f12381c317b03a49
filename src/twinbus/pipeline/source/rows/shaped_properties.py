"""Application properties of messages that look alike: their fronts in, a column of maps of JSON texts out.

Names are the same in all messages of a shape, and so are most types. Each property is a column of its own first, and the maps are put
together from these; what a value looks like as text is decided in `property_values`.
"""

from array import array
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from twinbus.amqp.codec.encode import INT_MAX, INT_MIN
from twinbus.model import wire_names
from twinbus.pipeline.property_values import property_text
from twinbus.pipeline.source.rows.message_shapes import INT, LONG, TEXT, Place, signed, texts

_ESCAPED = '["\\\\\\x00-\\x1f]'
"""What JSON does not take as it is, in a text."""


class ShapedProperties:
    def __init__(self, places: Mapping[str, Place], example: Mapping[str, Any]) -> None:
        """Raises ValueError where a property has to be decoded from each message."""
        self._names = [name for name in places if name != wire_names.CLAIMED_BY]
        self._places = [places[name] for name in self._names]
        self._constants = {name: property_text(example[name]) for name in self._names if places[name].is_constant}
        if any(not place.is_constant and place.kind not in (TEXT, INT, LONG) for place in self._places):
            raise ValueError("a property of a type that no column of fronts shows")

    def column(self, fronts: pa.BinaryArray) -> pa.MapArray:
        """Raises ValueError or ArrowInvalid where a value needs a closer look."""
        count, width = len(fronts), len(self._names)
        if not width:
            return pa.array([[]] * count, pa.map_(pa.string(), pa.string()))
        values = [self._texts(name, place, fronts) for name, place in zip(self._names, self._places, strict=True)]
        # From one property of all messages after the other to all properties of one message after the other.
        order = array("q", [row + start for row in range(count) for start in range(0, count * width, count)])
        items = pa.concat_arrays(values).take(_integers(order))
        keys = pa.array(self._names, pa.string()).take(_integers(array("q", list(range(width)) * count)))
        offsets = pa.array(range(0, count * width + 1, width), pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items)

    def _texts(self, name: str, place: Place, fronts: pa.BinaryArray) -> pa.StringArray:
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], pa.string()), len(fronts))
        if place.kind == TEXT:
            found = texts(fronts, place)
            if pc.any(pc.match_substring_regex(found, _ESCAPED)).as_py():
                raise ValueError("a text that JSON writes differently")
            return pc.binary_join_element_wise('"', found, '"', "")
        numbers = signed(fronts, place)
        plain = numbers.cast(pa.string())
        if place.kind == INT:
            return plain
        is_small = pc.and_(pc.greater_equal(numbers, INT_MIN), pc.less_equal(numbers, INT_MAX))
        return pc.if_else(is_small, pc.binary_join_element_wise('{"long": ', plain, "}", ""), plain)


def _integers(values: "array[int]") -> pa.Int64Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
