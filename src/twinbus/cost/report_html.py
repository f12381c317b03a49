"""A summary as one HTML page that needs nothing else: style and drawings are inside, there is no script.

Every figure of the JSON document is on the page; long tables are folded.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources

from twinbus.cost.amounts import money_text
from twinbus.cost.month_to_date import MonthBill
from twinbus.cost.summary import Skew, Sum, Summary
from twinbus.cost.svg_plots import COLOURS, fragment_bars, legend, lying_bars, stacked_bars
from twinbus.meter.operation import Cause

STYLE = "report_style.css"
CAUSE_COLOURS = {cause.value: number % COLOURS for number, cause in enumerate(Cause)}
RECEIVE_COLOURS = {"useful receives": 1, "empty receives": 3}
OUTAGE_COLOURS = (2, 5, 0, 6, 3)
SUM_HEADS = ("operations", "messages", "bytes", "billed", "money", "at list price")


def report_page(summary: Summary, left_out: Mapping[str, str]) -> str:
    """`left_out` are files of the log that are not in the bill, with the reason."""
    style = resources.files("twinbus.cost").joinpath(STYLE).read_text(encoding="utf-8")
    title = f"Bill of {summary.month}"
    parts = (
        _head(summary, title),
        _left_out(left_out),
        _namespaces(summary),
        _causes(summary),
        _receives(summary),
        _outage(summary),
        _fragments(summary),
        _entities(summary),
        _months(summary),
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>\n{style}</style></head>\n'
        f"<body><main>\n{''.join(parts)}</main></body></html>\n"
    )


def _head(summary: Summary, title: str) -> str:
    each = summary.total
    size = sum(bill.bytes for bill in summary.month_bills)
    figures = (
        (f"{money_text(round(summary.money, 2))} {summary.sheet.currency}", "rounded, with base charges"),
        (f"{each.units:,}", "billed operations"),
        (f"{each.messages:,}", "messages handled, each in every step"),
        (_size(size), f"{size:,} bytes in and out"),
    )
    cells = "".join(f"<div><b>{escape(figure)}</b><span>{escape(text)}</span></div>" for figure, text in figures)
    kind = "warn" if summary.sheet.is_example else "faint"
    text = escape(f"Plan {summary.plan.name}, {summary.sheet.caption}. Hours are in UTC.")
    return f'<h1>{title}</h1><p class="{kind}">{text}</p><div class="figures">{cells}</div>\n'


def _left_out(left_out: Mapping[str, str]) -> str:
    if not left_out:
        return ""
    rows = sorted(left_out.items())
    what = "1 file of the log is" if len(rows) == 1 else f"{len(rows):,} files of the log are"
    note = f"{what} not in this bill. Every run looks again."
    return _section("Left out", f'<p class="warn">{note}</p>' + _table(("file", "why"), rows, names=2))


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
        rows.append((bill.namespace, "together", "", "", money_text(bill.money)))
    heads = ("namespace", "what", "how much", "a million", "money")
    total = ("all", "", "", "", money_text(summary.money))
    return _section("What the month costs", _table(heads, rows, names=2, total=total))


def _causes(summary: Summary) -> str:
    labels = [point.at for point in summary.series]
    series = {
        cause: [point.causes[cause].units if cause in point.causes else 0 for point in summary.series]
        for cause, each in summary.causes.items()
        if each.units
    }
    colours = {cause: CAUSE_COLOURS.get(cause, 0) for cause in series}
    plot = stacked_bars("Billed operations by cause over time", _short(labels), series, colours)
    price = money_text(summary.plan.list_price.price)
    note = f'<p class="faint">Billed operations by cause; a million of them is {price} at the list price.</p>'
    rows = [
        (point.at, cause, f"{each.units:,}", money_text(each.money))
        for point in summary.series
        for cause, each in point.causes.items()
    ]
    folded = _folded("By time", _table(("time", "cause", "billed", "money"), rows, names=2))
    table = _sum_table(("cause",), [((name,), each) for name, each in summary.causes.items()], summary, summary.total)
    paths = _sum_table(("path",), [((name,), each) for name, each in summary.paths.items()], summary)
    return _section("Cost by cause", note + plot + legend(colours) + table + _folded("By path", paths) + folded)


def _receives(summary: Summary) -> str:
    series = {
        "useful receives": [point.receives for point in summary.series],
        "empty receives": [point.empty_receives for point in summary.series],
    }
    useful, empty = (sum(values) for values in series.values())
    share = f"{empty / (useful + empty):.1%}" if useful + empty else "none"
    note = (
        f'<p class="faint">{empty:,} receives ended without a message and {useful:,} brought one: '
        f"{share} of what receiving cost was waiting. Longer polls make it less.</p>"
    )
    labels = [point.at for point in summary.series]
    plot = stacked_bars("Idle polls against useful receives", _short(labels), series, RECEIVE_COLOURS)
    rows = [(point.at, f"{point.receives:,}", f"{point.empty_receives:,}") for point in summary.series]
    folded = _folded("By time", _table(("time", "useful receives", "empty receives"), rows))
    return _section("Idle polls against useful receives", note + plot + legend(RECEIVE_COLOURS) + folded)


def _outage(summary: Summary) -> str:
    outage = summary.outage
    if not outage.hours:
        note = '<p class="faint">No message went to a backlog queue and no entity was pinged.</p>'
    else:
        extra, at_list = money_text(outage.extra_money), money_text(summary.list_money(outage.extra_units))
        note = (
            f"<p>Failing over {outage.sends_to_backlog.messages:,} messages cost {outage.extra_units:,} operations that "
            f"a primary without an outage would not have cost: {extra} {escape(summary.sheet.currency)}, "
            f"{at_list} at the list price. A failed-over message costs four operations instead of two; its send home takes "
            f'the place of the send that failed.</p><p class="faint">In these hours: {escape(", ".join(outage.hours))}</p>'
        )
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
    table = _sum_table(("step",), [((name,), each) for name, each in rows], summary)
    return _section("What the outage cost", note + (plot if any(units.values()) else "") + table)


def _fragments(summary: Summary) -> str:
    if not summary.skews:
        return ""
    note = '<p class="faint">Messages of each fragment; the line is the mean. Far from even: few keys, or one busy key.</p>'
    plots = "".join(map(_skew, summary.skews))
    rows = [
        (skew.entity, str(fragment), f"{count:,}")
        for skew in summary.skews
        for fragment, count in skew.messages.items()
    ]
    folded = _folded("By fragment", _table(("entity", "fragment", "messages"), rows))
    return _section("Fragments", f'{note}<div class="small">{plots}</div>{folded}')


def _skew(skew: Skew) -> str:
    name = escape(f"{skew.namespace}: {skew.entity}")
    plot = fragment_bars(f"Messages of the fragments of {skew.entity}", skew.messages)
    return f'<div><h3>{name}</h3><p class="faint">the fullest has {skew.ratio:f} times the mean</p>{plot}</div>'


def _entities(summary: Summary) -> str:
    rows = [
        ((entity or "(the namespace itself)", namespace), each)
        for (namespace, entity), each in summary.entities.items()
    ]
    table = _sum_table(("entity", "namespace"), rows, summary)
    more = f'<p class="faint">{summary.entities_left_out:,} more are in the lines of the bill.</p>'
    return _section("Entities", table + (more if summary.entities_left_out else ""))


def _months(summary: Summary) -> str:
    others = [bill for bill in summary.bills if bill.month != summary.month]
    if not others:
        return ""
    heads = ("month", "namespace", "tier", "billed", "bytes", "a million", "operations", "bandwidth", "base", "money")
    rows = [row for bill in others for row in _month_rows(bill)]
    return _section("Other months", _table(heads, rows, names=2))


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
    return _table((*heads, *SUM_HEADS), cells, names=len(heads), total=last)


def _cells(each: Sum, summary: Summary) -> tuple[str, ...]:
    counts = (each.operations, each.messages, each.bytes, each.units)
    return (*(f"{count:,}" for count in counts), money_text(each.money), money_text(summary.list_money(each.units)))


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1, total: Sequence[str] | None = None
) -> str:
    """The first `names` columns are texts, the rest figures."""
    head = "".join(f"<th{_class(index, names)}>{escape(name)}</th>" for index, name in enumerate(heads))
    body = "".join(f"<tr>{_row(row, names)}</tr>\n" for row in rows)
    last = "" if total is None else f'<tr class="sum">{_row(total, names)}</tr>'
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}{last}</tbody></table></div>'


def _row(cells: Sequence[str], names: int) -> str:
    return "".join(f"<td{_class(index, names)}>{escape(cell)}</td>" for index, cell in enumerate(cells))


def _class(index: int, names: int) -> str:
    return ' class="name"' if index < names else ""


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>\n"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>"


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
