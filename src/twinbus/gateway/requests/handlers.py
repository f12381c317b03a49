"""Everything that can be asked of an entity's `$management` node: the name of a request in, its handler out."""

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from twinbus.gateway.requests.browse import (
    backlog,
    enqueued_times,
    heads,
    peek_merged,
    peek_message,
    peek_range_of_fragment,
    receive_by_sequence_number,
)
from twinbus.gateway.requests.bulk import batch_delete_messages, claim, delete_claimed, purge, undefer
from twinbus.gateway.requests.call import (
    Bill,
    Call,
    as_cancellation,
    as_claim,
    as_peek,
    as_range_peek,
    as_receive,
    as_removal,
    as_renewal,
    as_repair,
    as_request,
    as_session_renewal,
    as_session_request,
    as_settlement,
    by_itself,
)
from twinbus.gateway.requests.locks import renew_lock, update_disposition
from twinbus.gateway.requests.repair import preview_repair, repair
from twinbus.gateway.requests.rules import add_rule, enumerate_rules, remove_rule
from twinbus.gateway.requests.schedule import cancel_scheduled_message, schedule_message
from twinbus.gateway.requests.sessions import (
    count_sessions,
    get_message_sessions,
    get_session_state,
    renew_session_lock,
    set_session_state,
)
from twinbus.model import wire_names
from twinbus.model.descriptions import Right


class InTransaction(Enum):
    """What a request does that carries the id of a transaction: some SDKs send it with every request in a scope."""

    REFUSED = auto()
    AT_ONCE = auto()  # it changes nothing that could be rolled back
    TAKES_PART = auto()  # done at the commit, or not at all


_REFUSED, _AT_ONCE, _TAKES_PART = InTransaction


class Handler(NamedTuple):
    run: Callable[[Call], None]
    right: Right
    billed_as: Bill = as_request
    in_transaction: InTransaction = _REFUSED


HANDLERS: dict[str, Handler] = {
    wire_names.RENEW_LOCK: Handler(renew_lock, Right.LISTEN, as_renewal, _AT_ONCE),
    wire_names.UPDATE_DISPOSITION: Handler(update_disposition, Right.LISTEN, as_settlement, _TAKES_PART),
    wire_names.PEEK_MESSAGE: Handler(peek_message, Right.LISTEN, as_peek, _AT_ONCE),
    wire_names.RECEIVE_BY_SEQUENCE_NUMBER: Handler(receive_by_sequence_number, Right.LISTEN, as_receive, _TAKES_PART),
    wire_names.SCHEDULE_MESSAGE: Handler(schedule_message, Right.SEND, by_itself, _TAKES_PART),
    wire_names.CANCEL_SCHEDULED_MESSAGE: Handler(cancel_scheduled_message, Right.SEND, as_cancellation, _TAKES_PART),
    wire_names.RENEW_SESSION_LOCK: Handler(renew_session_lock, Right.LISTEN, as_session_renewal, _AT_ONCE),
    wire_names.GET_SESSION_STATE: Handler(get_session_state, Right.LISTEN, as_session_request, _AT_ONCE),
    wire_names.SET_SESSION_STATE: Handler(set_session_state, Right.LISTEN, as_session_request, _TAKES_PART),
    wire_names.GET_MESSAGE_SESSIONS: Handler(get_message_sessions, Right.LISTEN, as_session_request, _AT_ONCE),
    wire_names.BATCH_DELETE_MESSAGES: Handler(batch_delete_messages, Right.LISTEN),
    wire_names.ADD_RULE: Handler(add_rule, Right.LISTEN),
    wire_names.REMOVE_RULE: Handler(remove_rule, Right.LISTEN),
    wire_names.ENUMERATE_RULES: Handler(enumerate_rules, Right.LISTEN, as_request, _AT_ONCE),
    wire_names.PEEK_MERGED: Handler(peek_merged, Right.LISTEN, as_peek, _AT_ONCE),
    wire_names.PEEK_RANGE: Handler(peek_range_of_fragment, Right.LISTEN, as_range_peek, _AT_ONCE),
    wire_names.PURGE: Handler(purge, Right.LISTEN),
    wire_names.UNDEFER: Handler(undefer, Right.LISTEN),
    wire_names.FRAGMENT_HEADS: Handler(heads, Right.LISTEN, as_request, _AT_ONCE),
    wire_names.ENQUEUED_TIMES: Handler(enqueued_times, Right.LISTEN, as_request, _AT_ONCE),
    wire_names.CLAIM: Handler(claim, Right.LISTEN, as_claim),
    wire_names.DELETE_CLAIMED: Handler(delete_claimed, Right.LISTEN, as_removal),
    wire_names.BACKLOG: Handler(backlog, Right.LISTEN, as_request, _AT_ONCE),
    wire_names.COUNT_SESSIONS: Handler(count_sessions, Right.LISTEN, as_request, _AT_ONCE),
    wire_names.REPAIR: Handler(repair, Right.LISTEN, as_repair),
    wire_names.PREVIEW_REPAIR: Handler(preview_repair, Right.LISTEN, as_request, _AT_ONCE),
}

BRINGS_MESSAGES = frozenset(
    (
        wire_names.PEEK_MESSAGE,
        wire_names.PEEK_MERGED,
        wire_names.PEEK_RANGE,
        wire_names.PREVIEW_REPAIR,
        wire_names.RECEIVE_BY_SEQUENCE_NUMBER,
        wire_names.GET_SESSION_STATE,
    )
)
"""Requests whose answer may be far larger than they are."""
