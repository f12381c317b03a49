"""How an estimate is shown: as one JSON document, or as tables for a person."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinbus.cost.amounts import count_text, count_value, money_text, money_value
from twinbus.cost.estimate import HOURS_A_DAY, HOURS_IN_30_DAYS, Estimate, Line, When
from twinbus.cost.month_to_date import MonthBill
from twinbus.cost.prices import PriceSheet

PERIODS = (("hour", 1), ("day", HOURS_A_DAY), ("30 days", HOURS_IN_30_DAYS))


def estimate_document(result: Estimate, sheet: PriceSheet, warnings: Sequence[str]) -> dict[str, Any]:
    return {
        "prices": {
            "sheet": sheet.name,
            "as_of": sheet.as_of.isoformat(),
            "currency": sheet.currency,
            "is_example": sheet.is_example,
            "plan": result.plan.name,
        },
        "failed_over_messages": result.deployment.failed_over_messages,
        "lines": [_line_record(line, result) for line in result.lines],
        "bills_of_30_days": [_bill_record(bill) for bill in result.bills],
        "money_of_30_days": money_value(result.money),
        "warnings": list(warnings),
    }


def _line_record(line: Line, result: Estimate) -> dict[str, Any]:
    periods = {
        name.replace("30 days", "days_30"): {
            "operations": count_value(line.operations(hours)),
            "bytes": count_value(line.bytes_of(line.operations(hours))),
            "money": money_value(result.list_money(line.operations(hours))),
        }
        for name, hours in PERIODS
    }
    return {
        "name": line.name,
        "namespace": line.namespace.value,
        "when": line.when.value,
        "formula_of_an_hour": line.formula,
        **periods,
        "in_outage": {
            "operations": line.in_outage,
            "bytes": count_value(line.bytes_of(line.in_outage)),
            "money": money_value(result.list_money(line.in_outage)),
        },
    }


def _bill_record(bill: MonthBill) -> dict[str, Any]:
    return {
        "namespace": bill.namespace,
        "operations": bill.units,
        "bytes": bill.bytes,
        "tiers": [
            {
                "from": share.starts_at,
                "operations": share.units,
                "per_million": money_value(share.tier.price),
                "money": money_value(share.money),
            }
            for share in bill.shares
        ],
        "operations_money": money_value(bill.operations_money),
        "bandwidth_money": money_value(bill.bandwidth_money),
        "base": money_value(bill.base),
        "money": money_value(bill.money),
    }


def print_estimate(console: Console, result: Estimate, sheet: PriceSheet, warnings: Sequence[str]) -> None:
    list_price = result.plan.list_price
    console.print(f"Plan {result.plan.name}, {sheet.caption}", markup=False)
    console.print(
        f"Costs are at the list price, {money_text(list_price.price)} per million operations.\n", markup=False
    )
    lines = [line for line in result.lines if line.when is not When.OUTAGE]
    _print_lines(console, "Always", lines, result, is_outage=False)
    outage = [line for line in result.lines if line.when is When.OUTAGE]
    _print_lines(
        console, f"While the primary is unavailable ({result.deployment.outage})", outage, result, is_outage=True
    )
    _print_bills(console, result)
    for warning in warnings:
        console.print(Text("expensive: ", style="bold yellow").append(Text(warning, style="default")))


def _print_lines(console: Console, title: str, lines: Sequence[Line], result: Estimate, *, is_outage: bool) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("operations")
    for name, _ in PERIODS:
        table.add_column(name, justify="right")
    for name, _ in PERIODS:
        table.add_column(f"money, {name}", justify="right")
    if is_outage:
        table.add_column("this outage", justify="right")
        table.add_column("money", justify="right")
    table.add_column("formula per hour")
    for line in lines:
        cells = [line.name, *(count_text(line.operations(hours)) for _, hours in PERIODS)]
        cells += [money_text(result.list_money(line.operations(hours))) for _, hours in PERIODS]
        if is_outage:
            cells += [count_text(line.in_outage), money_text(result.list_money(line.in_outage))]
        table.add_row(*cells, line.formula)
    console.print(table)
    console.print()


def _print_bills(console: Console, result: Estimate) -> None:
    title = "Bill of 30 days with this outage"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("namespace")
    for name in ("operations", "charged", "MB", "for operations", "for bandwidth", "base", "money"):
        table.add_column(name, justify="right")
    for bill in result.bills:
        charged = sum(share.units for share in bill.shares if share.tier.price)
        amounts = (bill.operations_money, bill.bandwidth_money, bill.base, bill.money)
        size = f"{bill.bytes / 2**20:,.1f}"
        table.add_row(bill.namespace, count_text(bill.units), count_text(charged), size, *map(money_text, amounts))
    table.add_row("both", "", "", "", "", "", "", money_text(result.money), style="bold")
    console.print(table)
    console.print()
