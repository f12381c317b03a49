"""The bill before it happens: a deployment and a price sheet in, operations and money with the formula behind each out.

    primary                                            secondary
      sends, receives          all the time              idle receives of syphons     all the time
      pings                    in an outage              sends to backlog             until it is noticed to be over
      sends home, receives     after it                  receives from backlog        after it

A failed-over message is four operations instead of two, and its bytes count in each leg (docs/contract.md, D2 to D4). Money of a
line is at the list price, the first that is not free; the bill of 30 days goes through the tiers, for each namespace.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from math import ceil

from twinbus.cost.deployment import HOUR_S, Deployment, seconds
from twinbus.cost.month_to_date import MonthBill, month_bill
from twinbus.cost.prices import Plan
from twinbus.cost.tiers import EXACT, total
from twinbus.meter.operation import units_of
from twinbus.model.pairing_limits import SET_ASIDE_SIZE

HOURS_A_DAY = 24
HOURS_IN_30_DAYS = 720
PERIOD = "30 days"


class Namespace(StrEnum):
    PRIMARY = "primary"
    SECONDARY = "secondary"


class When(StrEnum):
    ALWAYS = "always"
    HEALTHY = "while the primary answers"
    OUTAGE = "in an outage"


@dataclass(frozen=True, slots=True)
class Line:
    """One kind of operation: how many an hour while it lasts, and in one outage."""

    name: str
    namespace: Namespace
    when: When
    formula: str
    per_hour: Fraction
    in_outage: int
    size: int
    """Bytes of one message; 0 for operations without a message."""
    units: int
    """Operations that one message counts as."""

    def operations(self, hours: int) -> Fraction:
        return self.per_hour * hours

    def bytes_of(self, operations: Fraction | int) -> Fraction:
        return Fraction(operations) / self.units * self.size


@dataclass(frozen=True, slots=True)
class Estimate:
    deployment: Deployment
    plan: Plan
    lines: Sequence[Line]
    bills: Sequence[MonthBill]
    """Of each namespace, for 30 days with one outage in them, through the tiers."""

    def list_money(self, operations: Fraction | int) -> Decimal:
        """Operations at the first price that is not free."""
        tier = self.plan.list_price
        exact = Fraction(operations) * Fraction(tier.price) / tier.per
        return EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))

    def in_period(self, line: Line, hours: Fraction | int) -> Fraction:
        """Operations of a line in this many hours, including the one outage."""
        return _in_period(line, self.deployment, Fraction(hours))

    @property
    def money(self) -> Decimal:
        return total(bill.money for bill in self.bills)


def estimate(deployment: Deployment, plan: Plan) -> Estimate:
    lines = [*_idle(deployment), *_traffic(deployment), *_pings(deployment), *_failed_over(deployment)]
    bills = [_bill(namespace, lines, deployment, plan) for namespace in Namespace]
    return Estimate(deployment, plan, lines, bills)


def _idle(given: Deployment) -> Iterator[Line]:
    queues, syphons, poll = given.backlog_queues, given.syphons, seconds(given.poll)
    per_hour = queues * syphons * Fraction(HOUR_S) / poll
    formula = f"{_many(queues, 'backlog queue')} × {_many(syphons, 'syphon')} × 3,600 s / {_text(poll)} s of poll"
    # Also in an outage: a poll that brings messages is charged for them instead, and the next one waits again.
    yield Line("idle receives", Namespace.SECONDARY, When.ALWAYS, formula, per_hour, 0, size=0, units=1)


def _traffic(given: Deployment) -> Iterator[Line]:
    units = units_of(given.size)
    formula = f"{_text(given.rate)} messages/s × 3,600 s × {_units(units)}"
    for name in ("sends", "receives"):
        per_hour = given.rate * HOUR_S * units
        yield Line(name, Namespace.PRIMARY, When.HEALTHY, formula, per_hour, 0, given.size, units)


def _pings(given: Deployment) -> Iterator[Line]:
    interval, pingers = seconds(given.ping_interval), given.entities * given.processes
    formula = (
        f"{_many(given.entities, 'entity', 'entities')} × {_many(given.processes, 'process', 'processes')} "
        f"× 3,600 s / {_text(interval)} s between pings"
    )
    in_outage = pingers * given.pings_in_outage
    per_hour = pingers * Fraction(HOUR_S) / interval
    yield Line("pings", Namespace.PRIMARY, When.OUTAGE, formula, per_hour, in_outage, size=0, units=1)


def _failed_over(given: Deployment) -> Iterator[Line]:
    """The four legs; the first two carry what rewriting adds."""
    rewritten = given.size + SET_ASIDE_SIZE
    for name, namespace, size in (
        ("sends to backlog", Namespace.SECONDARY, rewritten),
        ("receives from backlog", Namespace.SECONDARY, rewritten),
        ("sends home", Namespace.PRIMARY, given.size),
        ("receives at home", Namespace.PRIMARY, given.size),
    ):
        units = units_of(size)
        formula = f"{_text(given.rate)} messages/s × 3,600 s × {_units(units)}"
        in_outage = given.failed_over_messages * units
        yield Line(name, namespace, When.OUTAGE, formula, given.rate * HOUR_S * units, in_outage, size, units)


def _bill(namespace: Namespace, lines: Sequence[Line], given: Deployment, plan: Plan) -> MonthBill:
    own = [(line, _in_period(line, given, Fraction(HOURS_IN_30_DAYS))) for line in lines if line.namespace is namespace]
    operations = ceil(sum(count for _, count in own))
    size = ceil(sum(line.bytes_of(count) for line, count in own))
    return month_bill(namespace, PERIOD, operations, size, plan)


def _in_period(line: Line, given: Deployment, hours: Fraction) -> Fraction:
    match line.when:
        case When.ALWAYS:
            return line.per_hour * hours
        case When.HEALTHY:
            healthy_s = max(Fraction(0), hours * HOUR_S - given.unhealthy_s)
            return line.per_hour / HOUR_S * healthy_s
        case When.OUTAGE:
            return Fraction(line.in_outage)


def _many(count: int, one: str, several: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def _units(units: int) -> str:
    return "1 operation" if units == 1 else f"{units} operations (64 KB each)"


def _text(number: Fraction) -> str:
    return f"{number.numerator:,}" if number.denominator == 1 else f"{float(number):,.3f}".rstrip("0")
