"""Finding the rules whose conditions a message meets, by hash instead of one by one.

Rules that look at the same fields form a *shape*, a table from the values of those fields to
rules: one lookup answers for all of them. And a shape is only looked at when the message has the
shape's *anchor*, one of its fields, chosen where the fewest other shapes are anchored. So rules
about properties that a message does not have cost it nothing, and 100,000 rules of one shape cost
it one lookup.
"""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from twinbus.model.rules.compiled import Conditions, Field
from twinbus.model.rules.nodes import Scope
from twinbus.model.rules.values import equality_key
from twinbus.model.rules.view import SYSTEM_PROPERTIES, FilterView

E = TypeVar("E")
Reader = Callable[[FilterView], object]


class Shape(Generic[E]):
    """Entries whose conditions are about the same fields, by the values they want there."""

    __slots__ = ("_readers", "_single", "_table", "anchor")

    def __init__(self, fields: tuple[Field, ...], anchor: Field) -> None:
        self.anchor = anchor
        self._readers = tuple(map(_reader, fields))
        self._single = self._readers[0] if len(fields) == 1 else None
        # Entries in a dict for quick removal; their order is the order of adding.
        self._table: dict[object, dict[E, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._table)

    def add(self, conditions: Conditions, entry: E) -> None:
        self._table.setdefault(self._key(conditions), {})[entry] = None

    def remove(self, conditions: Conditions, entry: E) -> None:
        key = self._key(conditions)
        entries = self._table[key]
        del entries[entry]
        if not entries:
            del self._table[key]

    def found(self, view: FilterView) -> "dict[E, None] | tuple[()]":
        if self._single is not None:
            return self._table.get(equality_key(self._single(view)), ())
        return self._table.get(tuple([equality_key(read(view)) for read in self._readers]), ())

    def _key(self, conditions: Conditions) -> object:
        values = tuple(value for _, value in conditions)
        return values[0] if self._single is not None else values


class ConditionLookup(Generic[E]):
    """Entries by their conditions. Entries are told apart by identity, and each is added at most once."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[Field, ...], Shape[E]] = {}
        self._by_user_name: dict[str, list[Shape[E]]] = {}
        self._by_system_name: dict[str, list[Shape[E]]] = {}

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def add(self, conditions: Conditions, entry: E) -> None:
        fields = tuple(field for field, _ in conditions)
        shape = self._shapes.get(fields)
        if shape is None:
            shape = self._shapes[fields] = Shape(fields, min(fields, key=self._anchored_count))
            self._anchors(shape.anchor).setdefault(shape.anchor[1], []).append(shape)
        shape.add(conditions, entry)

    def remove(self, conditions: Conditions, entry: E) -> None:
        fields = tuple(field for field, _ in conditions)
        shape = self._shapes[fields]
        shape.remove(conditions, entry)
        if shape:
            return
        del self._shapes[fields]
        anchors, name = self._anchors(shape.anchor), shape.anchor[1]
        anchors[name].remove(shape)
        if not anchors[name]:
            del anchors[name]

    def found(self, view: FilterView) -> Iterator[E]:
        """Every entry whose conditions the message meets."""
        if self._by_user_name:
            for name in self._by_user_name.keys() & view.user.keys():
                for shape in self._by_user_name[name]:
                    yield from shape.found(view)
        for shapes in self._by_system_name.values():
            for shape in shapes:
                yield from shape.found(view)

    def _anchors(self, field: Field) -> dict[str, list[Shape[E]]]:
        return self._by_user_name if field[0] is Scope.USER else self._by_system_name

    def _anchored_count(self, field: Field) -> tuple[int, bool]:
        # A system field is looked up for every message, a user property only where it is there.
        return len(self._anchors(field).get(field[1], ())), field[0] is Scope.SYSTEM


def _reader(field: Field) -> Reader:
    scope, name = field
    if scope is Scope.SYSTEM:
        return SYSTEM_PROPERTIES[name].read
    return lambda view: view.user.get(name)
