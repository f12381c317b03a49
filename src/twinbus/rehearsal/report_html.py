"""The report as one HTML file that needs nothing else: the tables of the terminal, and plots over time."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from twinbus.rehearsal.ledger import LedgerLine, Sender
from twinbus.rehearsal.page_style import STYLE
from twinbus.rehearsal.plots import Axes, area, bars, line, plot, round_up
from twinbus.rehearsal.report import FaultReport, RehearsalReport
from twinbus.rehearsal.report_text import percent, seconds
from twinbus.rehearsal.sends import Second

LATENCY_TOP_MIN_MS = 100.0
HEADROOM = 1.15
"""So that the band of a fault shows above full bars."""

Cell = str | int


def report_html(report: RehearsalReport) -> str:
    body = "\n".join(_sections(report))
    title = "Outage rehearsal"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>\n<h1>{title}</h1>\n{body}\n</main></body></html>\n"
    )


def _sections(report: RehearsalReport) -> Iterator[str]:
    yield f'<p class="verdict {"good" if report.is_balanced else "bad"}">{escape(report.verdict)}</p>'
    yield _headline(report)
    yield "<h2>Over time</h2>" + _legend() + f'<div class="wide">{"".join(_plots(report))}</div>'
    yield "<h2>Faults</h2>" + _faults(report.faults)
    yield "<h2>Ledger</h2><p>accepted = delivered + waiting + dead-lettered, for each sender and each place where messages are received.</p>"
    yield _ledger(report.balance.lines)
    yield _sessions(report)
    yield "<h2>Latency</h2><p>Milliseconds from when a message was due until it was accepted.</p>" + _latency(report)
    if report.bill is not None:
        yield f"<h2>Bill</h2><p><b>{escape(report.bill.amount)}</b>: {escape(report.bill.basis)}.</p>" + _table(
            ("cause", "path", "operations", "messages", "billed"),
            [(each.cause, each.path, each.operations, each.messages, each.units) for each in report.bill.lines],
        )
    yield "<h2>What happened</h2>" + _table(
        ("at", "what", ""),
        [(f"{moment.at_s:.1f} s", moment.kind, moment.text) for moment in report.moments],
        left=3,
    )
    yield f"<footer>{escape(_footer(report))}</footer>"


def _headline(report: RehearsalReport) -> str:
    slowest = [fault.failed_over_after_s for fault in report.faults if fault.failed_over_after_s is not None]
    back = [fault.recovered_after_s for fault in report.faults if fault.recovered_after_s is not None]
    figures = [
        (percent(report.paired), "of sends accepted, paired"),
        (percent(report.unpaired), "without pairing, same minutes"),
        (str(report.balance.lost), "messages lost"),
        (seconds(max(slowest, default=None)), "to fail over"),
        (seconds(max(back, default=None)), "to recover"),
        (str(report.drained.moved), "brought home from the backlog"),
    ]
    cards = "".join(f"<div><b>{escape(value)}</b><span>{escape(text)}</span></div>" for value, text in figures)
    return f'<div class="cards">{cards}</div>'


def _legend() -> str:
    keys = (
        ("accepted", "accepted"),
        ("failed", "refused or missed"),
        ("paired", "paired"),
        ("unpaired", "unpaired"),
        ("fault", "a fault is in force"),
    )
    return '<p class="legend">' + " ".join(f'<span><i class="{css}"></i>{text}</span>' for css, text in keys) + "</p>"


def _plots(report: RehearsalReport) -> Iterator[str]:
    spans = [fault.span for fault in report.faults]
    until_s = max([report.duration_s, *(sample.at_s for sample in report.samples)])
    busiest = max((each.accepted + each.failed for run in report.seconds.values() for each in run), default=1)
    for sender in Sender:
        axes = Axes(until_s, round_up(busiest * HEADROOM))
        yield plot(axes, f"Sends a second, {sender}", spans, *_send_bars(axes, report.seconds[sender]))
    slowest = max((each.max_ms or 0.0 for run in report.seconds.values() for each in run), default=0.0)
    axes = Axes(until_s, round_up(max(slowest, LATENCY_TOP_MIN_MS)), is_logarithmic=True)
    yield plot(
        axes,
        "Slowest accepted send of each second, ms",
        spans,
        *(line(axes, [_slowest(each) for each in report.seconds[sender]], str(sender)) for sender in reversed(Sender)),
    )
    axes = Axes(until_s, round_up(max((sample.backlog for sample in report.samples), default=1)))
    backlog = [(sample.at_s, float(sample.backlog)) for sample in report.samples if sample.at_s >= 0]
    yield plot(axes, "Messages that wait in the backlog", spans, area(axes, backlog, "backlog"))
    axes = Axes(until_s, round_up(max((sample.delivered for sample in report.samples), default=1)))
    delivered = [(sample.at_s, float(sample.delivered)) for sample in report.samples if sample.at_s >= 0]
    yield plot(axes, "Messages received so far", spans, line(axes, delivered, "delivered"))


def _send_bars(axes: Axes, run: Sequence[Second]) -> tuple[str, str]:
    accepted = [(float(each.at_s), 0.0, float(each.accepted)) for each in run]
    failed = [(float(each.at_s), float(each.accepted), float(each.accepted + each.failed)) for each in run]
    return bars(axes, accepted, "accepted"), bars(axes, failed, "failed")


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
    columns = ("fault", "entity", "sends accepted, paired", "unpaired", "failed over after", "recovered after")
    return _table(columns, rows)


def _ledger(lines: Iterable[LedgerLine]) -> str:
    columns = (
        *("sender", "received at", "accepted", "delivered", "waiting", "dead-lettered", "lost"),
        *("duplicates", "redelivered", "unconfirmed", "reordered", "altered"),
    )
    return _table(
        columns,
        [
            (
                *(each.sender, each.outlet, each.accepted, each.delivered, each.waiting, each.dead_lettered, each.lost),
                *(each.duplicates, each.redelivered, each.unconfirmed, each.reordered, each.altered),
            )
            for each in lines
        ],
    )


def _sessions(report: RehearsalReport) -> str:
    rows = [
        (each.sender, each.outlet, each.session_id, each.delivered, each.reordered) for each in report.balance.sessions
    ]
    table = _table(("sender", "received at", "message session", "delivered", "after a later one"), rows, left=3)
    return f"<details><summary>Order in each message session</summary>{table}</details>"


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
    return _table(("sender", "faults", "due", "accepted", "p50", "p90", "p99", "max"), rows)


def _footer(report: RehearsalReport) -> str:
    settings = report.settings
    return (
        f"{report.started_at:%Y-%m-%d %H:%M} UTC, took {report.took_s:.0f} s. Seed {settings.seed}, {settings.rate:g} messages "
        f"a second for each sender, failover interval {settings.failover_interval_s:g} s, ping interval "
        f"{settings.ping_interval_s:g} s, {report.pings} pings of which {report.pings_answered} were answered, syphon: "
        f"{settings.engine}, {report.drained.seconds:.1f} s."
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, left: int = 2) -> str:
    """The first columns hold words and stand at the left, the others numbers."""
    head = _cells("th", columns, left)
    body = "".join(f"<tr>{_cells('td', row, left)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(tag: str, cells: Sequence[Cell], left: int) -> str:
    return "".join(
        f"<{tag}{'' if place < left else ' class=number'}>{escape(str(cell))}</{tag}>"
        for place, cell in enumerate(cells)
    )
