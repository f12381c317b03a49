"""The report of a month: a ledger in; a summary, and the same as HTML and JSON files, out."""

import json
import re
from pathlib import Path
from typing import Any

from twinbus.cost.bill_rows import CauseRow, EntityRow
from twinbus.cost.month_to_date import month_bills
from twinbus.cost.prices import Plan, PriceSheet
from twinbus.cost.report_html import report_page
from twinbus.cost.summary import Summary, summarize
from twinbus.cost.summary_document import summary_document
from twinbus.errors import ArgumentError
from twinbus.pipeline.bill.job import Ledger
from twinbus.pipeline.bill.part_files import read_parts

MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


def require_month(text: str) -> None:
    """Raises ArgumentError."""
    if MONTH.fullmatch(text) is None:
        raise ArgumentError(f"--month: '{text}' is not a month. Write it like 2026-11.")


def summary_of(ledger: Ledger, out: Path, sheet: PriceSheet, plan: Plan, month: str | None) -> Summary | None:
    """Of the newest month if none is given; None where nothing was ever logged."""
    bills = month_bills(ledger.hours, plan)
    months = sorted({bill.month for bill in bills})
    if not months:
        return None
    chosen = month or months[-1]
    if chosen not in months:
        raise ArgumentError(f"The log has nothing for {chosen}. Months with operations: {', '.join(months)}.")
    return summarize(chosen, sheet, plan, bills, cause_rows(out, chosen), entity_rows(out, chosen))


def write_report(summary: Summary, ledger: Ledger, out: Path) -> Path:
    """Both files; returns where the page is."""
    page = out / f"report-{summary.month}.html"
    left_out = {**ledger.intake.unusable, **ledger.intake.held_back}
    document = {**summary_document(summary), "left_out": left_out}
    page.write_text(report_page(summary, left_out), encoding="utf-8")
    page.with_suffix(".json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return page


ENTITY_SUMS = ("operations", "messages", "bytes", "units", "operations_money", "bandwidth_money")


def cause_rows(out: Path, month: str) -> list[CauseRow]:
    table = read_parts(out / "causes", f"date={month}-*").select(list(CauseRow._fields))
    return [CauseRow(**row) for row in table.to_pylist()]


def entity_rows(out: Path, month: str) -> list[EntityRow]:
    table = read_parts(out / "monthly", f"month={month}")
    keys = ["namespace", "entity", "entity_type", "fragment"]
    summed = table.group_by(keys).aggregate([(name, "sum") for name in ENTITY_SUMS])
    return [_entity_row(row) for row in summed.to_pylist()]


def _entity_row(row: dict[str, Any]) -> EntityRow:
    return EntityRow(
        namespace=row["namespace"],
        entity=row["entity"],
        entity_type=row["entity_type"],
        fragment=row["fragment"],
        operations=row["operations_sum"],
        messages=row["messages_sum"],
        bytes=row["bytes_sum"],
        units=row["units_sum"],
        money=row["operations_money_sum"] + row["bandwidth_money_sum"],
    )
