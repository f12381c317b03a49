"""Scheduled and deferred messages: cancel, reschedule, make active again."""

from collections.abc import Sequence
from datetime import UTC, datetime

from starlette.responses import Response

from twinbus.amqp.codec.sections import encode_sections
from twinbus.client.message import SCHEDULED_TIME, timestamp
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import ArgumentError, NotImplementedHere
from twinbus.model.received_payload import read_front
from twinbus.model.wire_names import MessageState
from twinbus.portal.form_body import read_form
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Markup, el, join
from twinbus.portal.html.parts import (
    Cell,
    TableCell,
    address,
    button,
    button_link,
    field,
    form,
    link,
    section,
    table,
    text_input,
    time_text,
)
from twinbus.portal.messages.bodies import first_words
from twinbus.portal.messages.browser import in_state, read_one, read_page
from twinbus.portal.messages.filters import payload_to_send
from twinbus.portal.screens.tabs import entity_path, entity_tabs, trail
from twinbus.portal.visit import Visit, go_to

CHOSEN_MAX = 200
NO_UNDEFER = (
    "Only twinbus can make deferred messages active again. In other namespaces, receive them by number and send copies."
)


async def show(visit: Visit) -> Response:
    path = visit.path
    scheduled = await read_page(visit.bus, path, visit.query.get("after", ""), matches=in_state(MessageState.SCHEDULED))
    deferred = await read_page(visit.bus, path, visit.query.get("from", ""), matches=in_state(MessageState.DEFERRED))
    again = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M")
    first = form(
        address(f"/ns/{visit.namespace}/scheduled", path=path),
        _choice(visit, scheduled.messages, "due"),
        el(
            "div",
            field("New time, UTC", text_input("at", again)),
            button("Reschedule", "quiet", name="do", value="reschedule"),
            button(
                "Cancel the schedule and remove",
                "bad",
                name="do",
                value="cancel",
                data_ask="Remove the chosen scheduled messages?",
            ),
            class_="row",
        )
        if scheduled.messages
        else None,
        _more(visit, "after", scheduled.next_place),
    )
    second = form(
        address(f"/ns/{visit.namespace}/deferred", path=path),
        _choice(visit, deferred.messages, "enqueued"),
        join(
            button("Make the chosen active", "quiet", name="do", value="chosen"),
            " ",
            button("Make all active", "quiet", name="do", value="all"),
        )
        if deferred.messages
        else None,
        _more(visit, "from", deferred.next_place),
    )
    return page(
        visit.frame("entities"),
        path,
        entity_tabs(visit, "held-back", is_topic=False),
        section("Scheduled", first),
        section("Deferred", second),
        trail=trail(visit, path),
    )


def _choice(visit: Visit, messages: Sequence[ReceivedMessage], when: str) -> Markup:
    heads = ("Choose", "Number", "Message id", "Due" if when == "due" else "Enqueued", "Body")
    rows: list[list[TableCell]] = []
    for message in messages:
        number = message.sequence_number or 0
        at = message.scheduled_at if when == "due" else message.enqueued_at
        box = el("input", type="checkbox", name="number", value=number, aria_label=f"Choose {number}")
        rows.append(
            [
                Cell(box, ""),
                Cell(link(str(number), f"/ns/{visit.namespace}/message", path=visit.path, number=number), str(number)),
                str(message.message_id or ""),
                Cell(time_text(at) or "–", None if at is None else at.isoformat()),
                el("code", first_words(message.body)),
            ]
        )
    return table(
        heads,
        rows,
        "Scheduled messages" if when == "due" else "Deferred messages",
        empty="There are none on this page.",
    )


def _more(visit: Visit, name: str, place: str | None) -> Markup | None:
    if place is None:
        return None
    kept = {each: visit.query.get(each) for each in ("after", "from")}
    return el(
        "p",
        button_link(
            "Look further",
            f"/ns/{visit.namespace}/held-back",
            "quiet small",
            **{**kept, "path": visit.path, name: place},
        ),
    )


async def _chosen(visit: Visit) -> tuple[str, str, list[int]]:
    sent = await read_form(visit.request)
    numbers = [int(text) for name, text in sent if name == "number" and text.isascii() and text.isdigit()]
    do, at = dict(sent).get("do", ""), dict(sent).get("at", "")
    if do != "all" and not numbers:
        raise ArgumentError("No message was selected. Tick the boxes of the messages you want.")
    return do, at, numbers[:CHOSEN_MAX]


async def scheduled(visit: Visit) -> Response:
    path = entity_path(visit.path)
    do, at, numbers = await _chosen(visit)
    entity = (await visit.bus.amqp()).entity(path)
    if do == "reschedule":
        due = _time(at)
        # The new one first: between the two steps the message is there twice, and never not at all.
        payloads = [_due(payload_to_send(await read_one(visit.bus, path, number)), due) for number in numbers]
        await entity.schedule(payloads)
    await entity.cancel_scheduled(numbers)
    return go_to(address(f"/ns/{visit.namespace}/held-back", path=path))


def _due(payload: bytes, at: datetime) -> bytes:
    front, rest = read_front(payload)
    front.message_annotations = {**(front.message_annotations or {}), SCHEDULED_TIME: timestamp(at)}
    return encode_sections(front) + rest


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ArgumentError(f"'{text}' is not a time. Write it like 2026-01-31T12:00, in UTC.") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


async def deferred(visit: Visit) -> Response:
    path = visit.path
    do, _, numbers = await _chosen(visit)
    extras = (await visit.bus.amqp()).extras(path)
    try:
        if do == "all":
            while await extras.undefer_all(1_000):
                pass
        else:
            await extras.undefer([(number, number) for number in numbers])
    except NotImplementedHere:
        raise NotImplementedHere(NO_UNDEFER) from None
    return go_to(address(f"/ns/{visit.namespace}/held-back", path=path))


ROUTES = (
    ("GET", "/ns/{namespace}/held-back", show),
    ("POST", "/ns/{namespace}/scheduled", scheduled),
    ("POST", "/ns/{namespace}/deferred", deferred),
)
