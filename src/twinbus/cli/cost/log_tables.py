"""How the life of a message and a comparison are shown to a person."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from twinbus.cost.amounts import change_text, money_text
from twinbus.cost.prices import PriceSheet

if TYPE_CHECKING:
    from twinbus.cost.explain import Explanation
    from twinbus.cost.what_if import Comparison

TIME_LENGTH = len("2026-11-15 07:00:00.000")


def print_explanation(console: Console, found: "Explanation", sheet: PriceSheet, left_out: Mapping[str, str]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("", "time (UTC)", "namespace", "entity", "what happened"):
        table.add_column(name)
    for name in ("bytes", "billed", "money", "at list price"):
        table.add_column(name, justify="right")
    for number, step in enumerate(found.steps, 1):
        entity = step.entity if step.fragment < 0 else f"{step.entity} (fragment {step.fragment})"
        table.add_row(
            str(number),
            f"{step.at:%Y-%m-%d %H:%M:%S.%f}"[:TIME_LENGTH],
            *(text.replace("[", "\\[") for text in (step.namespace, entity, step.meaning)),
            f"{step.bytes:,}",
            f"{step.units:,}",
            money_text(step.money),
            money_text(step.list_money),
        )
    sums = (f"{found.units:,}", money_text(found.money), money_text(found.list_money))
    table.add_row("", "together", "", "", "", "", *sums, style="bold")
    console.print(table)
    if found.was_failed_over:
        console.print("It failed over: four operations instead of two, each with its full size.")
    if found.aggregated:
        console.print(
            f"{found.aggregated:,} operations on these entities in these hours were logged as sums without message ids; "
            "steps of this message may be among them."
        )
    _print_end(console, sheet, left_out)


def print_comparison(
    console: Console, found: "Comparison", sheet: PriceSheet, other: PriceSheet, left_out: Mapping[str, str]
) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("cause", "path"):
        table.add_column(name)
    for name in ("billed", "then", "money", "then", "difference"):
        table.add_column(name, justify="right")
    table.add_column("why")
    for line in found.lines:
        amounts = (money_text(line.money), money_text(line.money_then), change_text(line.money_then - line.money))
        table.add_row(line.cause, line.path, f"{line.units:,}", f"{line.units_then:,}", *amounts, line.why)
    for name, now, then in (("base charges", found.base, found.base_then), ("together", found.money, found.money_then)):
        amounts = (money_text(now), money_text(then), change_text(then - now))
        table.add_row(name, "", "", "", *amounts, "", style="bold" if name == "together" else None)
    console.print(table)
    for note in found.notes:
        console.print(note, markup=False)
    if other != sheet:
        console.print(f"then: {other.caption}", markup=False)
    _print_end(console, sheet, left_out)


def _print_end(console: Console, sheet: PriceSheet, left_out: Mapping[str, str]) -> None:
    for name, reason in sorted(left_out.items()):
        console.print(f"skipped: {name} {reason}", markup=False)
    console.print(sheet.caption, markup=False)
