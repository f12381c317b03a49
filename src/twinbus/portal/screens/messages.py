"""Browse a queue: pages over all fragments, search, SQL filter; one message with its body; purge."""

from datetime import datetime
from urllib.parse import urlencode

from starlette.responses import Response

from twinbus.amqp.errors import DecodeError
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import ArgumentError, MessagingError, NotImplementedHere
from twinbus.model.wire_names import MessageState
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Child, Markup, el, join
from twinbus.portal.html.parts import (
    Cell,
    TableCell,
    address,
    button,
    button_link,
    choice,
    facts,
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
    time_text,
)
from twinbus.portal.messages.bodies import VIEWS, first_words, shown_body
from twinbus.portal.messages.browser import (
    PAGE_SIZE,
    MessagePage,
    both,
    containing,
    in_state,
    place_at,
    read_one,
    read_page,
)
from twinbus.portal.messages.filters import Matches, compiled_filter
from twinbus.portal.messages.records import record_of
from twinbus.portal.screens.rules import shown_value
from twinbus.portal.screens.tabs import entity_path, entity_tabs, is_dead_letter, trail
from twinbus.portal.visit import Visit, go_to
from twinbus.portal.work.purge import count_messages, purging

STATES = {"": "any state", "active": "active", "deferred": "deferred", "scheduled": "scheduled"}
HEADS = ("Number", "Message id", "Session", "Enqueued", "Deliveries", "State", "Body")
PLAIN_TYPES = {str: "string", float: "double", type(None): "null"}
"""AMQP's names of the types that JSON has too."""
JUMPS = (("First", 0.0), ("25 %", 0.25), ("Middle", 0.5), ("75 %", 0.75), ("Latest", 1.0))


async def show(visit: Visit) -> Response:
    path, place = visit.path, visit.query.get("after", "")
    try:
        matches = _wanted(visit)
        found = await read_page(visit.bus, path, place, matches=matches)
        problem = None
    except ArgumentError as wrong:
        found, problem, matches = MessagePage([], None, 0), str(wrong), None
    rows = [_row(visit, message) for message in found.messages]
    empty = "No messages match." if matches is not None else "There are no messages here."
    parts = [
        entity_tabs(visit, "dead-letters" if is_dead_letter(path) else "messages", is_topic=False),
        section(
            "Messages",
            _search(visit),
            notice("bad", problem) if problem else None,
            await _jumps(visit),
            table(HEADS, rows, "Messages", empty=empty),
            _next(visit, found, is_search=matches is not None),
            tools=join(
                button_link("Download JSON lines", f"/ns/{visit.namespace}/download", "quiet small", **_kept(visit)),
                button_link("Purge", f"/ns/{visit.namespace}/purge", "bad small", path=path),
            ),
        ),
    ]
    return page(visit.frame("entities"), path, *parts, trail=trail(visit, path), status=400 if problem else 200)


def _kept(visit: Visit) -> dict[str, str | int | None]:
    """What of the address stays when one goes to another page."""
    return {name: visit.query.get(name) for name in ("path", "q", "sql", "state")}


def _wanted(visit: Visit) -> Matches | None:
    return wanted(visit.query.get("q", ""), visit.query.get("sql", ""), visit.query.get("state", ""))


def wanted(text: str, sql: str, state: str) -> Matches | None:
    """None where every message is wanted. Raises ArgumentError for a filter that is not one."""
    found: Matches | None = containing(text.strip()) if text.strip() else None
    if sql.strip():
        found = both(found, compiled_filter(sql))
    if state in STATES and state:
        found = both(found, in_state(MessageState[state.upper()]))
    return found


def _search(visit: Visit) -> Markup:
    return form(
        f"/ns/{visit.namespace}/messages",
        hidden(path=visit.path),
        field("Search", text_input("q", visit.query.get("q", ""), type="search", placeholder="id, property or text")),
        el(
            "div",
            field(
                "SQL filter", text_input("sql", visit.query.get("sql", ""), class_="code", placeholder="colour = 'red'")
            ),
            class_="grow",
        ),
        field("State", choice("state", STATES, visit.query.get("state", ""))),
        button("Search", "quiet"),
        method="get",
        class_="row",
        role="search",
    )


async def _jumps(visit: Visit) -> Markup | None:
    try:
        heads = await (await visit.bus.amqp()).extras(visit.path).fragment_heads()
    except (NotImplementedHere, MessagingError):
        return None
    count = sum(head.active + head.deferred + head.scheduled for head in heads)
    if count <= PAGE_SIZE:
        return None
    # The latest page, and not the place behind it.
    last = max(0.0, 1.0 - PAGE_SIZE / count)
    places = [(text, place_at(heads, min(share, last)) if share else "") for text, share in JUMPS]
    shown = [
        link(text, f"/ns/{visit.namespace}/messages", **{**_kept(visit), "after": place}) for text, place in places
    ]
    return el(
        "nav", el("span", f"{count:,} messages. Go to:", class_="faint"), *shown, class_="pager", aria_label="Jump"
    )


def _next(visit: Visit, found: MessagePage, *, is_search: bool) -> Markup:
    parts: list[Child] = []
    if visit.query.get("after"):
        parts.append(button_link("First page", f"/ns/{visit.namespace}/messages", "quiet small", **_kept(visit)))
    if found.next_place is not None:
        text = "Search on" if is_search else "Next page"
        where = address(f"/ns/{visit.namespace}/messages", **{**_kept(visit), "after": found.next_place})
        parts.append(el("a", text, href=where, class_="button small", data_next=True))
    if is_search:
        more = "" if found.next_place is None else " There are more."
        failed = f" The filter cannot be evaluated on {found.failed:,} of them." if found.failed else ""
        parts.append(
            el(
                "span",
                f"Looked at {found.scanned:,} messages, {len(found.messages):,} match.{failed}{more}",
                class_="faint",
            )
        )
    return el("nav", *parts, class_="pager", aria_label="Pages")


