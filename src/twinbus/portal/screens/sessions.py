"""Message sessions: how many messages wait in which, and the state of one, to view and to edit."""

from starlette.responses import Response

from twinbus.errors import ArgumentError, MessagingError, NotImplementedHere
from twinbus.portal.html.layout import page
from twinbus.portal.html.markup import Markup, el
from twinbus.portal.html.parts import (
    address,
    button,
    field,
    figures,
    form,
    hidden,
    link,
    notice,
    section,
    table,
    tag,
    text_area,
    text_input,
)
from twinbus.portal.messages.bodies import shown_body
from twinbus.portal.screens.tabs import entity_tabs, trail
from twinbus.portal.visit import Visit, go_to

SHOWN_MAX = 500
HOLD_WAIT_S = 5.0


async def show(visit: Visit) -> Response:
    path = visit.path
    namespace = await visit.bus.amqp()
    try:
        found = await namespace.extras(path).count_sessions(top=SHOWN_MAX)
        values = (("Sessions", f"{found.sessions:,}"), ("Held", f"{found.held:,}"), ("Messages", f"{found.active:,}"))
        rows = [
            (_leads(visit, each.session_id), each.active, tag("held", "good") if each.is_held else tag("free"))
            for each in found.page
        ]
        partial = None if found.is_all else notice("warn", "A messaging store is down: its messages are not counted.")
        listed = section(
            "With messages",
            figures(values),
            partial,
            table(("Session", "Messages", "Receiver"), rows, "Sessions", empty="No session has messages."),
        )
    except NotImplementedHere:
        names = await namespace.entity(path).sessions()
        rows_of_names = [(_leads(visit, name),) for name in names]
        listed = section("Sessions", table(("Session",), rows_of_names, "Sessions", empty="There are no sessions."))
    except MessagingError as error:
        listed = notice("warn", str(error))
    return page(
        visit.frame("entities"),
        path,
        entity_tabs(visit, "sessions", is_topic=False),
        listed,
        _by_name(visit),
        trail=trail(visit, path),
    )


def _leads(visit: Visit, session_id: str) -> Markup:
    return link(session_id or "(empty)", f"/ns/{visit.namespace}/session", path=visit.path, id=session_id)


def _by_name(visit: Visit) -> Markup:
    return section(
        "Open a session",
        form(
            f"/ns/{visit.namespace}/session",
            hidden(path=visit.path),
            field("Session id", text_input("id", "", required=True)),
            button("Open", "quiet"),
            method="get",
            class_="row",
        ),
    )


async def show_one(visit: Visit) -> Response:
    """The state is read and set as the service wants it: by a receiver that holds the session for a moment."""
    path, session_id = visit.path, visit.query.get("id", "")
    namespace = await visit.bus.amqp()
    problem, state = "", None
    try:
        receiver = await namespace.session_receiver(path, session_id, credit=0, wait_s=HOLD_WAIT_S)
        try:
            state = await namespace.entity(path).session_state(session_id)
        finally:
            await receiver.close()
    except MessagingError as error:
        problem = f"The state can only be read while no other receiver holds the session. {error}"
    shown = shown_body(state)
    text = shown.text if state else ""
    messages = await namespace.entity(path).peek(50, session_id=session_id)
    editor = form(
        address(f"/ns/{visit.namespace}/session", path=path, id=session_id),
        field("State", text_area("state", text, 8), "Text, kept as UTF-8. Empty clears it."),
        button("Save the state"),
        class_="stack",
    )
    is_text = state is None or "not UTF-8" not in shown.encoding
    content = [
        notice("bad", problem)
        if problem
        else el("p", f"{shown.size} bytes: {shown.encoding}." if state else "No state is set.", class_="faint"),
        editor if not problem and is_text else el("pre", shown.text) if not problem else None,
    ]
    rows = [
        (
            link(str(each.sequence_number), f"/ns/{visit.namespace}/message", path=path, number=each.sequence_number),
            str(each.message_id or ""),
            each.state.name.lower(),
        )
        for each in messages
    ]
    where = (*trail(visit, path), link("Sessions", f"/ns/{visit.namespace}/sessions", path=path))
    return page(
        visit.frame("entities"),
        f"Session {session_id}",
        section("State", *content),
        section(
            "First messages", table(("Number", "Message id", "State"), rows, "Messages", empty="It has no messages.")
        ),
        trail=where,
    )


async def save(visit: Visit) -> Response:
    path, session_id = visit.path, visit.query.get("id", "")
    text = (await visit.form()).get("state", "").replace("\r\n", "\n")
    namespace = await visit.bus.amqp()
    try:
        receiver = await namespace.session_receiver(path, session_id, credit=0, wait_s=HOLD_WAIT_S)
    except MessagingError as error:
        raise ArgumentError(f"The state was not changed: another receiver holds the session. {error}") from None
    try:
        await namespace.entity(path).set_session_state(session_id, text.encode() or None)
    finally:
        await receiver.close()
    return go_to(address(f"/ns/{visit.namespace}/session", path=path, id=session_id))


ROUTES = (
    ("GET", "/ns/{namespace}/sessions", show),
    ("GET", "/ns/{namespace}/session", show_one),
    ("POST", "/ns/{namespace}/session", save),
)
