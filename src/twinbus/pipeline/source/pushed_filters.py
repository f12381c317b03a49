"""Filters that Spark pushes down: its filters in; what to read of which fragments, and a SQL filter for the namespace, out.

    fragment                     fragments that are not read at all
    sequenceNumber               ranges of numbers
    enqueuedTime                 the same, found by time (not of dead letters, which keep their times)
    texts (messageId ...)        a SQL filter

Spark is asked to apply all of them again. So a filter that is not understood may be left out, and one that is understood may
let too many messages through, but never too few.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from twinbus.clock import Millis
from twinbus.model.rules.parser import TEXT_LENGTH_MAX
from twinbus.pipeline.source.ranges import Range, runs

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

NUMBER_MAX = 2**63
FRAGMENT, NUMBER, TIME = "fragment", "sequenceNumber", "enqueuedTime"
SYSTEM_NAMES = {
    "messageId": "MessageId",
    "correlationId": "CorrelationId",
    "subject": "Label",
    "to": "To",
    "replyTo": "ReplyTo",
    "sessionId": "SessionId",
    "replyToSessionId": "ReplyToSessionId",
    "contentType": "ContentType",
}
"""Columns of text, as SQL filters call them."""
_ESCAPE = "!"


@dataclass(frozen=True)
class PushedFilters:
    """Without filters it is everything. Ranges are half-open."""

    numbers: tuple[Range, ...] = ((0, NUMBER_MAX),)
    fragments: frozenset[int] | None = None
    oldest: Millis | None = None
    newer_than_all: Millis | None = None
    """A time that everything wanted is before."""
    condition: str | None = None

    @classmethod
    def of(cls, filters: "Iterable[Filter]") -> "PushedFilters":
        found = cls()
        for each in filters:
            found = found._with(each)
        return found

    def wants(self, fragment: int) -> bool:
        return self.fragments is None or fragment in self.fragments

    def within(self, first: int, end: int) -> list[Range]:
        """What is wanted of the numbers from `first` to below `end`."""
        return _common([(first, end)], self.numbers)

    def joined(self, condition: str | None) -> str | None:
        """The condition of the user, and the pushed one where there is room for it."""
        if condition is None or self.condition is None:
            return self.condition if condition is None else condition
        joined = f"({condition}) AND {self.condition}"
        return joined if len(joined) <= TEXT_LENGTH_MAX else condition

    def _with(self, pushed: "Filter") -> "PushedFilters":
        column, kind = _column(pushed), type(pushed).__name__
        value = getattr(pushed, "value", None)
        if column == NUMBER:
            return replace(self, numbers=tuple(_common(self.numbers, _numbers(kind, value))))
        if column == FRAGMENT:
            wanted = frozenset(_chosen_fragments(kind, value))
            return replace(self, fragments=wanted if self.fragments is None else self.fragments & wanted)
        if column == TIME and isinstance(value, datetime):
            return self._with_time(kind, value.astimezone(UTC).timestamp() * 1000)
        if column in SYSTEM_NAMES:
            return self._with_condition(_text_condition(f"sys.{SYSTEM_NAMES[column]}", kind, value))
        return self

    def _with_time(self, kind: str, millis: float) -> "PushedFilters":
        found = self
        if kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            first = floor(millis)
            found = replace(found, oldest=first if found.oldest is None else max(found.oldest, first))
        if kind in ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"):
            end = ceil(millis) + 1
            before = found.newer_than_all
            found = replace(found, newer_than_all=end if before is None else min(before, end))
        return found

    def _with_condition(self, condition: str | None) -> "PushedFilters":
        if condition is None:
            return self
        joined = condition if self.condition is None else f"{self.condition} AND {condition}"
        return replace(self, condition=joined) if len(joined) <= TEXT_LENGTH_MAX else self


def _column(pushed: "Filter") -> str | None:
    """Of a filter of one column; None for others, and for parts of a column."""
    attribute: Any = getattr(pushed, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _numbers(kind: str, value: Any) -> list[Range]:
    match kind:
        case "EqualTo" | "EqualNullSafe" | "In":
            values = value if kind == "In" else (value,)
            return runs(number for number in values if number is not None)
        case "GreaterThan":
            return [(value + 1, NUMBER_MAX)]
        case "GreaterThanOrEqual":
            return [(value, NUMBER_MAX)]
        case "LessThan":
            return [(0, value)]
        case "LessThanOrEqual":
            return [(0, value + 1)]
        case "IsNull":
            return []
    return [(0, NUMBER_MAX)]


def _chosen_fragments(kind: str, value: Any) -> list[int]:
    from twinbus.pipeline.source.options import FRAGMENT_MAX

    wanted = _numbers(kind, value)
    return [index for index in range(FRAGMENT_MAX + 1) if _common([(index, index + 1)], wanted)]


def _common(some: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """The numbers in both, which rise and do not touch."""
    found: list[Range] = []
    place = 0
    for first, end in some:
        while place < len(others) and others[place][1] <= first:
            place += 1
        for other_first, other_end in others[place:]:
            if other_first >= end:
                break
            found.append((max(first, other_first), min(end, other_end)))
    return [(first, end) for first, end in found if first < end]


def _text_condition(name: str, kind: str, value: Any) -> str | None:
    match kind:
        case "EqualTo" | "EqualNullSafe" if isinstance(value, str):
            return f"{name} = {_quoted(value)}"
        case "In" if all(isinstance(each, str | None) for each in value) and any(value):
            return f"{name} IN ({', '.join(_quoted(each) for each in value if each is not None)})"
        case "IsNull":
            return f"{name} IS NULL"
        case "IsNotNull":
            return f"{name} IS NOT NULL"
        case "StringStartsWith":
            return _like(name, f"{_literal(value)}%")
        case "StringEndsWith":
            return _like(name, f"%{_literal(value)}")
        case "StringContains":
            return _like(name, f"%{_literal(value)}%")
    return None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _like(name: str, pattern: str) -> str:
    return f"{name} LIKE {_quoted(pattern)} ESCAPE '{_ESCAPE}'"


def _literal(text: str) -> str:
    """As a pattern that matches this text alone."""
    return "".join(_ESCAPE + each if each in (_ESCAPE, "%", "_") else each for each in text)
