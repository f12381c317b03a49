"""The bill: month to date by cause and entity, an estimate, what if, and what one message cost."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from starlette.responses import Response

from twinbus.cost.advice import warnings
from twinbus.cost.amounts import count_text, money_text
from twinbus.cost.deployment import Deployment
from twinbus.cost.estimate import HOURS_A_DAY, HOURS_IN_30_DAYS, Estimate, estimate
from twinbus.cost.explain import Explanation, explain
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.cost.prices import PriceSheet
from twinbus.cost.what_if import Change, Comparison, count_log, what_if
from twinbus.errors import ArgumentError, EntityNotFound
from twinbus.meter.log_reader import open_logs
from twinbus.model.durations import parse_duration
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Child, Markup, el, join
from twinbus.portal.html.parts import (
    Cell,
    button,
    check_box,
    choice,
    field,
    figures,
    form,
    hidden,
    notice,
    section,
    size_text,
    table,
    text_input,
    time_text,
)
from twinbus.portal.screens.operations import MonthSums, log_folders, month_sums
from twinbus.portal.visit import Visit

LINES_SHOWN = 200
COUNTS = ("queues", "syphons", "processes", "entities", "size")
DURATIONS = ("poll", "ping_interval", "failover_interval", "outage")


async def show(visit: Visit) -> Response:
    sheet = read_price_sheet(visit.services.settings.prices)
    plan = sheet.plan(visit.query.get("plan") or None)
    folders, problem = [], ""
    try:
        folders = await log_folders(visit)
    except EntityNotFound as missing:
        problem = str(missing)
    parts: list[Child] = [_plans(sheet, plan.name)]
    if folders:
        sums = await asyncio.to_thread(month_sums, folders, plan, datetime.now(UTC))
        parts.append(_month(sheet, sums))
    else:
        parts.append(section("Month to date", notice("plain", problem)))
    parts.append(_estimate(visit, sheet))
    if folders:
        parts += [await _what_if(visit, sheet, folders), await _explain(visit, sheet, folders)]
    return page(visit.frame("bill"), "The bill", *parts)


def _plans(sheet: PriceSheet, chosen: str) -> Markup:
    kind = "warn" if sheet.is_example else "plain"
    return section(
        "Prices",
        notice(kind, sheet.caption),
        form(
            "/bill",
            field("Plan", choice("plan", list(sheet.plans), chosen, data_submit="on")),
            button("Use", "quiet"),
            method="get",
            class_="row",
        ),
    )


def _money(amount: Decimal) -> Cell:
    return Cell(money_text(amount), str(amount), is_number=True)


def _month(sheet: PriceSheet, sums: MonthSums) -> Markup:
    bills = [
        (
            bill.namespace,
            bill.units,
            Cell(size_text(bill.bytes), bill.bytes, is_number=True),
            _money(bill.operations_money),
            _money(bill.bandwidth_money),
            _money(bill.base),
            _money(bill.money),
        )
        for bill in sums.bills
    ]
    whole = sum((bill.money for bill in sums.bills), Decimal(0))
    causes: dict[str, list[Decimal | int]] = defaultdict(lambda: [0, Decimal(0)])
    for line in sums.lines:
        causes[line.cause][0] += line.units
        causes[line.cause][1] += line.money
    by_cause = [
        (cause.replace("_", " "), int(units), _money(Decimal(money)))
        for cause, (units, money) in sorted(causes.items(), key=lambda item: -item[1][0])
    ]
    by_entity = [
        (
            line.namespace,
            line.entity or "(the namespace)",
            line.cause.replace("_", " "),
            line.operations,
            line.units,
            _money(line.money),
        )
        for line in sums.lines[:LINES_SHOWN]
    ]
    left_out = (
        notice("warn", f"{sums.unusable:,} files of the log cannot be read and are not included.")
        if sums.unusable
        else None
    )
    values = (
        ("This month so far", f"{money_text(round(whole, 2))} {sheet.currency}"),
        ("Billed operations", f"{sum(bill.units for bill in sums.bills):,}"),
    )
    empty = "Nothing was charged this month."
    return section(
        "Month to date",
        figures(values),
        left_out,
        table(
            ("Namespace", "Billed", "Bytes", "For operations", "For bandwidth", "Base", "Money"),
            bills,
            "By namespace",
            empty=empty,
        ),
        el("h3", "By cause"),
        table(("Cause", "Billed", "Money"), by_cause, "By cause", empty=empty),
        el("h3", "By entity"),
        table(("Namespace", "Entity", "Cause", "Operations", "Billed", "Money"), by_entity, "By entity", empty=empty),
    )


def _estimate(visit: Visit, sheet: PriceSheet) -> Markup:
    query = visit.query
    is_asked = query.get("do") == "estimate"
    usual = {
        "queues": "10",
        "syphons": "1",
        "processes": "1",
        "entities": "1",
        "size": "1024",
        "poll": "1m",
        "ping_interval": "1m",
        "failover_interval": "0s",
        "outage": "0s",
        "rate": "50",
    }
    names = {
        "queues": "Backlog queues",
        "size": "Bytes per message",
        "rate": "Messages per second",
        "outage": "Outage lasts",
    }
    fields = [
        field(
            names.get(name, name.replace("_", " ").capitalize()),
            text_input(name, query.get(name, text) if is_asked else text),
        )
        for name, text in usual.items()
    ]
    asked = form(
        "/bill",
        hidden(do="estimate", plan=query.get("plan")),
        el("div", *fields, class_="grid"),
        button("Estimate", "quiet"),
        method="get",
        class_="stack",
    )
    shown: Child = None
    if is_asked:
        try:
            deployment = read_deployment(query)
            shown = _estimated(estimate(deployment, sheet.plan(query.get("plan") or None)), deployment)
        except ArgumentError as wrong:
            shown = notice("bad", str(wrong))
    return section("Estimate a pair", asked, shown, id_="estimate")


def read_deployment(query: Mapping[str, str]) -> Deployment:
    counts = {}
    for name in COUNTS:
        text = query.get(name, "").strip()
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise ArgumentError(f"{name.capitalize()}: '{text}' is not a whole number.")
        counts["backlog_queues" if name == "queues" else name] = int(text)
    durations = {name: _duration(name, query.get(name, "")) for name in DURATIONS}
    try:
        rate = Fraction(query.get("rate", "0").strip() or "0")
    except (ValueError, ZeroDivisionError):
        raise ArgumentError("Messages per second must be a number such as 50 or 0.2.") from None
    if rate > 1_000_000_000:
        raise ArgumentError("Messages per second: at most 1,000,000,000.")
    return Deployment(**counts, **durations, rate=rate)  # type: ignore[arg-type]


def _duration(name: str, text: str) -> timedelta:
    try:
        return parse_duration(text.strip())
    except ArgumentError as wrong:
        raise ArgumentError(f"{name.replace('_', ' ').capitalize()}: {wrong}") from None


def _estimated(result: Estimate, deployment: Deployment) -> Markup:
    rows = [
        (
            line.name,
            line.when.value,
            Cell(count_text(line.operations(HOURS_A_DAY)), str(line.operations(HOURS_A_DAY)), is_number=True),
            Cell(count_text(line.operations(HOURS_IN_30_DAYS)), str(line.operations(HOURS_IN_30_DAYS)), is_number=True),
            _money(result.list_money(line.operations(HOURS_IN_30_DAYS))),
            el("code", line.formula),
        )
        for line in result.lines
    ]
    total = figures((("30 days with this outage", money_text(result.money)),))
    advice = [notice("warn", text) for text in warnings(deployment)]
    heads = ("Operations", "When", "A day", "30 days", "Cost of 30 days", "Formula per hour")
    return join(total, table(heads, rows, "Estimate"), *advice)


async def _what_if(visit: Visit, sheet: PriceSheet, folders: Sequence[Path]) -> Markup:
    query = visit.query
    is_asked = query.get("do") == "what-if"
    asked = form(
        "/bill",
        hidden(do="what-if", plan=query.get("plan")),
        el(
            "div",
            field(
                "Another poll of the syphon",
                text_input("poll", query.get("poll", "") if is_asked else ""),
                "Such as 5m",
            ),
            field("Another number of syphons", text_input("syphons", query.get("syphons", "") if is_asked else "")),
            field(
                "Another time between pings",
                text_input("ping_interval", query.get("ping_interval", "") if is_asked else ""),
            ),
            class_="grid",
        ),
        check_box("without_pairing", "Without a pair", is_checked=is_asked and query.get("without_pairing") == "on"),
        button("What if", "quiet"),
        method="get",
        class_="stack",
    )
    shown: Child = None
    if is_asked:
        try:
            change = _change(query)
            plan = sheet.plan(query.get("plan") or None)
            found = await asyncio.to_thread(lambda: what_if(count_log(open_logs(list(folders))), change, plan, plan))
            shown = _compared(found)
        except ArgumentError as wrong:
            shown = notice("bad", str(wrong))
    return section("What if", asked, shown)


def _change(query: Mapping[str, str]) -> Change:
    syphons = query.get("syphons", "").strip()
    if syphons and not (syphons.isascii() and syphons.isdigit() and len(syphons) < 7):
        raise ArgumentError(f"'{syphons}' is not a number of syphons.")
    poll, ping_interval = (
        _duration(name, query[name]) if query.get(name, "").strip() else None for name in ("poll", "ping_interval")
    )
    return Change(
        poll=poll,
        ping_interval=ping_interval,
        syphons=int(syphons) if syphons else None,
        without_pairing=query.get("without_pairing") == "on",
    )


def _compared(found: Comparison) -> Markup:
    rows = [
        (
            line.cause.replace("_", " "),
            line.path,
            line.units,
            line.units_then,
            _money(line.money),
            _money(line.money_then),
            line.why,
        )
        for line in found.lines
    ]
    values = (
        ("As it is", money_text(found.money)),
        ("As it would be", money_text(found.money_then)),
        ("Difference", money_text(found.money_then - found.money)),
    )
    heads = ("Cause", "Way", "Billed", "Billed then", "Money", "Money then", "Why")
    return join(
        figures(values),
        table(heads, rows, "What if", empty="The log is empty."),
        *(notice("plain", text) for text in found.notes),
    )


async def _explain(visit: Visit, sheet: PriceSheet, folders: Sequence[Path]) -> Markup:
    message_id = visit.query.get("message", "").strip()
    asked = form(
        "/bill",
        hidden(plan=visit.query.get("plan")),
        field("Message id", text_input("message", message_id)),
        button("Explain", "quiet"),
        method="get",
        class_="row",
    )
    shown: Child = None
    if message_id:
        plan = sheet.plan(visit.query.get("plan") or None)
        shown = _explained(await asyncio.to_thread(lambda: explain(open_logs(list(folders)), message_id, plan)))
    return section("What one message cost", asked, shown)


def _explained(found: Explanation) -> Markup:
    if not found.steps:
        more = (
            f" {found.aggregated:,} operations were logged as sums, without message ids; this one may be among them."
            if found.aggregated
            else ""
        )
        return notice("plain", f"No operation on a message '{found.message_id}' is in the log.{more}")
    rows = [
        (
            Cell(time_text(step.at) or "", step.at.isoformat()),
            step.namespace,
            step.entity,
            step.meaning,
            step.units,
            _money(step.money),
            step.who,
        )
        for step in found.steps
    ]
    values = (
        ("Billed operations", f"{found.units:,}"),
        ("Money", money_text(found.money)),
        ("At list price", money_text(found.list_money)),
    )
    return join(
        figures(values),
        table(("At", "Namespace", "Entity", "What happened", "Billed", "Money", "Who"), rows, "Steps of the message"),
    )


ROUTES = (("GET", "/bill", show),)
