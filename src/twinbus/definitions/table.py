"""One table of a definition file: values by key, and errors that name the file, the place and the key."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar

from twinbus.errors import ArgumentError

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Table:
    """`place` tells a person where the table is: the file, and the names on the way to it."""

    place: str
    values: Mapping[str, Any]
    name_key: str = "name"

    def refuse(self, key: str, why: str) -> NoReturn:
        raise ArgumentError(f"{self.place}: '{key}' {why}.")

    def only(self, known: Collection[str]) -> None:
        for key in self.values:
            if key not in known:
                self.refuse(key, f"is unknown. Use some of {', '.join(sorted(known))}")

    def name(self) -> str:
        name = self.text(self.name_key)
        if not name:
            raise ArgumentError(f"{self.place}: every entity and rule needs a name. Write it at '{self.name_key}'.")
        return name

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            self.refuse(key, "must be a string")
        return value

    def below(self, key: str) -> "Table":
        """The table at a key; an empty one if there is none."""
        value = self.values.get(key) or {}
        if not isinstance(value, Mapping):
            self.refuse(key, "must be a table")
        return Table(f"{self.place}: {key}", value, self.name_key)

    def list_of(self, key: str) -> list["Table"]:
        """The tables at a key, each placed by its name."""
        found = self.values.get(key) or []
        if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
            self.refuse(key, "must be a list of tables")
        return [Table(f"{self.place}: {key} '{each.get(self.name_key, '?')}'", each, self.name_key) for each in found]

    def at(self, key: str) -> "Table":
        """This table, in errors about one of its keys."""
        return Table(f"{self.place}: '{key}'", self.values, self.name_key)

    def check(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a check that knows only the value, and add to its error where the value is."""
        try:
            return call(*args, **kwargs)
        except ArgumentError as wrong:
            raise ArgumentError(f"{self.place}: {wrong}") from None
