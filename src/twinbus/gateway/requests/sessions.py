"""`$management`: locks and states of message sessions, their list and their counts."""

from twinbus.amqp.codec.types import Array, Int, Long, Timestamp, Value
from twinbus.broker.commands import CountSessions, GetSessionState, ListSessions, SessionCounts, SetSessionState
from twinbus.clock import Millis
from twinbus.errors import MessageTooLarge
from twinbus.gateway.nodes.request_message import Response
from twinbus.gateway.requests.call import Call, done

LIST_COUNT_MAX = 100
COUNTS_MAX = 1_000
STRING_ARRAY = 0xB1

ALL_SESSIONS: Millis = 253_402_300_799_999
"""The last moment of year 9999: a client that asks for sessions updated after it asks for all of them."""

NO_SESSIONS = Response(204, "No sessions", None, "com.microsoft:session-not-found")


def renew_session_lock(call: Call) -> None:
    session_id = call.arguments.text("session-id")
    call.require_own_session(session_id)

    def body(end: Millis) -> Response:
        return Response.ok({"expiration": Timestamp(end)})

    call.queue().renew_session(session_id, call.now, call.answer(body))


def get_session_state(call: Call) -> None:
    session_id = call.arguments.text("session-id")
    call.require_own_session(session_id)

    def body(state: bytes | None) -> Response:
        return Response.ok({"session-state": state})

    call.ask(GetSessionState(session_id), body)


def set_session_state(call: Call) -> None:
    session_id = call.arguments.text("session-id")
    call.require_own_session(session_id)
    state = call.arguments.binary("session-state") or None  # the Go client clears a state by sending none of its bytes
    size, size_max = 0 if state is None else len(state), call.node.message_size_max
    if size > size_max:
        raise MessageTooLarge(
            f"The session state has {size} bytes; the limit is that of a message, {size_max}. Store less in it."
        )
    if call.transaction is not None:
        call.check_room(size)
        call.transaction.set_session_state(call.queue(), session_id, state, call.now, call.enlisted, call.home)
        return
    call.ask(SetSessionState(session_id, state), done)


def count_sessions(call: Call) -> None:
    arguments = call.arguments
    skip = max(arguments.number("skip", 0), 0)
    top = arguments.count("top", COUNTS_MAX, COUNTS_MAX)

    def body(found: SessionCounts) -> Response:
        page: list[Value] = [
            {"session-id": each.session_id, "active-message-count": Long(each.active), "is-held": each.is_held}
            for each in found.page
        ]
        return Response.ok(
            {
                "session-count": Long(found.sessions),
                "held-session-count": Long(found.held),
                "active-message-count": Long(found.active),
                "is-all": found.is_all,
                "sessions": page,
            }
        )

    call.ask(CountSessions(skip, top), body)


def get_message_sessions(call: Call) -> None:
    arguments = call.arguments
    after = arguments.number("last-updated-time", ALL_SESSIONS)
    skip = max(arguments.number("skip", 0), 0)
    top = arguments.count("top", LIST_COUNT_MAX, LIST_COUNT_MAX)

    def body(names: list[str]) -> Response:
        if not names:
            return NO_SESSIONS
        return Response.ok({"skip": Int(skip + len(names)), "sessions-ids": Array(list(names), STRING_ARRAY)})

    call.ask(ListSessions(None if after >= ALL_SESSIONS else after, skip, top), body)
