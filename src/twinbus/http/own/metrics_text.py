"""The metrics of several processes as those of one namespace: texts in Prometheus format in, one text out.

Each process counts what it does and what lies in its own stores, so a series of the namespace is the sum over them. What says
whether something is the case is true if one of them says so.

Sums of counters never fall, as they would for Prometheus when a namespace starts again:

    a process does not answer                 what it had counted when it was heard of last
    it has ended, or counts from 0 again      the same, and what is counted from then on comes on top

What a process counted after it was heard of last is lost when it ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

CLAIMS = (b"twinbus_queue_limited", b"twinbus_store_up", b"twinbus_store_full")
COUNTED = (b"counter", b"histogram")
CARRIED_MAX = 200_000
"""Series of which something was counted by processes that have ended; beyond that, those are forgotten that no process has."""

Series: TypeAlias = dict[bytes, float]
"""By name and labels."""


@dataclass(slots=True)
class _Family:
    head: list[bytes]
    is_counted: bool = False
    series: Series = field(default_factory=dict)


class Tally:
    """Of one namespace. A process is known by a number that no other one has had."""

    def __init__(self) -> None:
        self._counted: dict[int, dict[bytes, Series]] = {}  # by process and family, as it was heard of last
        self._carried: dict[bytes, Series] = {}

    def merged(self, texts: Mapping[int, bytes]) -> bytes:
        """Of the processes that answer, in the order in which they were asked. Families and series are in the order of the first text
        that has them."""
        read = {process: _read(text) for process, text in texts.items()}
        shown: dict[bytes, _Family] = {}
        for process, families in read.items():
            for name, family in families.items():
                known = shown.setdefault(name, _Family(family.head, family.is_counted))
                if family.is_counted:
                    self._count(process, name, family.series)
                    known.series.update(dict.fromkeys(family.series, 0.0))
                else:
                    _add(known.series, family.series, is_claim=name in CLAIMS)
        self._forget_what_nobody_has()
        for name, family in shown.items():
            if family.is_counted:
                for counted in [*self._counted.values(), self._carried]:
                    _add(family.series, counted.get(name, {}))
        return b"\n".join([*_lines(shown.values()), b""])

    def ended(self, process: int) -> None:
        for name, series in self._counted.pop(process, {}).items():
            self._carry(name, series, {})

    def _count(self, process: int, name: bytes, series: Series) -> None:
        counted = self._counted.setdefault(process, {})
        self._carry(name, counted.get(name, {}), series)
        counted[name] = series

    def _carry(self, name: bytes, former: Series, now: Series) -> None:
        """What had been counted of series that begin again, as those of an entity do that is deleted and created again."""
        carried = self._carried.setdefault(name, {})
        for series, value in former.items():
            if value > now.get(series, 0.0):
                carried[series] = carried.get(series, 0.0) + value

    def _forget_what_nobody_has(self) -> None:
        if sum(map(len, self._carried.values())) <= CARRIED_MAX:
            return
        for name, carried in self._carried.items():
            had = set[bytes]().union(*(counted.get(name, {}) for counted in self._counted.values()))
            self._carried[name] = {series: value for series, value in carried.items() if series in had}


def _read(text: bytes) -> dict[bytes, _Family]:
    """By name. Each begins with two lines: its help and its type."""
    found: dict[bytes, _Family] = {}
    family = _Family([])
    for line in text.splitlines():
        if line.startswith(b"# HELP "):
            family = found[line.split(b" ", 3)[2]] = _Family([line])
        elif line.startswith(b"# TYPE "):
            family.head.append(line)
            family.is_counted = line.rpartition(b" ")[2] in COUNTED
        elif line:
            series, _, value = line.rpartition(b" ")
            family.series[series] = float(value)
    return found


def _add(known: Series, found: Series, *, is_claim: bool = False) -> None:
    for series, value in found.items():
        known[series] = max(known.get(series, 0.0), value) if is_claim else known.get(series, 0.0) + value


def _lines(families: Iterable[_Family]) -> Iterable[bytes]:
    for family in families:
        yield from family.head
        for series, value in family.series.items():
            yield series + b" " + repr(value).encode()
