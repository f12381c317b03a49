"""Pairing: two namespaces, what waits in the backlog and how fast it drains, events of the last day; syphon and rehearsal."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from twinbus.errors import ArgumentError, EntityNotFound, NotImplementedHere, Unauthorized
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Child, Markup, el, join
from twinbus.portal.html.parts import (
    Cell,
    address,
    button,
    check_box,
    choice,
    field,
    figure,
    figures,
    form,
    link,
    notice,
    section,
    size_text,
    table,
    text_input,
    time_text,
)
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.namespaces.sentences import sentence_of
from twinbus.portal.screens.live import event, stream
from twinbus.portal.screens.operations import log_folders, pair_events
from twinbus.portal.screens.overview import state_of
from twinbus.portal.visit import Visit, go_to
from twinbus.portal.work.programs import running

INTERVAL_S = 3.0
EVENTS_SHOWN = 100
DURATION_MAX_S = 3_600
ALONE = "A pair needs two namespaces. Start a second one, or start the portal with --connection-string."


def _pair(visit: Visit) -> tuple[str, str] | None:
    """The two that the address names, or the first two: those of 'twinbus up' have the usual names."""
    names = visit.visitor.directory.names()
    if len(names) < 2:
        return None
    primary = visit.query.get("primary") or ("primary" if "primary" in names else names[0])
    others = [name for name in names if name != primary]
    secondary = visit.query.get("secondary") or ("secondary" if "secondary" in others else others[0])
    if primary == secondary:
        raise ArgumentError("The primary and the secondary are the same namespace. Choose two.")
    return primary, secondary


async def show(visit: Visit) -> Response:
    pair = _pair(visit)
    if pair is None:
        return page(visit.frame("pairing"), "Pairing", notice("plain", ALONE), _rehearsal(visit))
    primary, secondary = pair
    names = visit.visitor.directory.names()
    select = form(
        "/pairing",
        field("Primary", choice("primary", names, primary)),
        field("Secondary", choice("secondary", names, secondary)),
        button("Show", "quiet"),
        method="get",
        class_="row",
    )
    cards = await asyncio.gather(
        *(_card(visit, name, role) for name, role in ((primary, "primary"), (secondary, "secondary")))
    )
    backlog = el(
        "div",
        el("div", backlog_part(await read_backlog(visit, secondary), None), id="backlog"),
        data_live=address("/live/pairing", primary=primary, secondary=secondary),
    )
    parts: list[Child] = [section("The two namespaces", select, el("div", *cards, class_="two"))]
    parts += [section("Backlog", backlog), _syphon(primary, secondary), await _events(visit), _rehearsal(visit)]
    return page(visit.frame("pairing"), "Pairing", *parts)


async def _card(visit: Visit, name: str, role: str) -> Markup:
    watch = visit.services.watch(visit.visitor.directory.get(name))
    reading = await watch.now()
    return el("div", el("h3", f"{role.capitalize()}: ", link(name, f"/ns/{name}/entities")), state_of(watch, reading))


@dataclass(frozen=True, slots=True)
class Waiting:
    queue: str
    destination: str | None
    count: int | None
    size_bytes: int | None
    is_all: bool


@dataclass(frozen=True, slots=True)
class Backlog:
    at_s: float
    rows: Sequence[Waiting]
    problem: str = ""

    @property
    def count(self) -> int:
        return sum(row.count or 0 for row in self.rows)


async def read_backlog(visit: Visit, secondary: str) -> Backlog:
    bus = visit.visitor.directory.get(secondary)
    try:
        try:
            said = await bus.ask("GET", "/$backlog")
            rows = [
                Waiting(row["queue"], row["destination"], row["waiting"], row["size_bytes"], row["is_all"])
                for row in said
            ]
        except (NotImplementedHere, Unauthorized):
            rows = await _surveyed(visit, bus)
        return Backlog(time.monotonic(), rows)
    except Exception as error:
        text = sentence_of(error)
        if text is None:
            raise
        return Backlog(time.monotonic(), [], text)


async def _surveyed(visit: Visit, bus: Bus) -> list[Waiting]:
    """Where the namespace does not count by itself: by peeking."""
    from twinbus.pairing.syphon.survey import survey

    listed = await visit.services.lists.of(bus)
    queues = tuple(each.name for each in listed.entities if each.is_backlog)
    return [
        Waiting(row.queue, row.path, row.count, row.size_bytes, row.is_all)
        for row in await survey(await bus.amqp(), queues)
    ]


def backlog_part(now: Backlog, before: Backlog | None) -> Markup:
    """The part of the page that changes. The rate is what the backlog lost since the reading before."""
    if now.problem:
        return notice("warn", now.problem)
    rate = 0.0
    if before is not None and not before.problem and now.at_s > before.at_s:
        rate = (before.count - now.count) / (now.at_s - before.at_s)
    left: Child = "–"
    if rate > 0:
        left = f"{timedelta(seconds=round(now.count / rate))}"
    direction = "Drains by" if rate >= 0 else "Grows by"
    values: list[tuple[str, Child]] = [
        ("Waiting", figure(now.count)),
        (direction, f"{abs(rate):,.1f}/s"),
        ("Time left", left),
    ]
    rows = [
        (
            row.queue,
            row.destination or "(not from a paired sender)",
            row.count,
            None if row.size_bytes is None else Cell(size_text(row.size_bytes), row.size_bytes, is_number=True),
            "yes" if row.is_all else "no: more than was counted, or a store is down",
        )
        for row in now.rows
    ]
    empty = "Nothing waits in a backlog queue."
    return join(
        figures(values),
        table(("Backlog queue", "Destination", "Messages", "Size", "All counted"), rows, "Backlog", empty=empty),
    )


async def live(visit: Visit) -> Response:
    pair = _pair(visit)

    async def follow() -> AsyncIterator[str]:
        before = None
        while pair is not None:
            now = await read_backlog(visit, pair[1])
            yield event("backlog", backlog_part(now, before))
            # Counting reads messages, so a backlog that takes long to count is counted less often.
            took = time.monotonic() - now.at_s
            before = now
            await asyncio.sleep(max(INTERVAL_S, took * 50))

    return stream(follow())


async def _events(visit: Visit) -> Markup:
    try:
        folders = await log_folders(visit)
        found = await asyncio.to_thread(pair_events, folders, datetime.now(UTC) - timedelta(days=1))
    except EntityNotFound:
        text = "Events come from the operations logs of the namespaces, and none of those is on this machine."
        return section("The last day", notice("plain", text))
    rows = [
        (
            each.namespace,
            Cell(time_text(each.start) or "", each.start.isoformat()),
            Cell(time_text(each.end) or "", each.end.isoformat()),
            each.pings,
            each.saved,
            each.taken_home,
        )
        for each in found[:EVENTS_SHOWN]
    ]
    heads = ("Namespace", "From", "Until", "Pings", "Sent to the backlog", "Taken home")
    empty = "No ping, no message in the backlog, nothing moved to the primary: no failover in the last day."
    return section("The last day", table(heads, rows, "Failover events", empty=empty))


# Syphon and rehearsal


def _syphon(primary: str, secondary: str) -> Markup:
    return section(
        "Syphon",
        el(
            "p",
            "Moves messages from the backlog to where they were sent. It runs as a process and is stopped under 'Running work'.",
        ),
        form(
            address("/syphon", primary=primary, secondary=secondary),
            field("Maximum per second", text_input("rate", "", placeholder="no limit")),
            field("Name of the primary", text_input("name", "", placeholder="derived from its host")),
            check_box("until_empty", "Stop when nothing is left", is_checked=True),
            button("Start a syphon"),
            class_="row",
        ),
    )


def _named(visit: Visit, name: str) -> str:
    """As commands take it: the name of one on this machine, otherwise its connection string."""
    known = visit.visitor.directory.reach(name)
    return name if known.is_local else known.connection_string


async def start_syphon(visit: Visit) -> Response:
    pair, sent = _pair(visit), await visit.form()
    if pair is None:
        raise ArgumentError(ALONE)
    words = ["syphon", "--data", str(visit.services.settings.data)]
    words += ["--until-empty"] if sent.get("until_empty") == "on" else []
    rate = sent.get("rate", "").strip()
    words += [f"--primary-name={sent['name'].strip()}"] if sent.get("name", "").strip() else []
    words += ["--rate", str(_number(rate, 0.1, 1e9))] if rate else []
    environment = {"TWINBUS_PRIMARY": _named(visit, pair[0]), "TWINBUS_SECONDARY": _named(visit, pair[1])}
    title = f"Syphon from {pair[1]} to {pair[0]}"
    job = visit.services.jobs.start(title, "/pairing", visit.visitor.token, running(words, environment))
    return go_to(f"/jobs/{job.id}")


def _rehearsal(visit: Visit) -> Markup:
    return section(
        "Rehearse an outage",
        el(
            "p",
            "On a temporary pair on this machine: a paired and an unpaired sender, an outage, and an account of every message.",
        ),
        form(
            "/rehearse",
            field("Seconds", text_input("duration", "30", type="number", min=5, max=DURATION_MAX_S)),
            field("Messages per second", text_input("rate", "20", type="number", min=1, max=10000)),
            button("Start a rehearsal"),
            class_="row",
        ),
    )


async def rehearse(visit: Visit) -> Response:
    if visit.visitor.token:
        raise Unauthorized(
            "A rehearsal starts namespaces on the portal's machine. Start it there, with 'twinbus rehearse'."
        )
    sent = await visit.form()
    duration = _number(sent.get("duration", "30"), 5, DURATION_MAX_S)
    words = [
        "rehearse",
        "--duration",
        f"{duration:g}",
        "--rate",
        f"{_number(sent.get('rate', '20'), 1, 10_000):g}",
        "--engine",
        "process",
    ]
    job = visit.services.jobs.start("Rehearsal", "/pairing", visit.visitor.token, running(words, {}, makes_report=True))
    return go_to(f"/jobs/{job.id}")


def _number(text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ArgumentError(f"'{text}' is not a number.") from None
    if not least <= value <= most:
        raise ArgumentError(f"Use a number from {least:g} to {most:g}.")
    return value


ROUTES = (
    ("GET", "/pairing", show),
    ("GET", "/live/pairing", live),
    ("POST", "/syphon", start_syphon),
    ("POST", "/rehearse", rehearse),
)
