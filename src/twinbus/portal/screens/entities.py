"""Entities: all of a namespace in one tree with counts, searched by name; create, edit and delete with every property."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from starlette.responses import Response

from twinbus.errors import ArgumentError, Unauthorized
from twinbus.model.descriptions import FRAGMENT_COUNT
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Child, Markup, el, join
from twinbus.portal.html.parts import (
    Cell,
    TableCell,
    address,
    button,
    button_link,
    field,
    form,
    hidden,
    link,
    notice,
    section,
    size_text,
    table,
    tag,
    text_input,
)
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.namespaces.entity_list import EntityList, read_entity
from twinbus.portal.namespaces.entity_xml import DESCRIPTIONS, Entity, EntityType
from twinbus.portal.namespaces.sentences import sentence_of
from twinbus.portal.screens.overview import concerns_of
from twinbus.portal.screens.property_fields import client_values, edited_values, property_fields
from twinbus.portal.screens.rule_list import RuleText, read_rules
from twinbus.portal.visit import Visit, go_to

ROWS_MAX = 2_000
HEADS = ("Name", "Kind", "State", "Active", "Dead letters", "Scheduled", "Size")


async def show(visit: Visit) -> Response:
    name, wanted = visit.namespace, visit.query.get("q", "").strip()
    search = form(
        f"/ns/{name}/entities",
        field("Search by name", text_input("q", wanted, type="search", autofocus=True, aria_label="Search by name")),
        button("Search", "quiet"),
        method="get",
        class_="row",
        role="search",
    )
    try:
        listed = await visit.services.lists.fresh(visit.bus)
    except Unauthorized as refused:
        return page(visit.frame("entities"), "Entities", notice("warn", str(refused)), _by_path(name))
    found = matching(listed, wanted)
    opened = visit.query.get("open", "")
    rules = await _rules_below(visit.bus, listed, opened)
    rows = [row for each in found[:ROWS_MAX] for row in _rows(name, wanted, opened, each, rules)]
    cut = None
    if len(found) > ROWS_MAX:
        cut = notice("warn", f"The first {ROWS_MAX:,} of {len(found):,} entities. Search to see others.")
    text = "No entity matches." if wanted else "This namespace has no entities yet. Create a queue or a topic."
    count = el("p", f"{len(found):,} of {len(listed.entities):,} entities", class_="faint")
    tools = join(*(button_link(f"New {kind}", f"/ns/{name}/new", kind=kind) for kind in ("queue", "topic")))
    content = section("All entities", search, count, cut, table(HEADS, rows, "Entities", empty=text))
    return page(visit.frame("entities"), f"Entities of {name}", content, tools=tools)


def matching(listed: EntityList, wanted: str) -> list[Entity]:
    """Entities whose path has the text, with the topics above and the subscriptions below them."""
    if not wanted:
        return listed.entities
    text = wanted.casefold()
    topics = {each.topic for each in listed.entities if each.topic and text in each.name.casefold()}
    return [
        each
        for each in listed.entities
        if text in each.path.casefold() or (each.type is EntityType.TOPIC and each.name in topics)
    ]


async def _rules_below(bus: Bus, listed: EntityList, topic: str) -> Mapping[str, Sequence[RuleText]]:
    """The rules of the subscriptions of one topic, by the subscription's path."""
    below = listed.subscriptions(topic) if topic else []
    found = await asyncio.gather(*(read_rules(bus, topic, each.name) for each in below))
    return {each.path: rules for each, rules in zip(below, found, strict=True)}


def _rows(
    namespace: str, wanted: str, opened: str, each: Entity, rules: Mapping[str, Sequence[RuleText]]
) -> list[Sequence[TableCell]]:
    name: Child = link(each.name, f"/ns/{namespace}/entity", path=each.path)
    if each.type is EntityType.TOPIC and each.number("SubscriptionCount"):
        is_open = each.name == opened
        text = "hide rules" if is_open else "show rules"
        toggle = link(text, f"/ns/{namespace}/entities", q=wanted, open="" if is_open else each.name)
        name = join(name, " ", el("small", toggle))
    if each.topic is not None:
        name = el("span", "└ ", name, class_="below")
    size = each.size_bytes
    rows: list[Sequence[TableCell]] = [
        (
            Cell(name, each.path),
            each.type.value,
            state_tags(each),
            each.active,
            each.dead_letters,
            each.scheduled,
            None if size is None else Cell(size_text(size), size, is_number=True),
        )
    ]
    for rule in rules.get(each.path, ()):
        leads = link(rule.name, f"/ns/{namespace}/rules", path=each.path, rule=rule.name)
        shown = el("span", "└ └ ", leads, class_="below")
        rows.append((Cell(shown, rule.name), "rule", el("code", rule.text), None, None, None, None))
    return rows


def state_tags(each: Entity) -> Cell:
    texts = [("", "partitioned")] if each.is_partitioned else []
    texts += [("", "sessions")] if each.has_sessions else []
    texts += [("", "backlog")] if each.is_backlog else []
    texts += [(kind, text) for kind, text in concerns_of(each) if "dead letters" not in text]
    shown = join(*(join(tag(text, kind), " ") for kind, text in texts))
    return Cell(shown or "–", ", ".join(text for _, text in texts) or each.status)


def _by_path(namespace: str) -> Markup:
    return section(
        "Open an entity by its path",
        el("p", "This key cannot list entities. If it has a right on an entity, open the entity by its path."),
        form(
            f"/ns/{namespace}/entity",
            field("Path", text_input("path", "", placeholder="orders, or events/Subscriptions/audit", required=True)),
            button("Open"),
            method="get",
            class_="row",
        ),
    )


