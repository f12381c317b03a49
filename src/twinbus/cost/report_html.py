"""The bill of a month as one HTML page. Every figure of the JSON document is on it; long tables are folded."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from twinbus.cost.amounts import money_text
from twinbus.cost.month_to_date import MonthBill
from twinbus.cost.summary import Skew, Sum, Summary
from twinbus.html_report.page import figures, folded, legend, note, page, section, table
from twinbus.html_report.plots import fragment_bars, lying_bars, stacked_bars
from twinbus.meter.operation import Cause

PLOT_COLOURS = tuple(f"plot-{number}" for number in range(13))
CAUSE_COLOURS = {cause.value: colour for cause, colour in zip(Cause, PLOT_COLOURS, strict=True)}
RECEIVE_COLOURS = {"useful receives": PLOT_COLOURS[1], "empty receives": PLOT_COLOURS[3]}
OUTAGE_COLOURS = tuple(PLOT_COLOURS[number] for number in (2, 5, 0, 6, 3))
SUM_HEADS = ("operations", "messages", "bytes", "billed", "money", "at list price")


def report_page(summary: Summary, left_out: Mapping[str, str]) -> str:
    """`left_out` are files of the log that are not in the bill, with the reason."""
    parts = (
        _head(summary),
        _left_out(left_out),
        _namespaces(summary),
        _causes(summary),
        _receives(summary),
        _outage(summary),
        _fragments(summary),
        _entities(summary),
        _months(summary),
    )
    return page(f"Bill of {summary.month}", parts)


def _head(summary: Summary) -> str:
    each = summary.total
    size = sum(bill.bytes for bill in summary.month_bills)
    values = (
        (f"{money_text(round(summary.money, 2))} {summary.sheet.currency}", "rounded, with base charges"),
        (f"{each.units:,}", "billed operations"),
        (f"{each.messages:,}", "messages, counted once for each step"),
        (_size(size), f"{size:,} bytes in and out"),
    )
    text = f"Plan {summary.plan.name}, {summary.sheet.caption}. Hours are in UTC."
    return note(text, "warn" if summary.sheet.is_example else "faint") + figures(values)


def _left_out(left_out: Mapping[str, str]) -> str:
    if not left_out:
        return ""
    rows = sorted(left_out.items())
    what = "1 file of the log is" if len(rows) == 1 else f"{len(rows):,} files of the log are"
    text = f"{what} not in this bill. Every run checks them again."
    return section("Files that are not in the bill", note(text, "warn"), table(("file", "reason"), rows, names=2))


def _namespaces(summary: Summary) -> str:
    rows = []
    for bill in summary.month_bills:
        for share in bill.shares:
            what = f"operations from {share.starts_at:,}"
            price, money = money_text(share.tier.price), money_text(share.money)
            rows.append((bill.namespace, what, f"{share.units:,}", price, money))
        rows.append((bill.namespace, "all operations", f"{bill.units:,}", "", money_text(bill.operations_money)))
        rows.append((bill.namespace, "bandwidth", f"{bill.bytes:,} bytes", "", money_text(bill.bandwidth_money)))
        rows.append((bill.namespace, "base charge", "", "", money_text(bill.base)))
        rows.append((bill.namespace, "total", "", "", money_text(bill.money)))
    heads = ("namespace", "item", "quantity", "price per million", "money")
    total = ("all", "", "", "", money_text(summary.money))
    return section("What the month costs", table(heads, rows, names=2, total=total))


def _causes(summary: Summary) -> str:
    labels = [point.at for point in summary.series]
    series = {
        cause: [point.causes[cause].units if cause in point.causes else 0 for point in summary.series]
        for cause, each in summary.causes.items()
        if each.units
    }
    colours = {cause: CAUSE_COLOURS.get(cause, PLOT_COLOURS[0]) for cause in series}
    plot = stacked_bars("Billed operations by cause over time", _short(labels), series, colours)
    price = money_text(summary.plan.list_price.price)
    text = f"Billed operations by cause; a million of them cost {price} at the list price."
    rows = [
        (point.at, cause, f"{each.units:,}", money_text(each.money))
        for point in summary.series
        for cause, each in point.causes.items()
    ]
    by_time = folded("By time", table(("time", "cause", "billed", "money"), rows, names=2))
    causes = _sum_table(("cause",), [((name,), each) for name, each in summary.causes.items()], summary, summary.total)
    paths = _sum_table(("path",), [((name,), each) for name, each in summary.paths.items()], summary)
    return section("Cost by cause", note(text), plot, legend(colours), causes, folded("By path", paths), by_time)


def _receives(summary: Summary) -> str:
    series = {
        "useful receives": [point.receives for point in summary.series],
        "empty receives": [point.empty_receives for point in summary.series],
    }
    useful, empty = (sum(values) for values in series.values())
    share = f"{empty / (useful + empty):.1%}" if useful + empty else "none"
    text = (
        f"{empty:,} receives ended without a message and {useful:,} brought one: {share} of the cost of receiving was "
        "waiting. Longer polls reduce it."
    )
    labels = [point.at for point in summary.series]
    plot = stacked_bars("Idle polls and useful receives", _short(labels), series, RECEIVE_COLOURS)
    rows = [(point.at, f"{point.receives:,}", f"{point.empty_receives:,}") for point in summary.series]
    by_time = folded("By time", table(("time", "useful receives", "empty receives"), rows))
    return section("Idle polls and useful receives", note(text), plot, legend(RECEIVE_COLOURS), by_time)


def _outage(summary: Summary) -> str:
    outage = summary.outage
    if not outage.hours:
        notes = note("No message went to a backlog queue and no entity was pinged.")
    else:
        extra, at_list = money_text(outage.extra_money), money_text(summary.list_money(outage.extra_units))
        text = (
            f"Failing over {outage.sends_to_backlog.messages:,} messages cost {outage.extra_units:,} operations that would not "
            f"have been needed without an outage: {extra} {summary.sheet.currency}, {at_list} at the list price. A failed-over "
            "message costs four operations instead of two; the syphon's send replaces the send that failed."
        )
        notes = note(text, "") + note(f"In these hours: {', '.join(outage.hours)}")
    rows = (
        ("sends to backlog", outage.sends_to_backlog),
        ("receives from backlog", outage.receives_from_backlog),
        ("sends home", outage.sends_home),
        ("pings", outage.pings),
        ("idle polls of syphons", outage.idle_polls),
    )
    units = {name: each.units for name, each in rows}
    colours = {name: OUTAGE_COLOURS[index] for index, name in enumerate(units)}
    plot = lying_bars("Billed operations of the outage", units, colours)
    steps = _sum_table(("step",), [((name,), each) for name, each in rows], summary)
    return section("What the outage cost", notes, plot if any(units.values()) else "", steps)


def _fragments(summary: Summary) -> str:
    if not summary.skews:
        return ""
    text = "Messages of each fragment; the line is the mean. An uneven distribution means few keys, or one busy key."
    plots = "".join(map(_skew, summary.skews))
    rows = [
        (skew.entity, str(fragment), f"{count:,}")
        for skew in summary.skews
        for fragment, count in skew.messages.items()
    ]
    by_fragment = folded("By fragment", table(("entity", "fragment", "messages"), rows))
    return section("Fragments", note(text), f'<div class="small">{plots}</div>', by_fragment)


def _skew(skew: Skew) -> str:
    name = escape(f"{skew.namespace}: {skew.entity}")
    plot = fragment_bars(f"Messages of the fragments of {skew.entity}", skew.messages, PLOT_COLOURS[0])
    return f"<div><h3>{name}</h3>{note(f'the fullest fragment has {skew.ratio:f} times the mean')}{plot}</div>"


def _entities(summary: Summary) -> str:
    rows = [
        ((entity or "(the namespace itself)", namespace), each)
        for (namespace, entity), each in summary.entities.items()
    ]
    entities = _sum_table(("entity", "namespace"), rows, summary)
    more = note(f"{summary.entities_left_out:,} more are in the lines of the bill.")
    return section("Entities", entities, more if summary.entities_left_out else "")


def _months(summary: Summary) -> str:
    others = [bill for bill in summary.bills if bill.month != summary.month]
    if not others:
        return ""
    heads = (
        "month",
        "namespace",
        "tier",
        "billed",
        "bytes",
        "price per million",
        "operations",
        "bandwidth",
        "base",
        "money",
    )
    rows = [row for bill in others for row in _month_rows(bill)]
    return section("Other months", table(heads, rows, names=2))


def _month_rows(bill: MonthBill) -> list[tuple[str, ...]]:
    amounts = (bill.operations_money, bill.bandwidth_money, bill.base, bill.money)
    whole = (bill.month, bill.namespace, "all", f"{bill.units:,}", f"{bill.bytes:,}", "", *map(money_text, amounts))
    tiers = []
    for share in bill.shares:
        price, money = money_text(share.tier.price), money_text(share.money)
        tier = f"from {share.starts_at:,}"
        tiers.append((bill.month, bill.namespace, tier, f"{share.units:,}", "", price, money, "", "", ""))
    return [*tiers, whole]


def _sum_table(
    heads: Sequence[str], rows: Iterable[tuple[tuple[str, ...], Sum]], summary: Summary, total: Sum | None = None
) -> str:
    cells = [(*names, *_cells(each, summary)) for names, each in rows]
    last = None if total is None else ("all", *[""] * (len(heads) - 1), *_cells(total, summary))
    return table((*heads, *SUM_HEADS), cells, names=len(heads), total=last)


def _cells(each: Sum, summary: Summary) -> tuple[str, ...]:
    counts = (each.operations, each.messages, each.bytes, each.units)
    return (*(f"{count:,}" for count in counts), money_text(each.money), money_text(summary.list_money(each.units)))


def _short(labels: Sequence[str]) -> list[str]:
    """Without the day where there is only one, and without the year."""
    days = {label[:10] for label in labels}
    return [label[11:] if len(days) == 1 and len(label) > 10 else label[5:] for label in labels]


def _size(size: int) -> str:
    amount, unit = float(size), "bytes"
    for unit in ("bytes", "KB", "MB", "GB", "TB"):
        if amount < 1024 or unit == "TB":
            break
        amount /= 1024
    return f"{size:,} bytes" if unit == "bytes" else f"{amount:,.1f} {unit}"
