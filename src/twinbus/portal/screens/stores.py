"""Stores and faults: what works, and switches to break it, with the heat map of an entity beside them."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from twinbus.errors import ArgumentError, MessagingError, NotImplementedHere
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Child, Markup, el, join
from twinbus.portal.html.parts import (
    address,
    button,
    choice,
    field,
    form,
    hidden,
    notice,
    section,
    table,
    tag,
    text_input,
)
from twinbus.portal.namespaces.sentences import sentence_of
from twinbus.portal.screens.entity import live_part
from twinbus.portal.visit import Visit, go_to

NOT_HERE = "Only twinbus namespaces have messaging stores and faults. This is not one."
CONDITIONS = {"up": "good"}
ACTIONS = {
    "down": "Switch off",
    "up": "Switch on",
    "slow": "Slow down",
    "lose-ack": "Lose acknowledgements",
}


async def show(visit: Visit) -> Response:
    name = visit.namespace
    try:
        stores: Sequence[Mapping[str, Any]] = await visit.bus.ask("GET", "/$stores")
    except NotImplementedHere:
        return page(visit.frame("stores"), f"Stores of {name}", notice("plain", NOT_HERE))
    rows = [
        (
            store["index"],
            tag(store["condition"], CONDITIONS.get(store["condition"], "bad")),
            store.get("owner") or None,
            _faults_of(store),
            _switch(visit, store),
        )
        for store in stores
    ]
    listed = section(
        "Messaging stores",
        table(("Store", "State", "Served by", "Faults", "Switch"), rows, "Messaging stores"),
        tools=_mend(visit),
    )
    beside = el("div", listed, el("div", await _map(visit)), class_="beside-stores")
    return page(visit.frame("stores"), f"Stores and faults of {name}", beside, _faults(visit, len(stores)))


def _faults_of(store: Mapping[str, Any]) -> str | None:
    texts = [store["fault"]] if store["fault"] else []
    texts += [f"slowed by {store['slow_ms']} ms"] if store["slow_ms"] else []
    texts += [f"loses {store['acks_to_lose']} acknowledgements"] if store["acks_to_lose"] else []
    texts += [f"{store['set_aside']} damaged messages set aside"] if store["set_aside"] else []
    return ", ".join(texts) or None


def _kept(visit: Visit) -> dict[str, str | int | None]:
    return {"path": visit.query.get("path")}


def _switch(visit: Visit, store: Mapping[str, Any]) -> Markup:
    is_up = store["condition"] == "up"
    has_fault = bool(store["slow_ms"] or store["acks_to_lose"])
    text = "Break" if is_up and not has_fault else "Mend"
    action = "down" if text == "Break" else "up"
    return form(
        address(f"/ns/{visit.namespace}/stores", **_kept(visit)),
        hidden(store=store["index"], action=action),
        button(text, "bad small" if text == "Break" else "small", aria_label=f"{text} store {store['index']}"),
    )


def _mend(visit: Visit) -> Markup:
    return form(
        address(f"/ns/{visit.namespace}/stores", **_kept(visit)),
        hidden(store="all", action="up"),
        button("Mend all", "quiet small"),
    )


def _faults(visit: Visit, count: int) -> Markup:
    stores = {"all": "all stores"} | {str(index): f"store {index}" for index in range(count)}
    target = address(f"/ns/{visit.namespace}/stores", **_kept(visit))
    forms = (
        form(
            target,
            hidden(action="slow"),
            field("Slow down", choice("store", stores)),
            field("Milliseconds", text_input("value", "250", type="number", min=0, max=60000)),
            button("Slow down", "quiet"),
            class_="row",
        ),
        form(
            target,
            hidden(action="lose-ack"),
            field("Lose acknowledgements of", choice("store", stores)),
            field("Commits", text_input("value", "1", type="number", min=0, max=1000)),
            button("Lose them", "quiet"),
            class_="row",
        ),
        form(
            target,
            hidden(action="disconnect", store="all"),
            field("Disconnect the links of", text_input("value", "", placeholder="an entity; empty: every client")),
            button("Disconnect", "bad", data_ask="Disconnect clients of this namespace?"),
            class_="row",
        ),
    )
    return section("Faults", el("div", *forms, class_="stack"))


async def _map(visit: Visit) -> Child:
    """The fragments of one entity, which change as stores are broken."""
    path = visit.query.get("path", "").strip("/")
    try:
        listed = await visit.services.lists.of(visit.bus)
    except MessagingError as error:
        return notice("warn", sentence_of(error) or "")
    names = [each.path for each in listed.entities if each.type.value != "topic"]
    split = [each.path for each in listed.entities if each.is_partitioned and each.type.value != "topic"]
    if not names:
        return notice("plain", "Create a queue to see its fragments here while stores fail.")
    chosen = path if path in names else (split or names)[0]
    select = form(
        f"/ns/{visit.namespace}/stores",
        field("Fragments of", choice("path", names, chosen, data_submit="on")),
        button("Show", "quiet"),
        method="get",
        class_="row",
    )
    part = el("div", await live_part(visit, chosen), id="fragments")
    return join(select, el("div", part, data_live=address(f"/ns/{visit.namespace}/live", path=chosen)))


async def switch(visit: Visit) -> Response:
    sent = await visit.form()
    action, store, value = sent.get("action", ""), sent.get("store", ""), sent.get("value", "").strip()
    bus = visit.bus
    if action == "disconnect":
        await bus.ask("POST", "/$connections/disconnect", {"entity": value} if value else None)
    elif action in ACTIONS:
        query = {"slow": {"ms": value}, "lose-ack": {"count": value}}.get(action)
        if query is not None and not (value.isascii() and value.isdigit()):
            raise ArgumentError(f"'{value}' is not a whole number.")
        for index in await _indices(visit, store):
            await bus.ask("POST", f"/$stores/{index}/{action}", query)
    else:
        raise ArgumentError("Choose whether to switch the store off or on, slow it down, or lose acknowledgements.")
    return go_to(address(f"/ns/{visit.namespace}/stores", **_kept(visit)))


async def _indices(visit: Visit, store: str) -> list[int]:
    if store != "all":
        if not (store.isascii() and store.isdigit()):
            raise ArgumentError("Choose a store.")
        return [int(store)]
    return [each["index"] for each in await visit.bus.ask("GET", "/$stores")]


ROUTES = (("GET", "/ns/{namespace}/stores", show), ("POST", "/ns/{namespace}/stores", switch))
