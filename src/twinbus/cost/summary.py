"""The bill of a month in a nutshell: priced rows in, the tables and series of the report out, as values.

Everything that a report shows, on a terminal, as JSON or as HTML, is in here, so that they cannot differ. Money of lines
includes bandwidth and excludes the base charge; `list_money` is what the operations would cost if none were included.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeVar

from twinbus.cost.bill_rows import CauseRow, EntityRow
from twinbus.cost.month_to_date import MonthBill
from twinbus.cost.prices import Plan, PriceSheet
from twinbus.cost.tiers import ZERO, total
from twinbus.meter.operation import NO_FRAGMENT, Cause, Path
from twinbus.model.descriptions import FRAGMENT_COUNT

RowT = TypeVar("RowT", CauseRow, EntityRow)
KeyT = TypeVar("KeyT")

ENTITIES_SHOWN_MAX = 20
SKEWS_SHOWN_MAX = 6
HOURS_SHOWN_MAX = 48
"""A series is by hour up to that many of them and by day beyond."""


@dataclass(slots=True)
class Sum:
    operations: int = 0
    messages: int = 0
    bytes: int = 0
    units: int = 0
    money: Decimal = ZERO

    def add(self, row: CauseRow | EntityRow) -> None:
        self.operations += row.operations
        self.messages += row.messages
        self.bytes += row.bytes
        self.units += row.units
        self.money += row.money


@dataclass(frozen=True, slots=True)
class Skew:
    """How evenly a partitioned entity uses its fragments: messages of each, by number, also of those that had none."""

    namespace: str
    entity: str
    messages: Mapping[int, int]

    @property
    def ratio(self) -> Decimal:
        """The fullest fragment over the mean: 1 is even, 16 all in one."""
        mean = Decimal(sum(self.messages.values())) / len(self.messages)
        return round(max(self.messages.values()) / mean, 2) if mean else Decimal(0)


@dataclass(frozen=True, slots=True)
class Outage:
    """What failing over cost: two operations more for each message, the pings, and the polls that keep a syphon ready."""

    hours: Sequence[str]
    sends_to_backlog: Sum
    receives_from_backlog: Sum
    sends_home: Sum
    pings: Sum
    idle_polls: Sum

    @property
    def extra_units(self) -> int:
        """What a primary that never failed would not have cost."""
        return self.sends_to_backlog.units + self.receives_from_backlog.units + self.pings.units

    @property
    def extra_money(self) -> Decimal:
        return self.sends_to_backlog.money + self.receives_from_backlog.money + self.pings.money


@dataclass(frozen=True, slots=True)
class Point:
    """One hour or day of the series."""

    at: str
    causes: Mapping[str, Sum]
    receives: int
    empty_receives: int


@dataclass(frozen=True, slots=True)
class Summary:
    month: str
    sheet: PriceSheet
    plan: Plan
    bills: Sequence[MonthBill]
    """Of every month there is; those of `month` first."""
    total: Sum = field(default_factory=Sum)
    causes: Mapping[str, Sum] = field(default_factory=dict)
    paths: Mapping[str, Sum] = field(default_factory=dict)
    entities: Mapping[tuple[str, str], Sum] = field(default_factory=dict)
    entities_left_out: int = 0
    skews: Sequence[Skew] = ()
    series: Sequence[Point] = ()
    outage: Outage = field(default_factory=lambda: Outage((), Sum(), Sum(), Sum(), Sum(), Sum()))

    @property
    def month_bills(self) -> list[MonthBill]:
        return [bill for bill in self.bills if bill.month == self.month]

    @property
    def money(self) -> Decimal:
        """The month's bill: operations, bandwidth and base charges of all namespaces."""
        return total(bill.money for bill in self.month_bills)

    def list_money(self, units: int) -> Decimal:
        return self.plan.list_price.cost(units)


def summarize(
    month: str,
    sheet: PriceSheet,
    plan: Plan,
    bills: Sequence[MonthBill],
    causes: Sequence[CauseRow],
    entities: Sequence[EntityRow],
) -> Summary:
    by_entity = _sums(entities, lambda row: (row.namespace, row.entity))
    shown = dict(list(by_entity.items())[:ENTITIES_SHOWN_MAX])
    return Summary(
        month,
        sheet,
        plan,
        sorted(bills, key=lambda bill: (bill.month != month, bill.month, bill.namespace)),
        total=_sum(causes),
        causes=_sums(causes, lambda row: row.cause),
        paths=_sums(causes, lambda row: row.path),
        entities=shown,
        entities_left_out=len(by_entity) - len(shown),
        skews=_skews(entities, list(by_entity)),
        series=_series(causes),
        outage=_outage(causes),
    )


def _sum(rows: Iterable[CauseRow]) -> Sum:
    result = Sum()
    for row in rows:
        result.add(row)
    return result


def _sums(rows: Iterable[RowT], key: Callable[[RowT], KeyT]) -> dict[KeyT, Sum]:
    """Dearest first; equal ones by name."""
    sums: dict[KeyT, Sum] = defaultdict(Sum)
    for row in rows:
        sums[key(row)].add(row)
    return dict(sorted(sums.items(), key=lambda item: (-item[1].units, -item[1].operations, str(item[0]))))


def _skews(rows: Sequence[EntityRow], order: Sequence[tuple[str, str]]) -> list[Skew]:
    fragments: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row.fragment != NO_FRAGMENT:
            fragments[row.namespace, row.entity][row.fragment] += row.messages
    # One that only ever used its first fragment looks like an ordinary entity here.
    partitioned = [name for name in order if any(fragments.get(name, ()))]
    return [
        Skew(*name, {fragment: fragments[name].get(fragment, 0) for fragment in range(FRAGMENT_COUNT)})
        for name in partitioned[:SKEWS_SHOWN_MAX]
    ]


def _series(rows: Sequence[CauseRow]) -> list[Point]:
    hours = {(row.date, row.hour) for row in rows}
    by_hour = len(hours) <= HOURS_SHOWN_MAX
    points: dict[str, list[CauseRow]] = defaultdict(list)
    for row in rows:
        points[hour_text(row) if by_hour else row.date].append(row)
    return [
        Point(
            at,
            _sums(of_point, lambda row: row.cause),
            receives=sum(row.units for row in of_point if row.cause == Cause.RECEIVE),
            empty_receives=sum(row.units for row in of_point if row.cause == Cause.EMPTY_RECEIVE),
        )
        for at, of_point in sorted(points.items())
    ]


def _outage(rows: Sequence[CauseRow]) -> Outage:
    sends = (Cause.SEND, Cause.SCHEDULE)
    to_backlog = [row for row in rows if row.path == Path.BACKLOG and row.cause in sends]
    pings = [row for row in rows if row.cause == Cause.PING]
    syphon = [row for row in rows if row.path == Path.SYPHON]
    return Outage(
        hours=sorted({hour_text(row) for row in (*to_backlog, *pings)}),
        sends_to_backlog=_sum(to_backlog),
        receives_from_backlog=_sum(row for row in syphon if row.cause == Cause.RECEIVE),
        sends_home=_sum(row for row in syphon if row.cause in sends),
        pings=_sum(pings),
        idle_polls=_sum(row for row in syphon if row.cause == Cause.EMPTY_RECEIVE),
    )


def hour_text(row: CauseRow) -> str:
    return f"{row.date} {row.hour:02}:00"
