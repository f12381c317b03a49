"""Overview: every namespace with its health, stores, rates over the last minutes, and the entities that need a person."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack

from starlette.responses import Response

from twinbus.errors import MessagingError
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Markup, el, join
from twinbus.portal.html.parts import Cell, figures, link, notice, section, table, tag
from twinbus.portal.html.plots import Line, line_plot
from twinbus.portal.namespaces.entity_list import EntityList
from twinbus.portal.namespaces.entity_xml import Entity
from twinbus.portal.namespaces.sentences import sentence_of
from twinbus.portal.namespaces.watch import (
    KEPT_COUNT,
    LOCKS_LOST,
    MESSAGES_IN,
    MESSAGES_OUT,
    Reading,
    Watch,
)
from twinbus.portal.screens.live import event, stream
from twinbus.portal.visit import Visit

FULL_FROM = 0.8
CONCERNS_MAX = 50
KINDS = {"healthy": "good", "limited": "warn", "full": "warn", "damaged": "warn"}
NO_NAMESPACE = (
    "No namespace runs on this machine with its data in the portal's folder, and none was given. "
    "Start one with 'twinbus up', or start the portal with --connection-string."
)


async def show(visit: Visit) -> Response:
    names = visit.visitor.directory.names()
    cards = await asyncio.gather(*(_card(visit, name) for name in names))
    content = el("div", *cards, data_live="/live/overview") if cards else notice("plain", NO_NAMESPACE)
    return page(visit.frame("overview"), "Overview", content)


async def _card(visit: Visit, name: str) -> Markup:
    bus = visit.visitor.directory.get(name)
    watch = visit.services.watch(bus)
    reading, listed = await asyncio.gather(watch.now(), visit.services.lists.of(bus), return_exceptions=True)
    assert isinstance(reading, Reading), reading
    state = el("div", state_of(watch, reading), id=f"state-{name}")
    if isinstance(listed, EntityList):
        growing = visit.services.lists.new_dead_letters(bus)
        needs = join(_sums(listed), _concerns(name, listed, growing, watch.growth(LOCKS_LOST)))
    else:
        needs = notice("warn", _why(listed))
    return section(name, state, needs, tools=link("Entities", f"/ns/{name}/entities"))


def _why(error: BaseException | EntityList) -> str:
    text = (
        str(error)
        if isinstance(error, MessagingError)
        else sentence_of(error)
        if isinstance(error, Exception)
        else None
    )
    return text or "The entities cannot be listed."


def state_of(watch: Watch, reading: Reading) -> Markup:
    """The part of a card that changes."""
    if reading.problem is not None:
        return notice("bad", reading.problem)
    if reading.is_elsewhere:
        return notice("plain", "Not a twinbus namespace: it does not report health, stores and rates.")
    status = str(reading.health.get("status", "unknown"))
    stores = reading.metrics.get("twinbus_store_up", {})
    up = sum(value > 0 for value in stores.values())
    values = (
        ("Health", tag(status, KINDS.get(status, "bad"))),
        ("Stores", f"{up} of {len(stores)} work"),
        ("Connections", f"{reading.sum('twinbus_connections'):,.0f}"),
    )
    lines = (
        Line("in", "in", watch.rates(MESSAGES_IN)),
        Line("out", "out", watch.rates(MESSAGES_OUT)),
    )
    return el("div", figures(values), line_plot(lines, "Messages per second", KEPT_COUNT), class_="beside")


def _sums(listed: EntityList) -> Markup:
    kinds = {
        kind: sum(each.type.value == kind for each in listed.entities) for kind in ("queue", "topic", "subscription")
    }
    text = ", ".join(f"{count:,} {kind}{'' if count == 1 else 's'}" for kind, count in kinds.items())
    waiting = sum(each.active or 0 for each in listed.entities)
    dead = sum(each.dead_letters or 0 for each in listed.entities)
    more = "" if listed.is_all else " The namespace has more entities than are shown."
    return el("p", f"{text}; {waiting:,} messages wait, {dead:,} dead letters.{more}")


def _concerns(namespace: str, listed: EntityList, growing: Mapping[str, float], lost: Mapping[str, float]) -> Markup:
    found = [
        (each, reasons)
        for each in listed.entities
        if (reasons := concerns_of(each, growing.get(each.path, 0.0), lost.get(each.path, 0.0)))
    ]
    if not found:
        return notice("good", "No entity needs attention.")
    rows = [
        (
            link(each.path, f"/ns/{namespace}/entity", path=each.path),
            Cell(join(*(join(tag(text, kind), " ") for kind, text in reasons)), "; ".join(text for _, text in reasons)),
            each.active,
            each.dead_letters,
        )
        for each, reasons in found[:CONCERNS_MAX]
    ]
    more = el("p", f"And {len(found) - CONCERNS_MAX:,} more.", class_="faint") if len(found) > CONCERNS_MAX else None
    return join(table(("Needs attention", "Why", "Active", "Dead letters"), rows, "Entities that need attention"), more)


def concerns_of(entity: Entity, growth: float = 0.0, locks_lost: float = 0.0) -> Sequence[tuple[str, str]]:
    """What a person should know of, each with how bad it is."""
    reasons = []
    if entity.is_limited:
        reasons.append(("bad", "Limited: a fragment is unavailable"))
    if entity.status != "Active":
        reasons.append(("warn", entity.status))
    if growth > 0:
        reasons.append(("bad", f"{growth:,.0f} new dead letters"))
    elif entity.dead_letters:
        reasons.append(("warn", f"{entity.dead_letters:,} dead letters"))
    if entity.full_share >= FULL_FROM:
        reasons.append(("bad", f"{entity.full_share:.0%} full"))
    if locks_lost > 0:
        reasons.append(("warn", f"{locks_lost:,.0f} locks lost"))
    return reasons


async def live(visit: Visit) -> Response:
    directory, services = visit.visitor.directory, visit.services

    async def follow() -> AsyncIterator[str]:
        watches = {name: services.watch(directory.get(name)) for name in directory.names()}
        async with AsyncExitStack() as looking:
            for watch in watches.values():
                await looking.enter_async_context(watch.looking())
            waiting = {asyncio.create_task(watch.changed()): name for name, watch in watches.items()}
            try:
                while waiting:
                    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        name = waiting.pop(task)
                        yield event(f"state-{name}", state_of(watches[name], task.result()))
                        waiting[asyncio.create_task(watches[name].changed())] = name
            finally:
                for task in waiting:
                    task.cancel()

    return stream(follow())


ROUTES = (("GET", "/", show), ("GET", "/live/overview", live))
