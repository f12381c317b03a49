"""The report for a terminal: values in, rich tables out."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from twinbus.rehearsal.bill import Bill
from twinbus.rehearsal.report import RehearsalReport
from twinbus.rehearsal.sends import Availability

GOOD, BAD, QUIET = "green", "bold red", "dim"


def report_text(report: RehearsalReport) -> RenderableType:
    parts: list[RenderableType] = []
    for part in _parts(report):
        parts += ["", part]
    return Group(*parts)


def _parts(report: RehearsalReport) -> Iterator[RenderableType]:
    yield Text(report.verdict, GOOD if report.is_balanced else BAD)
    yield _senders(report)
    yield _ledger(report)
    if report.faults:
        yield _faults(report)
    yield _latency(report)
    yield _pair(report)
    if report.bill is not None:
        yield _bill(report.bill)


def _senders(report: RehearsalReport) -> Table:
    table = _table("Sends", "sender", "due", "accepted", "refused", "missed", "available", left=1)
    for name, share in (("paired", report.paired), ("unpaired", report.unpaired)):
        table.add_row(
            name, str(share.planned), str(share.accepted), str(share.refused), str(share.missed), percent(share)
        )
    return table


def _ledger(report: RehearsalReport) -> Table:
    columns = ("accepted", "delivered", "waiting", "dead", "lost", "dupl.", "again", "unconf.", "reord.")
    table = _table("Ledger: accepted = delivered + waiting + dead-lettered", "sender", "received at", *columns)
    for line in report.balance.lines:
        lost = Text(str(line.lost), BAD if line.lost else GOOD)
        table.add_row(
            line.sender,
            escape(line.outlet),
            *map(str, (line.accepted, line.delivered, line.waiting, line.dead_lettered)),
            lost,
            *map(_count, (line.duplicates, line.redelivered, line.unconfirmed, line.reordered)),
        )
    for stranger in report.balance.strangers:
        table.add_row("?", f"never sent: {escape(stranger)}")
    return table


def _faults(report: RehearsalReport) -> Table:
    table = _table("Faults", "fault", "entity", "paired", "unpaired", "failed over after", "recovered after")
    for fault in report.faults:
        table.add_row(
            f"{fault.span.begin_s:.0f} s: {fault.text}",
            "all",
            percent(fault.paired),
            percent(fault.unpaired),
            seconds(fault.failed_over_after_s),
            seconds(fault.recovered_after_s),
            style="bold",
        )
        for each in fault.entities:
            outage = each.outage
            times = seconds(outage.failed_over_after_s), seconds(outage.recovered_after_s)
            table.add_row("", escape(each.entity), percent(each.paired), percent(each.unpaired), *times)
    return table


def _latency(report: RehearsalReport) -> Table:
    title = "Latency of accepted sends in ms, from when they were due"
    table = _table(title, "sender", "faults", "due", "available", "p50", "p90", "p99", "max")
    for line in report.latency:
        if not line.availability.planned:
            continue
        latency = line.latency
        numbers = (latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.max_ms) if latency is not None else ()
        shares = str(line.availability.planned), percent(line.availability)
        table.add_row(line.sender, line.phase, *shares, *(f"{number:.1f}" for number in numbers))
    return table


def _pair(report: RehearsalReport) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("through the backlog", f"{sum(report.backlog_sends.values())} messages")
    table.add_row(
        "brought home",
        f"{report.drained.moved} in {report.drained.seconds:.1f} s, by the syphon (engine {report.settings.engine})",
    )
    table.add_row("pings", f"{report.pings}, of which {report.pings_answered} were answered")
    table.add_row("seed", f"{report.settings.seed}, at {report.settings.rate:g} messages a second for each sender")
    table.add_row("took", f"{report.took_s:.0f} s")
    return table


def _bill(bill: Bill) -> Table:
    table = _table(f"Bill: {bill.amount}", "operations by cause", "path", "operations", "messages", "billed units")
    for line in bill.lines:
        table.add_row(line.cause, line.path, str(line.operations), str(line.messages), str(line.units))
    table.add_row("all", "", "", "", str(bill.units), style="bold")
    return table


def percent(share: Availability) -> str:
    """Never 100 where something failed."""
    if not share.planned:
        return "-"
    text = f"{share.percent:.2f}"
    return "99.99 %" if text == "100.00" and share.accepted < share.planned else f"{text} %"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _count(number: int) -> Text:
    return Text(str(number), QUIET if not number else "")


def _table(title: str, *columns: str, left: int = 2) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style=QUIET)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < left else "right")
    return table
