"""What the operations and bytes of each hour cost: counts of hours in, prices of hours out.

Tiers count a namespace's month from its first hour on, in UTC. All operations of one hour pay the mean price of that hour:
which of them came before an edge that the hour crosses is a matter of milliseconds, and nobody's fault.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from twinbus.cost.prices import Plan
from twinbus.cost.tiers import Share, cost, mean_price, split, total


class HourCount(NamedTuple):
    """`date` is YYYY-MM-DD and `hour` from 0 to 23, both in UTC."""

    namespace: str
    date: str
    hour: int
    units: int
    bytes: int

    @property
    def month(self) -> str:
        return self.date[:7]


class HourPrice(NamedTuple):
    namespace: str
    date: str
    hour: int
    unit_price: Decimal
    byte_price: Decimal


@dataclass(frozen=True, slots=True)
class MonthBill:
    """One namespace and month, or another period that is priced as a month; exact."""

    namespace: str
    month: str
    units: int
    bytes: int
    shares: Sequence[Share]
    operations_money: Decimal
    bandwidth_money: Decimal
    base: Decimal

    @property
    def money(self) -> Decimal:
        return total((self.operations_money, self.bandwidth_money, self.base))


def hour_prices(counts: Iterable[HourCount], plan: Plan) -> Iterator[HourPrice]:
    """For every hour there is, in the order of namespaces and time."""
    for hours in _months(counts).values():
        units = size = 0
        for hour in hours:
            unit_price = mean_price(plan.operations, units, hour.units)
            byte_price = mean_price(plan.bandwidth, size, hour.bytes)
            yield HourPrice(hour.namespace, hour.date, hour.hour, unit_price, byte_price)
            units += hour.units
            size += hour.bytes


def month_bills(counts: Iterable[HourCount], plan: Plan) -> list[MonthBill]:
    return [
        month_bill(namespace, month, sum(hour.units for hour in hours), sum(hour.bytes for hour in hours), plan)
        for (namespace, month), hours in _months(counts).items()
    ]


def month_bill(namespace: str, month: str, units: int, size: int, plan: Plan) -> MonthBill:
    shares = split(plan.operations, 0, units)
    money = total(share.money for share in shares)
    return MonthBill(namespace, month, units, size, shares, money, cost(plan.bandwidth, 0, size), plan.base_per_month)


def _months(counts: Iterable[HourCount]) -> Mapping[tuple[str, str], list[HourCount]]:
    months: dict[tuple[str, str], list[HourCount]] = defaultdict(list)
    for count in sorted(counts):
        months[count.namespace, count.month].append(count)
    return months