def _row(visit: Visit, message: ReceivedMessage) -> list[TableCell]:
    number = message.sequence_number or 0
    try:
        cells: list[TableCell] = [
            str(message.message_id) if message.message_id is not None else None,
            message.session_id,
            Cell(time_text(message.enqueued_at) or "–", _iso(message.enqueued_at)),
            message.delivery_count,
            state_tag(message),
            Cell(el("code", first_words(message.body)), first_words(message.body)),
        ]
    except DecodeError as error:
        cells = ["cannot be read", None, None, None, tag("damaged", "bad"), str(error)]
    return [
        Cell(link(str(number), f"/ns/{visit.namespace}/message", path=visit.path, number=number), str(number)),
        *cells,
    ]


def state_tag(message: ReceivedMessage) -> Markup:
    kinds = {MessageState.ACTIVE: "", MessageState.DEFERRED: "warn", MessageState.SCHEDULED: "good"}
    return tag(message.state.name.lower(), kinds.get(message.state, ""))


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


# One message


async def show_one(visit: Visit) -> Response:
    path, number = visit.path, visit.number("number", 0, 0, 2**63 - 1)
    message = await read_one(visit.bus, path, number)
    try:
        parts = _parts(visit, message, number)
    except DecodeError as error:
        parts = [notice("bad", f"This message cannot be read: {error}.")]
    where = (*trail(visit, path), link(path, f"/ns/{visit.namespace}/messages", path=path))
    return page(visit.frame("entities"), f"Message {number}", *parts, trail=where)


def _parts(visit: Visit, message: ReceivedMessage, number: int) -> list[Child]:
    record = record_of(message)
    body = shown_body(message.body, visit.query.get("view", ""))
    views = el(
        "nav",
        *(
            el(
                "a",
                view,
                href="?" + urlencode({"path": visit.path, "number": number, "view": view}),
                aria_current="page" if view == body.kind else None,
            )
            for view in VIEWS
        ),
        class_="tabs",
        aria_label="How to show the body",
    )
    shown = join(
        el("p", f"{size_text(body.size)}: {body.encoding}.", class_="faint"),
        views,
        el("pre", body.text, tabindex=0) if body.size else notice("plain", "The message has no body."),
        notice("warn", "Only the beginning is shown. Download the message to see all of it.") if body.is_cut else None,
    )
    types = record.get("property_types", {})
    rows = [
        (name, shown_value(value), types.get(name) or PLAIN_TYPES.get(type(value), type(value).__name__))
        for name, value in sorted(message.application_properties.items(), key=lambda item: str(item[0]))
    ]
    system = {
        name.replace("_", " "): str(value)
        for name, value in record.items()
        if name not in ("body", "body_type", "properties", "property_types")
    }
    tools = join(
        button_link(
            "Edit and send", f"/ns/{visit.namespace}/send", path=send_path(visit.path), source=visit.path, number=number
        ),
        button_link("Download", f"/ns/{visit.namespace}/download", "quiet", path=visit.path, number=number),
    )
    return [
        section("Body", shown, tools=tools),
        section(
            "Application properties", table(("Name", "Value", "Type"), rows, "Application properties", empty="None.")
        ),
        section("System properties", facts(system)),
    ]


def send_path(path: str) -> str:
    """Where a copy of a message is sent to: its own queue, or the topic of a subscription, from dead letters too."""
    found = entity_path(path)
    return found.partition("/Subscriptions/")[0]


# Purge


async def ask_purge(visit: Visit) -> Response:
    path = visit.path
    found = await count_messages(visit.bus, path)
    count, kind = found.count, "" if found.is_of_all else "active "
    text = f"All {kind}messages" if count is None else f"All {count:,} {kind}messages"
    note = (
        ", in any state. Locked messages stay, and so do those that arrive from now on. This cannot be undone."
        if found.is_of_all
        else ", by receiving them. Scheduled, deferred and locked messages stay. This cannot be undone."
    )
    label = "Type purge to confirm" if count is None else f"Type {count} to confirm"
    content = section(
        "Purge",
        notice("warn", f"{text} of {path} are removed{note}"),
        form(
            address(f"/ns/{visit.namespace}/purge", path=path),
            hidden(count=count),
            field(label, text_input("confirm", "", required=True, autocomplete="off")),
            button("Purge", "bad"),
            class_="stack",
        ),
    )
    return page(visit.frame("entities"), f"Purge {path}", content, trail=trail(visit, path))


async def purge(visit: Visit) -> Response:
    path, sent = visit.path, await visit.form()
    wanted_text = sent.get("count") or "purge"
    if sent.get("confirm", "").replace(",", "").strip() != wanted_text:
        raise ArgumentError(f"Nothing was removed: type {wanted_text} to confirm.")
    back = address(f"/ns/{visit.namespace}/messages", path=path)
    total = int(wanted_text) if wanted_text.isdigit() else None
    work = purging(visit.bus, path, total)
    job = visit.services.jobs.start(f"Purge {path}", back, visit.visitor.token, work)
    return go_to(f"/jobs/{job.id}")


ROUTES = (
    ("GET", "/ns/{namespace}/messages", show),
    ("GET", "/ns/{namespace}/message", show_one),
    ("GET", "/ns/{namespace}/purge", ask_purge),
    ("POST", "/ns/{namespace}/purge", purge),
)
