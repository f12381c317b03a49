"""Everything a report shows comes from one summary; the page has every figure of the JSON document."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from html import unescape
from typing import Any

import pytest

from tests.cost.made_logs import PRIMARY, SECONDARY, busy_hours, counted, idle_polls, millis, outage
from twinbus.cost.bill_rows import CauseRow, EntityRow
from twinbus.cost.month_to_date import HourCount, hour_prices, month_bills
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.cost.report_html import report_page
from twinbus.cost.summary import Summary, summarize
from twinbus.cost.summary_document import summary_document
from twinbus.meter.operation import Operation
from twinbus.model.descriptions import FRAGMENT_COUNT

SHEET = read_price_sheet(None)
PLAN = SHEET.plan("basic")
START = millis("2026-11-15 06:00")
TO_PRIMARY, TO_SECONDARY = outage(START + 3_600_000, messages=40)
OPERATIONS = {
    PRIMARY: [*busy_hours(START, 3, seed=5), *TO_PRIMARY],
    SECONDARY: [*idle_polls(START, 3), *TO_SECONDARY],
}


def summary_of(operations: dict[str, list[Operation]]) -> Summary:
    """Rows made one by one from operations, at the prices of their hours."""
    rows = [
        (namespace, each, 6 + (each.at - START) // 3_600_000) for namespace, own in operations.items() for each in own
    ]
    hours = [
        HourCount(name, "2026-11-15", hour, each.units, each.size if each.units else 0) for name, each, hour in rows
    ]
    summed = [
        HourCount(name, date, hour, *(sum(column) for column in zip(*(each[3:] for each in hours if each[:3] == key), strict=True)))
        for key in sorted({each[:3] for each in hours})
        for name, date, hour in [key]
    ]  # fmt: skip
    price = {(each.namespace, each.hour): each for each in hour_prices(summed, PLAN)}
    causes = [
        CauseRow(
            name, "2026-11-15", hour, each.cause, each.path, each.operations, each.messages, each.size, each.units,
            each.units * price[name, hour].unit_price, (each.size if each.units else 0) * price[name, hour].byte_price,
        )
        for name, each, hour in rows
    ]  # fmt: skip
    entities = [
        EntityRow(
            name, each.entity, "queue", each.fragment, each.operations, each.messages, each.size, each.units, Decimal(0)
        )
        for name, each, _ in rows
    ]
    return summarize("2026-11", SHEET, PLAN, month_bills(summed, PLAN), causes, entities)


SUMMARY = summary_of(OPERATIONS)


@pytest.mark.rule("D5")
def test_the_total_is_the_count_of_all_operations() -> None:
    expected = counted([*OPERATIONS[PRIMARY], *OPERATIONS[SECONDARY]])
    total = SUMMARY.total
    assert expected == {
        "operations": total.operations,
        "messages": total.messages,
        "bytes": total.bytes,
        "units": total.units,
    }
    assert sum(each.units for each in SUMMARY.causes.values()) == total.units
    assert sum(each.units for each in SUMMARY.paths.values()) == total.units


def test_money_of_the_causes_adds_up_to_the_bill_without_its_base() -> None:
    spread = sum(each.money for each in SUMMARY.causes.values())
    assert round(spread, 9) == round(SUMMARY.money - sum(bill.base for bill in SUMMARY.month_bills), 9)


@pytest.mark.rule("D4")
def test_an_outage_costs_two_operations_more_a_message_and_the_pings() -> None:
    found = SUMMARY.outage
    assert found.hours == ["2026-11-15 07:00"]
    assert (found.sends_to_backlog.units, found.receives_from_backlog.units, found.sends_home.units) == (40, 40, 40)
    assert found.pings.units == 5
    assert found.extra_units == 2 * 40 + 5


@pytest.mark.rule("D2")
def test_idle_polls_of_the_syphon_are_counted_apart_from_those_of_the_application() -> None:
    assert SUMMARY.outage.idle_polls.units == 3 * 40
    assert sum(point.empty_receives for point in SUMMARY.series) > 3 * 40


def entity_rows(*messages: tuple[str, int, int]) -> list[EntityRow]:
    """By entity, fragment and count of messages."""
    return [EntityRow("a", name, "queue", fragment, n, n, n, n, Decimal(0)) for name, fragment, n in messages]


@pytest.mark.parametrize(
    ("rows", "ratio"),
    [
        ([("events", fragment, 10) for fragment in range(16)], Decimal(1)),
        ([("events", 3, 10)], Decimal(16)),
        ([("events", 0, 10), ("events", 5, 30)], Decimal(12)),
    ],
)
def test_skew_is_the_fullest_fragment_over_the_mean_of_all_sixteen(
    rows: list[tuple[str, int, int]], ratio: Decimal
) -> None:
    [skew] = summarize("2026-11", SHEET, PLAN, [], [], entity_rows(*rows)).skews
    assert skew.ratio == ratio
    assert list(skew.messages) == list(range(FRAGMENT_COUNT))


def test_an_ordinary_entity_has_no_skew() -> None:
    assert not summarize("2026-11", SHEET, PLAN, [], [], entity_rows(("orders", 0, 10), ("orders", -1, 5))).skews


def test_a_series_is_by_day_where_there_are_many_hours() -> None:
    rows = [
        CauseRow("a", f"2026-11-{day:02}", hour, "send", "primary", 1, 1, 1, 1, Decimal(0), Decimal(0))
        for day in range(1, 4)
        for hour in range(24)
    ]
    assert [point.at for point in summarize("2026-11", SHEET, PLAN, [], rows, []).series] == [
        "2026-11-01",
        "2026-11-02",
        "2026-11-03",
    ]
    assert len(summarize("2026-11", SHEET, PLAN, [], rows[:48], []).series) == 48


def figures(value: Any) -> Iterator[str]:
    """Every number of a document, as text: counts, and money, which is text already."""
    if isinstance(value, dict):
        for each in value.values():
            yield from figures(each)
    elif isinstance(value, list):
        for each in value:
            yield from figures(each)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
        yield value


def test_the_page_has_every_figure_of_the_document() -> None:
    earlier = month_bills([HourCount(PRIMARY, "2026-10-01", 0, 77_777_777, 123_456_789)], PLAN)
    summary = replace(SUMMARY, bills=[*SUMMARY.bills, *earlier])
    page = report_page(summary, {})
    shown = set(re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d)", "", re.sub(r"<[^>]*>", " ", page))))
    wanted = set(figures(json.loads(json.dumps(summary_document(summary)))))
    assert len(wanted) > 50
    assert wanted - shown == set()


def test_the_page_needs_nothing_from_elsewhere_and_has_no_script() -> None:
    page = report_page(SUMMARY, {"a.parquet": "is <no> whole file"})
    assert not re.findall(r"https?:|<script|<link|@import|url\(|src=", page)
    assert "is &lt;no&gt; whole file" in page
    assert page.count("<svg") == page.count("</svg>") == 3 + len(SUMMARY.skews)


def test_names_cannot_change_the_page() -> None:
    row = EntityRow("<b>", "x</td><script>", "queue", 0, 1, 1, 1, 1, Decimal(0))
    cause = CauseRow("<b>", "2026-11-15", 1, "<i>", "primary", 1, 1, 1, 1, Decimal(0), Decimal(0))
    page = report_page(summarize("2026-11", SHEET, PLAN, [], [cause], [row, row._replace(fragment=1)]), {})
    assert "<script" not in page
    assert "<i>" not in page
    assert "x</td><script>" in unescape(page)


def test_an_example_sheet_is_never_taken_for_a_bill() -> None:
    assert "an example, not today" in report_page(SUMMARY, {})