# Create, edit, delete


def kind_of(text: str) -> EntityType:
    try:
        return EntityType(text)
    except ValueError:
        raise ArgumentError("Only queues, topics and subscriptions can be created here.") from None


async def new(visit: Visit) -> Response:
    kind = kind_of(visit.query.get("kind", "queue"))
    return _new_page(visit, kind, visit.query.get("topic", ""), {}, "")


def _new_page(visit: Visit, kind: EntityType, topic: str, given: Mapping[str, str], problem: str) -> Response:
    above = f" of {topic}" if kind is EntityType.SUBSCRIPTION else ""
    label = f"Name of the {kind.value}"
    fields = property_fields(DESCRIPTIONS[kind], given or None, is_new=True)
    content = section(
        "Properties",
        notice("bad", problem) if problem else None,
        form(
            f"/ns/{visit.namespace}/new",
            hidden(kind=kind.value, topic=topic or None),
            field(label, text_input("name", given.get("name", ""), required=True, autofocus=True, maxlength=260)),
            fields,
            button(f"Create the {kind.value}"),
            class_="stack",
        ),
    )
    trail = (link(visit.namespace, f"/ns/{visit.namespace}/entities"),)
    status = 400 if problem else 200
    return page(visit.frame("entities"), f"New {kind.value}{above}", content, trail=trail, status=status)


async def create(visit: Visit) -> Response:
    sent = await visit.form()
    kind, name, topic = kind_of(sent.get("kind", "")), sent.get("name", "").strip(), sent.get("topic", "")
    try:
        values = client_values(DESCRIPTIONS[kind], sent, is_new=True)
        async with visit.bus.administration() as client:
            if kind is EntityType.QUEUE:
                await client.create_queue(name, **values)
            elif kind is EntityType.TOPIC:
                await client.create_topic(name, **values)
            else:
                await client.create_subscription(topic, name, **values)
    except Exception as error:
        return _again(error, lambda text: _new_page(visit, kind, topic, sent, text))
    visit.services.lists.changed(visit.bus)
    path = name if kind is not EntityType.SUBSCRIPTION else f"{topic}/Subscriptions/{name}"
    return go_to(address(f"/ns/{visit.namespace}/entity", path=path))


def _again(error: Exception, draw: Callable[[str], Response]) -> Response:
    """The form as it was sent, with what is wrong. Raises what is not for the reader."""
    text = sentence_of(error)
    if text is None:
        raise error
    return draw(text)


async def edit(visit: Visit) -> Response:
    return _edit_page(visit, await read_entity(visit.bus, visit.path), None, "")


def _edit_page(visit: Visit, entity: Entity, given: Mapping[str, str] | None, problem: str) -> Response:
    kind = DESCRIPTIONS[entity.type]
    note = f"Partitioned: {FRAGMENT_COUNT} fragments. " if entity.is_partitioned else ""
    content = section(
        "Properties",
        notice("bad", problem) if problem else None,
        form(
            address(f"/ns/{visit.namespace}/edit", path=entity.path),
            hidden(enable_partitioning="on" if entity.is_partitioned else None),
            property_fields(kind, given or edited_values(entity), is_new=False),
            el("p", f"{note}Properties that are fixed at creation are not shown.", class_="faint"),
            button("Save"),
            class_="stack",
        ),
    )
    trail = (
        link(visit.namespace, f"/ns/{visit.namespace}/entities"),
        link(entity.path, f"/ns/{visit.namespace}/entity", path=entity.path),
    )
    return page(visit.frame("entities"), f"Edit {entity.name}", content, trail=trail, status=400 if problem else 200)


async def save(visit: Visit) -> Response:
    sent = await visit.form()
    entity = await read_entity(visit.bus, visit.path)
    try:
        values = client_values(DESCRIPTIONS[entity.type], sent, is_new=False)
        async with visit.bus.administration() as client:
            if entity.type is EntityType.QUEUE:
                await client.update_queue(await client.get_queue(entity.name), **values)
            elif entity.type is EntityType.TOPIC:
                await client.update_topic(await client.get_topic(entity.name), **values)
            else:
                before = await client.get_subscription(entity.topic or "", entity.name)
                await client.update_subscription(entity.topic or "", before, **values)
    except Exception as error:
        return _again(error, lambda text: _edit_page(visit, entity, sent, text))
    visit.services.lists.changed(visit.bus)
    return go_to(address(f"/ns/{visit.namespace}/entity", path=entity.path))


async def delete(visit: Visit) -> Response:
    """Only if the name was typed: an entity goes with everything in it."""
    sent = await visit.form()
    entity = await read_entity(visit.bus, visit.path)
    if sent.get("confirm", "").strip() != entity.name:
        raise ArgumentError(f"Nothing was deleted: type the name '{entity.name}' to confirm.")
    async with visit.bus.administration() as client:
        if entity.type is EntityType.QUEUE:
            await client.delete_queue(entity.name)
        elif entity.type is EntityType.TOPIC:
            await client.delete_topic(entity.name)
        else:
            await client.delete_subscription(entity.topic or "", entity.name)
    visit.services.lists.changed(visit.bus)
    return go_to(f"/ns/{visit.namespace}/entities")


ROUTES = (
    ("GET", "/ns/{namespace}/entities", show),
    ("GET", "/ns/{namespace}/new", new),
    ("POST", "/ns/{namespace}/new", create),
    ("GET", "/ns/{namespace}/edit", edit),
    ("POST", "/ns/{namespace}/edit", save),
    ("POST", "/ns/{namespace}/delete", delete),
)
