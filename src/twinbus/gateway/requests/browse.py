"""`$management`: peek, and receive deferred messages by sequence number."""

from collections.abc import Callable
from uuid import UUID

from twinbus.amqp.codec.section_bounds import section_bounds
from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.operations.browse import PEEK_COUNT_MAX
from twinbus.errors import MessageNotFound
from twinbus.gateway.nodes.request_message import Arguments, Response
from twinbus.gateway.requests.call import Call
from twinbus.model.message import encode_delivery
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage

SEQUENCE_NUMBERS_MAX = 4_096

NOTHING_FOUND = Response(204, "No messages", None, MessageNotFound.condition)


def peek_message(call: Call) -> None:
    arguments = call.arguments
    count = min(max(arguments.number("message-count", 1), 1), PEEK_COUNT_MAX)
    call.queue().peek(
        arguments.number("from-sequence-number", 0),
        count,
        arguments.optional_text("session-id"),
        call.now,
        call.answer(peeked_body(arguments)),
    )


def peeked_body(arguments: Arguments) -> Callable[[list[StoredMessage]], Response]:
    return _without_bodies if arguments.is_set("omit-message-body") else _peeked


def _peeked(messages: list[StoredMessage]) -> Response:
    return _page([encode_peeked(message) for message in messages])


def _without_bodies(messages: list[StoredMessage]) -> Response:
    return _page([encode_without_body(message) for message in messages])


def _page(payloads: list[bytes]) -> Response:
    if not payloads:
        return NOTHING_FOUND
    return Response.ok({"messages": [{"message": payload} for payload in payloads]})


def encode_peeked(message: StoredMessage) -> bytes:
    return encode_delivery(
        message.content,
        sequence_number=message.sequence_number,
        enqueued_at=message.enqueued_at,
        delivery_count=message.delivery_count,
        state=message.state,
        show_state=True,
        enqueued_sequence_number=message.enqueued_sequence_number,
    )


def encode_without_body(message: StoredMessage) -> bytes:
    return without_body(encode_peeked(message))


def without_body(payload: bytes) -> bytes:
    bounds = section_bounds(payload)
    assert bounds is not None, "what we encode has its sections in order"
    return payload[: bounds[-1]]


def receive_by_sequence_number(call: Call) -> None:
    arguments = call.arguments
    numbers = arguments.sequence("sequence-numbers", int, "numbers", SEQUENCE_NUMBERS_MAX)
    is_peek_lock = arguments.number("receiver-settle-mode", 1) == 1
    mode = ReceiveMode.PEEK_LOCK if is_peek_lock else ReceiveMode.RECEIVE_AND_DELETE
    session_id = arguments.optional_text("session-id")
    if session_id is not None:
        call.require_session(session_id)
    call.queue().receive_deferred(numbers, mode, session_id, call.now, call.answer(_received))


def _received(deliveries: list[TakenMessage]) -> Response:
    return Response.ok({"messages": [_received_one(delivery) for delivery in deliveries]})


def _received_one(delivery: TakenMessage) -> dict[str, object]:
    message, token, locked_until = delivery
    payload = encode_delivery(
        message.content,
        sequence_number=message.sequence_number,
        enqueued_at=message.enqueued_at,
        delivery_count=message.delivery_count,
        lock_token=token or None,
        locked_until=locked_until if token else None,
        state=MessageState.DEFERRED,
        show_state=True,
        enqueued_sequence_number=message.enqueued_sequence_number,
    )
    return {"message": payload, "lock-token": UUID(bytes_le=token)} if token else {"message": payload}
