"""The report of a rehearsal as one HTML page: the tables of the terminal, and plots over time."""

from collections.abc import Iterable, Iterator, Sequence

from twinbus.html_report.page import Cell, figures, folded, legend, note, page, section, table
from twinbus.html_report.plots import Axes, area, columns, line, round_up, time_plot
from twinbus.rehearsal.ledger import LedgerLine, Sender
from twinbus.rehearsal.report import FaultReport, RehearsalReport
from twinbus.rehearsal.report_text import percent, seconds
from twinbus.rehearsal.sends import Second

LATENCY_TOP_MIN_MS = 100.0
HEADROOM = 1.15
"""So that the band of a fault shows above full bars."""

COLOURS = {
    "accepted": "accepted",
    "refused or missed": "failed",
    "paired": "paired",
    "unpaired": "unpaired",
    "a fault is in force": "fault",
}


def report_html(report: RehearsalReport) -> str:
    return page("Outage rehearsal", _parts(report))


def _parts(report: RehearsalReport) -> Iterator[str]:
    yield note(report.verdict, f"verdict {'good' if report.is_balanced else 'bad'}")
    yield _headline(report)
    yield section("Over time", legend(COLOURS), *_plots(report))
    yield section("Faults", _faults(report.faults))
    equation = (
        "accepted = delivered + waiting + dead-lettered, for each sender and each place where messages are received."
    )
    yield section("Ledger", note(equation), _ledger(report.balance.lines), _sessions(report))
    yield section("Latency", note("Milliseconds from when a message was due until it was accepted."), _latency(report))
    if report.bill is not None:
        heads = ("cause", "path", "operations", "messages", "billed")
        lines = [(each.cause, each.path, each.operations, each.messages, each.units) for each in report.bill.lines]
        yield section("Bill", note(f"{report.bill.amount}: {report.bill.basis}."), table(heads, lines, names=2))
    moments = [(f"{moment.at_s:.1f} s", moment.kind, moment.text) for moment in report.moments]
    yield section("What happened", table(("at", "what", ""), moments, names=3))
    yield note(_footer(report))


def _headline(report: RehearsalReport) -> str:
    slowest = [fault.failed_over_after_s for fault in report.faults if fault.failed_over_after_s is not None]
    recovered = [fault.recovered_after_s for fault in report.faults if fault.recovered_after_s is not None]
    return figures(
        (
            (percent(report.paired), "of sends accepted, paired"),
            (percent(report.unpaired), "without pairing, same minutes"),
            (str(report.balance.lost), "messages lost"),
            (seconds(max(slowest, default=None)), "to fail over"),
            (seconds(max(recovered, default=None)), "to recover"),
            (str(report.drained.moved), "moved home from the backlog"),
        )
    )


def _plots(report: RehearsalReport) -> Iterator[str]:
    bands = [(fault.span.begin_s, fault.span.end_s, "fault") for fault in report.faults]
    until_s = max([report.duration_s, *(sample.at_s for sample in report.samples)])
    busiest = max((each.accepted + each.failed for run in report.seconds.values() for each in run), default=1)
    for sender in Sender:
        axes = Axes(until_s, round_up(busiest * HEADROOM))
        yield time_plot(axes, f"Sends per second, {sender}", bands, *_send_columns(axes, report.seconds[sender]))
    slowest = max((each.max_ms or 0.0 for run in report.seconds.values() for each in run), default=0.0)
    axes = Axes(until_s, round_up(max(slowest, LATENCY_TOP_MIN_MS)), is_logarithmic=True)
    yield time_plot(
        axes,
        "Slowest accepted send of each second, ms",
        bands,
        *(line(axes, [_slowest(each) for each in report.seconds[sender]], str(sender)) for sender in reversed(Sender)),
    )
    axes = Axes(until_s, round_up(max((sample.backlog for sample in report.samples), default=1)))
    backlog = [(sample.at_s, float(sample.backlog)) for sample in report.samples if sample.at_s >= 0]
    yield time_plot(axes, "Messages waiting in the backlog", bands, area(axes, backlog, "backlog"))
    axes = Axes(until_s, round_up(max((sample.delivered for sample in report.samples), default=1)))
    delivered = [(sample.at_s, float(sample.delivered)) for sample in report.samples if sample.at_s >= 0]
    yield time_plot(axes, "Messages received so far", bands, line(axes, delivered, "good"))


def _send_columns(axes: Axes, run: Sequence[Second]) -> tuple[str, str]:
    accepted = [(float(each.at_s), 0.0, float(each.accepted)) for each in run]
    failed = [(float(each.at_s), float(each.accepted), float(each.accepted + each.failed)) for each in run]
    return columns(axes, accepted, "accepted"), columns(axes, failed, "failed")


def _slowest(each: Second) -> tuple[float, float] | None:
    return None if each.max_ms is None else (each.at_s + 0.5, each.max_ms)


def _faults(faults: Iterable[FaultReport]) -> str:
    rows: list[tuple[Cell, ...]] = []
    for fault in faults:
        rows.append(
            (
                f"{fault.span.begin_s:.1f} s: {fault.text}",
                "all",
                percent(fault.paired),
                percent(fault.unpaired),
                seconds(fault.failed_over_after_s),
                seconds(fault.recovered_after_s),
            )
        )
        rows.append(("", "without a key, partitioned", *map(percent, fault.free), "", ""))
        rows += [
            (
                "",
                each.entity,
                percent(each.paired),
                percent(each.unpaired),
                seconds(each.outage.failed_over_after_s),
                seconds(each.outage.recovered_after_s),
            )
            for each in fault.entities
        ]
    heads = ("fault", "entity", "sends accepted, paired", "unpaired", "failed over after", "recovered after")
    return table(heads, rows, names=2)


def _ledger(lines: Iterable[LedgerLine]) -> str:
    heads = (
        *("sender", "received at", "accepted", "delivered", "waiting", "dead-lettered", "lost"),
        *("duplicates", "redelivered", "unconfirmed", "reordered", "altered"),
    )
    rows = [
        (
            *(each.sender, each.outlet, each.accepted, each.delivered, each.waiting, each.dead_lettered, each.lost),
            *(each.duplicates, each.redelivered, each.unconfirmed, each.reordered, each.altered),
        )
        for each in lines
    ]
    return table(heads, rows, names=2)


def _sessions(report: RehearsalReport) -> str:
    rows = [
        (each.sender, each.outlet, each.session_id, each.delivered, each.reordered) for each in report.balance.sessions
    ]
    heads = ("sender", "received at", "message session", "delivered", "after a later one")
    return folded("Order in each message session", table(heads, rows, names=3))


def _latency(report: RehearsalReport) -> str:
    rows: list[tuple[Cell, ...]] = []
    for each in report.latency:
        if each.availability.planned:
            found = each.latency
            numbers = (found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms) if found is not None else ()
            share = each.availability
            rows.append(
                (each.sender, each.phase, share.planned, percent(share), *(f"{number:.1f}" for number in numbers))
            )
    return table(("sender", "faults", "due", "accepted", "p50", "p90", "p99", "max"), rows, names=2)


def _footer(report: RehearsalReport) -> str:
    settings = report.settings
    return (
        f"{report.started_at:%Y-%m-%d %H:%M} UTC, took {report.took_s:.0f} s. Seed {settings.seed}, {settings.rate:g} messages "
        f"a second for each sender, failover interval {settings.failover_interval_s:g} s, ping interval "
        f"{settings.ping_interval_s:g} s, {report.pings} pings of which {report.pings_answered} were answered, syphon: "
        f"{settings.engine}, {report.drained.seconds:.1f} s."
    )
