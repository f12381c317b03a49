"""One entity: what it holds, its fragments as a heat map, its rates, its settings, and what can be done with it."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence

from starlette.responses import Response

from twinbus.client.entity_extras import FragmentHead
from twinbus.errors import MessagingError, NotImplementedHere, Unauthorized
from twinbus.model.durations import short_duration
from twinbus.model.entity_properties import Kind, properties_of
from twinbus.model.iso8601 import read_duration
from twinbus.model.paths import parse_address, strip_authority
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Child, Markup, el, join
from twinbus.portal.html.parts import (
    address,
    button,
    button_link,
    facts,
    field,
    figure,
    figures,
    form,
    link,
    notice,
    section,
    size_text,
    table,
    tag,
    text_input,
    time_text,
)
from twinbus.portal.html.plots import HeatCell, Line, heat_map, line_plot
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.namespaces.entity_list import read_entity
from twinbus.portal.namespaces.entity_xml import DESCRIPTIONS, Entity, EntityType
from twinbus.portal.namespaces.watch import KEPT_COUNT, LOCKS_LOST, MESSAGES_IN, MESSAGES_OUT, RECEIVERS, Watch
from twinbus.portal.screens.live import event, stream
from twinbus.portal.screens.overview import concerns_of
from twinbus.portal.screens.property_fields import label_of
from twinbus.portal.screens.tabs import entity_tabs, trail
from twinbus.portal.visit import Visit

HEADS_INTERVAL_S = 2.0
NO_FRAGMENTS = "This namespace does not show its fragments to clients."
NOT_LISTED = "This key cannot read the settings of this entity; messages are shown if it has Listen."


async def show(visit: Visit) -> Response:
    path = parse_address(visit.path).entity_path
    try:
        entity: Entity | None = await read_entity(visit.bus, path)
    except Unauthorized:
        entity = None
    name, is_topic = visit.namespace, entity is not None and entity.type is EntityType.TOPIC
    parts: list[Child] = [
        entity_tabs(visit, "entity", is_topic=is_topic, has_sessions=None if entity is None else entity.has_sessions)
    ]
    if entity is None:
        parts.append(notice("warn", NOT_LISTED))
    else:
        parts.append(section("What it holds", _counts(entity), _concerns(entity)))
    if not is_topic:
        live = await live_part(visit, path)
        parts.append(el("div", el("div", live, id="fragments"), data_live=address(f"/ns/{name}/live", path=path)))
    if entity is not None and is_topic:
        parts.append(await _subscriptions(visit, entity))
    if entity is not None:
        parts += [section("Settings", _settings(visit, entity)), _danger(visit, entity)]
    kind = "Entity" if entity is None else entity.type.value.capitalize()
    tools = None if entity is None else button_link("Edit", f"/ns/{name}/edit", "quiet", path=path)
    title = f"{kind} {parse_address(path).subscription or path}"
    return page(visit.frame("entities"), title, *parts, trail=trail(visit, path), tools=tools)


def _counts(entity: Entity) -> Markup:
    values: list[tuple[str, Child]] = []
    for name, count in (
        ("Active", entity.active),
        ("Dead letters", entity.dead_letters),
        ("Scheduled", entity.scheduled),
    ):
        if count is not None and not (entity.type is EntityType.TOPIC and name != "Scheduled"):
            values.append((name, figure(count)))
    if entity.size_bytes is not None:
        values.append(("Size", f"{size_text(entity.size_bytes)} ({entity.full_share:.1%})"))
    largest = entity.number("MaxSizeInMegabytes")
    if largest is not None:
        values.append(
            ("Largest size", f"{largest / 1024:g} GB" + (" in 16 fragments" if entity.is_partitioned else ""))
        )
    return figures(values)


def _concerns(entity: Entity) -> Markup | None:
    found = concerns_of(entity)
    return el("p", *(join(tag(text, kind), " ") for kind, text in found)) if found else None


async def _subscriptions(visit: Visit, entity: Entity) -> Markup:
    listed = await visit.services.lists.fresh(visit.bus)
    rows = [
        (link(each.name, f"/ns/{visit.namespace}/entity", path=each.path), each.status, each.active, each.dead_letters)
        for each in listed.subscriptions(entity.name)
    ]
    new = button_link("New subscription", f"/ns/{visit.namespace}/new", kind="subscription", topic=entity.name)
    text = "No subscription: messages sent here are discarded."
    return section(
        "Subscriptions",
        table(("Name", "Status", "Active", "Dead letters"), rows, "Subscriptions", empty=text),
        tools=new,
    )


def _settings(visit: Visit, entity: Entity) -> Markup:
    shown: dict[str, Child] = {}
    for each in properties_of(DESCRIPTIONS[entity.type]):
        text = entity.elements.get(each.element)
        if not text:
            continue
        value: Child = text
        if each.kind is Kind.DURATION:
            value = short_duration(read_duration(text, each.element))
        elif each.kind is Kind.FLAG:
            value = "yes" if text == "true" else "no"
        elif each.kind is Kind.TARGET:
            target = strip_authority(text)
            value = link(target, f"/ns/{visit.namespace}/entity", path=target)
        shown[label_of(each)] = value
    for words, element in (("Created", "CreatedAt"), ("Updated", "UpdatedAt"), ("Last used", "AccessedAt")):
        shown[words] = time_text(entity.time(element))
    return facts(shown)


def _danger(visit: Visit, entity: Entity) -> Markup:
    what = (
        "with its subscriptions and every message in them"
        if entity.type is EntityType.TOPIC
        else "and every message in it"
    )
    confirm = form(
        address(f"/ns/{visit.namespace}/delete", path=entity.path),
        field(f"Type {entity.name} to delete it {what}", text_input("confirm", "", required=True, autocomplete="off")),
        button("Delete", "bad"),
        class_="row",
    )
    return section("Delete", el("details", el("summary", f"Delete this {entity.type.value}"), confirm))


# The part that changes


async def live(visit: Visit) -> Response:
    path = parse_address(visit.path).entity_path
    watch = visit.services.watch(visit.bus)

    async def follow() -> AsyncIterator[str]:
        before: Mapping[int, FragmentHead] = {}
        at_s = 0.0
        async with watch.looking():
            while True:
                now_s = time.monotonic()
                heads = await read_heads(visit.bus, path)
                yield event("fragments", await _drawn(visit, path, heads, before, now_s - at_s))
                if not isinstance(heads, str):
                    before, at_s = {head.fragment: head for head in heads}, now_s
                await asyncio.sleep(HEADS_INTERVAL_S)

    return stream(follow())


async def live_part(visit: Visit, path: str) -> Markup:
    return await _drawn(visit, path, await read_heads(visit.bus, path), {}, 0.0)


async def read_heads(bus: Bus, path: str) -> Sequence[FragmentHead] | str:
    """The fragments, or why they are not known."""
    try:
        return await (await bus.amqp()).extras(path).fragment_heads()
    except NotImplementedHere:
        return NO_FRAGMENTS
    except (MessagingError, OSError) as error:
        return str(error)


async def _drawn(
    visit: Visit, path: str, heads: Sequence[FragmentHead] | str, before: Mapping[int, FragmentHead], seconds: float
) -> Markup:
    watch = visit.services.watch(visit.bus)
    rates = _rates(watch, path)
    if isinstance(heads, str):
        return join(rates, notice("plain", heads))
    title = f"{len(heads)} fragments" if len(heads) > 1 else "One fragment"
    nodes = await _nodes_of_stores(visit.bus)
    used = sorted({node for head in heads if (node := nodes.get(head.store))})
    cells = [
        _cell(head, nodes.get(head.store) if len(used) > 1 else None, before.get(head.fragment), seconds)
        for head in heads
    ]
    # Once where it is the same for all of them.
    served = el("p", f"Served by {used[0]}.") if len(used) == 1 else None
    return join(rates, section(title, heat_map(cells, "Fragments by number of messages"), served))


async def _nodes_of_stores(bus: Bus) -> Mapping[int | None, str]:
    """Which machine and process serves each messaging store; nothing where that is not said, or not to this key."""
    try:
        stores = await bus.ask("GET", "/$stores")
    except (MessagingError, OSError):
        return {}
    return {store["index"]: store["owner"] for store in stores if store.get("owner")}


def _rates(watch: Watch, path: str) -> Markup | None:
    last = watch.last
    if last is None or last.is_elsewhere or last.problem is not None:
        return None
    lines = (
        Line("in", "in", watch.rates(MESSAGES_IN, path)),
        Line("out", "out", watch.rates(MESSAGES_OUT, path)),
    )
    values: list[tuple[str, Child]] = []
    values.append(("Receivers", figure(int(last.of(RECEIVERS, path)))))
    lost = last.of(LOCKS_LOST, path)
    if lost:
        values.append(("Locks lost since the start", figure(int(lost))))
    return section(
        "Rates", el("div", figures(values), line_plot(lines, "Messages per second", KEPT_COUNT), class_="beside")
    )


def _cell(head: FragmentHead, node: str | None, before: FragmentHead | None, seconds: float) -> HeatCell:
    depth = head.active + head.deferred + head.scheduled
    place = [] if head.store is None else [f"store {head.store}"]
    lines = [f"{depth:,} message{'' if depth == 1 else 's'}", size_text(head.size_bytes), *place]
    if before is not None and seconds > 0 and head.is_available and before.is_available:
        lines.insert(1, f"{max(0, head.last_number - before.last_number) / seconds:,.1f}/s in")
    if not head.is_available:
        lines = place
    lines += [] if node is None else [node]
    return HeatCell(f"#{head.fragment}", float(depth), lines, head.is_available)


ROUTES = (("GET", "/ns/{namespace}/entity", show), ("GET", "/ns/{namespace}/live", live))
