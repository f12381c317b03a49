"""A real log under other options: counts in, each line as it is and as it would be out.

    what changes                      which operations                                  by
    poll length, syphons, queues      empty receives of the syphon                      old poll / new poll, new / old count
    ping interval                     pings                                             old interval / new interval
    no pairing                        the secondary, pings, the syphon's receives        all of them go; what the syphon sent home
                                                                                        the application sends itself, later
    prices, plan                      none                                              other money for the same operations

Money of a line is at the mean price of its namespace and month; totals go through the tiers.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from twinbus.cost.deployment import seconds
from twinbus.cost.month_to_date import MonthBill, month_bill
from twinbus.cost.prices import Plan
from twinbus.cost.tiers import EXACT, ZERO, total
from twinbus.errors import ArgumentError
from twinbus.meter import log_format
from twinbus.meter.log_reader import OpenLogs
from twinbus.meter.operation import Cause, Path
from twinbus.model.pairing_limits import PING_INTERVAL_DEFAULT, PING_INTERVAL_MIN, SYPHON_POLL
from twinbus.model.paths import is_backlog_queue


class Count(NamedTuple):
    """Operations of one namespace, month, cause and path; `bytes` are those that are charged."""

    namespace: str
    month: str
    cause: str
    path: str
    units: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Counted:
    counts: Sequence[Count]
    backlog_queues: int
    """Of which the log has operations."""
    spares: frozenset[str]
    """Namespaces that hold backlog queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Options as they were and as they would be. None leaves a thing as it is."""

    poll_was: timedelta = SYPHON_POLL
    poll: timedelta | None = None
    syphons_was: int = 1
    syphons: int | None = None
    queues: int | None = None
    ping_interval_was: timedelta = PING_INTERVAL_DEFAULT
    ping_interval: timedelta | None = None
    without_pairing: bool = False

    def __post_init__(self) -> None:
        for duration in (self.poll_was, self.poll, self.ping_interval_was, self.ping_interval):
            if duration is not None and duration < PING_INTERVAL_MIN:
                raise ArgumentError("Polls and the time between pings are at least a second.")
        if self.syphons_was < 1 or (self.syphons or 0) < 0:
            raise ArgumentError("Give at least one syphon for what was, and not less than zero for what would be.")
        if self.queues is not None and self.queues < 1:
            raise ArgumentError("A pair needs at least one backlog queue.")


class Line(NamedTuple):
    cause: str
    path: str
    units: int
    units_then: int
    money: Decimal
    money_then: Decimal
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    lines: Sequence[Line]
    bills: Sequence[MonthBill]
    bills_then: Sequence[MonthBill]
    notes: Sequence[str] = ()
    """Options of the change that apply to nothing in the log."""

    @property
    def base(self) -> Decimal:
        return total(bill.base for bill in self.bills)

    @property
    def base_then(self) -> Decimal:
        return total(bill.base for bill in self.bills_then)

    @property
    def money(self) -> Decimal:
        return total(bill.money for bill in self.bills)

    @property
    def money_then(self) -> Decimal:
        return total(bill.money for bill in self.bills_then)


def count_log(logs: OpenLogs) -> Counted:
    import pyarrow.compute as pc

    keys = [log_format.NAMESPACE, log_format.CAUSE, log_format.PATH]
    rows = logs.rows([*keys, log_format.AT, log_format.ENTITY, log_format.UNITS, log_format.BYTES])
    rows = rows.append_column("month", pc.strftime(rows[log_format.AT], "%Y-%m"))
    charged = rows.filter(pc.greater(rows[log_format.UNITS], 0))
    summed = charged.group_by([log_format.NAMESPACE, "month", log_format.CAUSE, log_format.PATH]).aggregate(
        [(log_format.UNITS, "sum"), (log_format.BYTES, "sum")]
    )
    counts = [
        Count(
            row[log_format.NAMESPACE],
            row["month"],
            row[log_format.CAUSE],
            row[log_format.PATH],
            row["units_sum"],
            row["bytes_sum"],
        )
        for row in summed.to_pylist()
    ]
    places = rows.group_by([log_format.NAMESPACE, log_format.ENTITY]).aggregate([]).to_pylist()
    backlog = {
        (row[log_format.NAMESPACE], row[log_format.ENTITY])
        for row in places
        if is_backlog_queue(row[log_format.ENTITY])
    }
    return Counted(sorted(counts), len(backlog), frozenset(namespace for namespace, _ in backlog))


def what_if(counted: Counted, change: Change, plan: Plan, plan_then: Plan) -> Comparison:
    then = []
    reasons: dict[tuple[str, str], str] = {}
    for count in counted.counts:
        factor, why = _factor(count, change, counted)
        then.append(count._replace(units=ceil(count.units * factor), bytes=ceil(count.bytes * factor)))
        reasons[count.cause, count.path] = reasons.get((count.cause, count.path)) or why
    if change.without_pairing:
        then = [count for count in then if count.namespace not in counted.spares]
    bills, bills_then = _bills(counted.counts, plan), _bills(then, plan_then)
    lines, lines_then = _lines(counted.counts, bills), _lines(then, bills_then)
    order = sorted(lines, key=lambda key: -lines[key][0])
    return Comparison(
        [
            Line(*key, lines[key][0], lines_then[key][0], lines[key][1], lines_then[key][1], reasons[key])
            for key in order
        ],
        list(bills.values()),
        list(bills_then.values()),
        list(_without_effect(counted, change)),
    )


def _without_effect(counted: Counted, change: Change) -> Iterator[str]:
    instead = "To see it priced, use: twinbus cost estimate"
    has_polls = any(count.path == Path.SYPHON and count.cause == Cause.EMPTY_RECEIVE for count in counted.counts)
    if not has_polls and (change.poll, change.syphons, change.queues) != (None, None, None):
        yield f"No poll of an idle syphon is in the log: polls, syphons and queues change nothing in it. {instead}"
    if change.ping_interval is not None and not any(count.cause == Cause.PING for count in counted.counts):
        yield f"No ping is in the log: the time between pings changes nothing in it. {instead}"


def _factor(count: Count, change: Change, counted: Counted) -> tuple[Fraction, str]:
    """By how much operations change, and why."""
    if change.without_pairing and count.namespace in counted.spares:
        return Fraction(0), "no secondary namespace"
    if count.cause == Cause.PING:
        return (Fraction(0), "nobody pings") if change.without_pairing else _pings(change)
    if count.path == Path.SYPHON and count.cause == Cause.EMPTY_RECEIVE:
        return _idle_polls(change, counted)
    if change.without_pairing and count.path == Path.SYPHON:
        is_send = count.cause in (Cause.SEND, Cause.SCHEDULE)
        return (Fraction(1), "sent by the application itself") if is_send else (Fraction(0), "no syphon")
    return Fraction(1), ""


def _pings(change: Change) -> tuple[Fraction, str]:
    if change.ping_interval is None:
        return Fraction(1), ""
    was, then = seconds(change.ping_interval_was), seconds(change.ping_interval)
    return was / then, f"× {float(was):g} s / {float(then):g} s between pings"


def _idle_polls(change: Change, counted: Counted) -> tuple[Fraction, str]:
    factor, reasons = Fraction(1), []
    if change.poll is not None:
        was, then = seconds(change.poll_was), seconds(change.poll)
        factor *= was / then
        reasons.append(f"× {float(was):g} s / {float(then):g} s of poll")
    if change.syphons is not None:
        factor *= Fraction(change.syphons, change.syphons_was)
        reasons.append(f"× {change.syphons} / {change.syphons_was} syphons")
    if change.queues is not None and counted.backlog_queues:
        factor *= Fraction(change.queues, counted.backlog_queues)
        reasons.append(f"× {change.queues} / {counted.backlog_queues} backlog queues")
    return factor, " ".join(reasons)


def _bills(counts: Sequence[Count], plan: Plan) -> dict[tuple[str, str], MonthBill]:
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for count in counts:
        sums[count.namespace, count.month][0] += count.units
        sums[count.namespace, count.month][1] += count.bytes
    return {key: month_bill(*key, units, size, plan) for key, (units, size) in sorted(sums.items())}


def _lines(
    counts: Sequence[Count], bills: Mapping[tuple[str, str], MonthBill]
) -> dict[tuple[str, str], tuple[int, Decimal]]:
    """Units and money by cause and path; what is not there has none."""
    lines: dict[tuple[str, str], tuple[int, Decimal]] = defaultdict(lambda: (0, ZERO))
    for count in counts:
        bill = bills[count.namespace, count.month]
        money = EXACT.add(
            _share(bill.operations_money, count.units, bill.units),
            _share(bill.bandwidth_money, count.bytes, bill.bytes),
        )
        units, before = lines[count.cause, count.path]
        lines[count.cause, count.path] = (units + count.units, EXACT.add(before, money))
    return lines


def _share(money: Decimal, part: int, whole: int) -> Decimal:
    return EXACT.divide(EXACT.multiply(money, Decimal(part)), Decimal(whole)) if whole else ZERO
