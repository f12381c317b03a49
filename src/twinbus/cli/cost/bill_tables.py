"""The summary of a month on a terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from twinbus.cost.amounts import money_text
from twinbus.cost.summary import Sum, Summary

ENTITIES_SHOWN = 10
SUM_HEADS = ("operations", "messages", "MB", "billed", "money", "at list price")


def print_bill(console: Console, summary: Summary) -> None:
    console.print(f"Bill of {summary.month}: plan {summary.plan.name}, {summary.sheet.caption}\n", markup=False)
    _print_namespaces(console, summary)
    _print_sums(console, "By cause", "cause", summary.causes.items(), summary)
    entities = [
        (f"{namespace}: {entity or '(the namespace itself)'}", each)
        for (namespace, entity), each in list(summary.entities.items())[:ENTITIES_SHOWN]
    ]
    _print_sums(console, "Most expensive entities", "entity", entities, summary)
    if summary.outage.hours:
        _print_outage(console, summary)
    _print_idle(console, summary)
    for skew in summary.skews:
        console.print(f"{skew.entity}: the fullest fragment has {skew.ratio:f} times the mean", markup=False)


def _print_namespaces(console: Console, summary: Summary) -> None:
    heads = ("billed", "charged", "MB", "for operations", "for bandwidth", "base", "money")
    table = _table("What the month costs", "namespace", heads)
    for bill in summary.month_bills:
        charged = sum(share.units for share in bill.shares if share.tier.price)
        counts = (f"{bill.units:,}", f"{charged:,}", _megabytes(bill.bytes))
        amounts = (bill.operations_money, bill.bandwidth_money, bill.base, bill.money)
        table.add_row(_plain(bill.namespace), *counts, *map(money_text, amounts))
    table.add_row("all", *[""] * 6, money_text(summary.money), style="bold")
    console.print(table)
    console.print()


def _print_outage(console: Console, summary: Summary) -> None:
    outage = summary.outage
    rows = (
        ("sends to backlog", outage.sends_to_backlog),
        ("receives from backlog", outage.receives_from_backlog),
        ("sends home", outage.sends_home),
        ("pings", outage.pings),
        ("idle polls of syphons", outage.idle_polls),
    )
    _print_sums(console, "What the outage cost", "step", rows, summary)
    console.print(
        f"{outage.extra_units:,} more operations than without an outage: {money_text(outage.extra_money)}, "
        f"{money_text(summary.list_money(outage.extra_units))} at the list price\n",
        markup=False,
    )


def _print_idle(console: Console, summary: Summary) -> None:
    useful = sum(point.receives for point in summary.series)
    empty = sum(point.empty_receives for point in summary.series)
    if useful + empty:
        console.print(f"{empty:,} of {useful + empty:,} receives were empty ({empty / (useful + empty):.1%})")


def _print_sums(console: Console, title: str, name: str, rows: Iterable[tuple[str, Sum]], summary: Summary) -> None:
    table = _table(title, name, SUM_HEADS)
    for label, each in rows:
        counts = (f"{each.operations:,}", f"{each.messages:,}", _megabytes(each.bytes), f"{each.units:,}")
        table.add_row(_plain(label), *counts, money_text(each.money), money_text(summary.list_money(each.units)))
    console.print(table)
    console.print()


def _table(title: str, name: str, heads: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column(name)
    for head in heads:
        table.add_column(head, justify="right")
    return table


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.1f}"


def _plain(text: str) -> str:
    """Rich reads brackets as markup, and names may contain them."""
    return text.replace("[", "\\[")
