"""Tiers count a namespace's month from its first hour on."""

from decimal import Decimal

import pytest

from twinbus.cost.month_to_date import HourCount, hour_prices, month_bills
from twinbus.cost.price_sheet_file import read_price_sheet

PLAN = read_price_sheet(None).plan("standard")
MILLION = 1_000_000


def test_hours_before_the_edge_are_free_and_those_behind_it_are_not() -> None:
    hours = [HourCount("a", "2026-11-01", hour, 10 * MILLION, 0) for hour in range(3)]
    prices = [price.unit_price for price in hour_prices(hours, PLAN)]
    # Of the second hour, 3 of 10 million were included still.
    assert prices == [0, Decimal("0.00000056"), Decimal("0.0000008")]


@pytest.mark.rule("D5")
def test_money_of_the_hours_adds_up_to_the_bill_of_the_month() -> None:
    hours = [HourCount("a", f"2026-11-{day:02}", hour, 7 * MILLION, 10**9) for day in range(1, 4) for hour in range(24)]
    (bill,) = month_bills(hours, PLAN)
    spread = sum(price.unit_price * 7 * MILLION for price in hour_prices(hours, PLAN))
    assert round(spread, 12) == bill.operations_money == Decimal("271.6")
    assert round(sum(price.byte_price * 10**9 for price in hour_prices(hours, PLAN)), 12) == round(
        bill.bandwidth_money, 12
    )


def test_a_month_begins_anew_and_so_does_another_namespace() -> None:
    hours = [
        HourCount("a", "2026-11-30", 23, 14 * MILLION, 0),
        HourCount("a", "2026-12-01", 0, 14 * MILLION, 0),
        HourCount("b", "2026-11-30", 23, 14 * MILLION, 0),
    ]
    bills = {(bill.namespace, bill.month): bill.operations_money for bill in month_bills(hours, PLAN)}
    assert bills == dict.fromkeys([("a", "2026-11"), ("a", "2026-12"), ("b", "2026-11")], Decimal("0.8"))


def test_the_order_in_which_hours_are_given_does_not_matter() -> None:
    hours = [HourCount("a", "2026-11-01", hour, 6 * MILLION, 0) for hour in range(5)]
    assert list(hour_prices(hours, PLAN)) == list(hour_prices(reversed(hours), PLAN))


def test_a_month_without_operations_costs_its_base() -> None:
    (bill,) = month_bills([HourCount("a", "2026-11-01", 0, 0, 0)], PLAN)
    assert bill.money == Decimal(10)
