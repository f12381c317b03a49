"""The report for a terminal: values in, rich tables out."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from twinbus.rehearsal.bill import Bill
from twinbus.rehearsal.ledger import LedgerLine, Sender
from twinbus.rehearsal.report import FaultReport, OrderReport, RehearsalReport
from twinbus.rehearsal.sends import Availability

GOOD, BAD, QUIET = "green", "bold red", "dim"


def report_text(report: RehearsalReport) -> RenderableType:
    return Group(*(part for each in report_parts(report) for part in ("", each)))


def report_parts(report: RehearsalReport) -> Iterator[RenderableType]:
    """The most important part first."""
    yield Text(report.verdict, GOOD if report.is_balanced else BAD)
    yield _titled("Sends", _senders(report))
    yield _titled("Ledger: accepted = delivered + waiting + dead-lettered", _ledger(report))
    for fault in report.faults:
        yield _titled(f"After {fault.span.begin_s:.0f} s: {fault.text}", _fault(fault))
    yield _titled("Latency of accepted sends in ms, from when they were due", _latency(report))
    yield _pair(report)
    if report.bill is not None:
        yield _titled(f"Bill: {report.bill.amount}", _bill(report.bill), Text(report.bill.basis, QUIET))


def _titled(title: str, *parts: RenderableType) -> Group:
    """Not a rich table title, which would be as narrow as the table."""
    return Group(Text(title, "bold"), *parts)


def _senders(report: RehearsalReport) -> Table:
    table = _table("sender", "due", "accepted", "refused", "missed", "available", left=1)
    for name, share in (("paired", report.paired), ("unpaired", report.unpaired)):
        table.add_row(
            name, str(share.planned), str(share.accepted), str(share.refused), str(share.missed), percent(share)
        )
    return table


def _ledger(report: RehearsalReport) -> Table:
    columns = ("accepted", "delivered", "waiting", "dead", "lost", "dupl.", "again", "unconf.", "reord.")
    table = _table("received at", *columns, left=1)
    for sender in Sender:
        table.add_row(sender, style="bold")
        for line in report.balance.lines:
            if line.sender is sender:
                table.add_row("  " + escape(short_path(line.outlet)), *_ledger_cells(line))
    for stranger in report.balance.strangers:
        table.add_row(f"never sent: {escape(stranger)}", style=BAD)
    return table


def _ledger_cells(line: LedgerLine) -> list[Text]:
    return [
        *(Text(str(number)) for number in (line.accepted, line.delivered, line.waiting, line.dead_lettered)),
        Text(str(line.lost), BAD if line.lost else GOOD),
        *map(_count, (line.duplicates, line.redelivered, line.unconfirmed, line.reordered)),
    ]


def _fault(fault: FaultReport) -> Table:
    table = _table("entity", "paired", "unpaired", "failed over after", "recovered after", left=1)
    table.add_row("all", percent(fault.paired), percent(fault.unpaired))
    table.add_row("without a key, partitioned", *map(percent, fault.free))
    for each in fault.entities:
        if not each.is_untouched:
            times = seconds(each.outage.failed_over_after_s), seconds(each.outage.recovered_after_s)
            table.add_row(escape(each.entity), percent(each.paired), percent(each.unpaired), *times)
    return table


def _latency(report: RehearsalReport) -> Table:
    table = _table("sender", "faults", "due", "available", "p50", "p90", "p99", "max")
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
    for order in report.order:
        table.add_row(f"in order, {order.sender}", order_text(order))
    table.add_row("failovers", f"{report.failovers}, in {len(report.faults)} faults")
    table.add_row("through the backlog", f"{sum(report.backlog_sends.values())} messages")
    table.add_row(
        "moved home", f"{report.drained.moved} in {report.drained.seconds:.1f} s, engine {report.settings.engine}"
    )
    table.add_row("pings", f"{report.pings}, of which {report.pings_answered} were answered")
    table.add_row("seed", f"{report.settings.seed}, at {report.settings.rate:g} messages a second for each sender")
    table.add_row("took", f"{report.took_s:.0f} s")
    return table


def order_text(order: OrderReport) -> str:
    text = f"{order.reordered} of {order.delivered} session messages came after a later one"
    cost = f"; it cost {order.looks} peeks at the backlog, and {order.followed} messages went through it"
    return text + (cost if order.looks else "")


def _bill(bill: Bill) -> Table:
    table = _table("cause", "path", "operations", "messages", "billed")
    for line in bill.lines:
        table.add_row(line.cause, line.path, str(line.operations), str(line.messages), str(line.units))
    table.add_row("all", "", "", "", str(bill.units), style="bold")
    return table


def percent(share: Availability) -> str:
    """Never 100 if something failed."""
    if not share.planned:
        return "-"
    text = f"{share.percent:.2f}"
    return "99.99 %" if text == "100.00" and share.accepted < share.planned else f"{text} %"


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def short_path(outlet: str) -> str:
    """`topic/audit` for a subscription of a topic."""
    return outlet.replace("/Subscriptions/", "/")


def _count(number: int) -> Text:
    return Text(str(number), QUIET if not number else "")


def _table(*columns: str, left: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style=QUIET)
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index < left else "right", no_wrap=True)
    return table
