"""`$management` requests that look at messages, or take deferred ones by sequence number.

Those named `com.twinbus:...` are ours; a namespace without them answers 501, so a client finds out by asking.
"""

from collections.abc import Callable, Collection
from functools import partial
from struct import Struct
from uuid import UUID

from twinbus.amqp.codec.encode import encode_string
from twinbus.amqp.codec.types import Array, Encoded, Int, Long, Timestamp, Value
from twinbus.broker.commands import (
    SHARES_COUNT_MAX,
    CountShares,
    FindTimes,
    FragmentHead,
    ListFragments,
    Peek,
    PeekMerged,
    PeekPacked,
    PeekRange,
    RangePage,
    ReceiveDeferred,
)
from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.outcomes import COMPLETE
from twinbus.broker.transaction import Transaction
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, MessagingError
from twinbus.gateway.nodes.request_message import Arguments, Response
from twinbus.gateway.requests.call import NO_MESSAGES, Call
from twinbus.model.content import without_body
from twinbus.model.delivery import encode_delivery, encode_peeked, encode_peeked_row
from twinbus.model.descriptions import FRAGMENT_COUNT, SqlFilter
from twinbus.model.message_limits import PEEK_COUNT_MAX, RANGE_COUNT_MAX, TIMES_COUNT_MAX
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import ANY_STATE, BacklogShares, NumberedTime, PackedRows

SEQUENCE_NUMBERS_MAX = 4_096
NO_LOCK: Millis = 0

# One message of a page: a map with its payload, in the form with 4-byte sizes whatever its size.
_MESSAGE = encode_string("message")
_pack_entry = Struct(f">BII{len(_MESSAGE)}sBI").pack
_pack_list = Struct(">BII").pack
_COUNT_SIZE = 4  # the size of a list or map includes its count
_ENTRY_SIZE = _COUNT_SIZE + len(_MESSAGE) + 5


def peek_message(call: Call) -> None:
    arguments = call.arguments
    count = arguments.count("message-count", PEEK_COUNT_MAX, 1)
    command = Peek(arguments.number("from-sequence-number", 0), count, call.session_id())
    call.ask(command, peeked_body(arguments))


def peeked_body(arguments: Arguments) -> Callable[[list[StoredMessage]], Response]:
    with_bodies = not arguments.is_set("omit-message-body")

    def body(messages: list[StoredMessage]) -> Response:
        if not messages:
            return NO_MESSAGES
        if not with_bodies:
            for message in messages:
                message.content = without_body(message.content)
        return Response.ok(
            {"messages": encode_page([encode_peeked_row(message, _shown_lock(message)) for message in messages])}
        )

    return body


def _shown_lock(message: StoredMessage) -> Millis | None:
    """A deferred message has the annotation, as in the service. A peek does not say whether somebody holds it."""
    return NO_LOCK if message.state is MessageState.DEFERRED else None


def encode_page(payloads: list[bytes]) -> Encoded:
    """A list of maps with a payload each, as the SDKs read it. A page may have a thousand."""
    parts: list[bytes] = []
    size = _COUNT_SIZE
    for payload in payloads:
        head = _pack_entry(0xD1, _ENTRY_SIZE + len(payload), 2, _MESSAGE, 0xB0, len(payload))
        parts += (head, payload)
        size += len(head) + len(payload)
    return Encoded(_pack_list(0xD0, size, len(payloads)) + b"".join(parts))


def peek_merged(call: Call) -> None:
    arguments = call.arguments
    count = arguments.count("message-count", PEEK_COUNT_MAX, 1)
    numbers = []
    if arguments.fields.get("from-sequence-numbers") is not None:
        numbers = arguments.sequence("from-sequence-numbers", int, "numbers", FRAGMENT_COUNT)
    positions = {number >> SEQUENCE_BITS: number for number in numbers}
    call.ask(PeekMerged(positions, count), peeked_body(arguments))


def peek_range_of_fragment(call: Call) -> None:
    arguments, queue = call.arguments, call.queue()
    first, last = arguments.number("first-sequence-number"), arguments.number("last-sequence-number")
    count = arguments.count("message-count", RANGE_COUNT_MAX, RANGE_COUNT_MAX)
    states = states_of(arguments, ANY_STATE)

    def body(page: RangePage) -> Response:
        if not page.rows and page.next_number is None:
            return NO_MESSAGES
        return _page({"messages": encode_page(encode_peeked(page.rows))}, page.next_number)

    def packed_body(page: PackedRows) -> Response:
        if not page.sizes and page.next_number is None:
            return NO_MESSAGES
        fields: dict[str, Value] = {"fronts": page.fronts, "front-ends": page.front_ends}
        if with_bodies:
            fields |= {"bodies": page.bodies, "body-ends": page.body_ends}
        return _page(fields, page.next_number)

    condition = arguments.optional_text("filter")
    wanted = None if condition is None else SqlFilter(condition)
    with_bodies = not arguments.is_set("omit-message-body")
    if arguments.is_set("packed"):
        queue.ask(PeekPacked(first, last, count, states, wanted, with_bodies), call.now, call.answer(packed_body))
    else:
        queue.ask(PeekRange(first, last, count, states, wanted, with_bodies), call.now, call.answer(body))


def _page(fields: dict[str, Value], next_number: int | None) -> Response:
    if next_number is not None:
        fields["next-sequence-number"] = Long(next_number)
    return Response.ok(fields)


def states_of(arguments: Arguments, default: Collection[MessageState]) -> Collection[MessageState]:
    if arguments.fields.get("states") is None:
        return default
    return tuple(_state(name) for name in arguments.sequence("states", str, "strings", len(MessageState)))


def _state(name: str) -> MessageState:
    try:
        return MessageState[name.upper()]
    except KeyError:
        raise ArgumentError(f"'states' has '{name}'. Use active, deferred or scheduled.") from None


def receive_by_sequence_number(call: Call) -> None:
    arguments = call.arguments
    numbers = arguments.sequence("sequence-numbers", int, "numbers", SEQUENCE_NUMBERS_MAX)
    is_peek_lock = arguments.number("receiver-settle-mode", 1) == 1
    mode = ReceiveMode.PEEK_LOCK if is_peek_lock else ReceiveMode.RECEIVE_AND_DELETE
    session_id = call.session_id()
    if session_id is not None:
        call.require_own_session(session_id)
    if call.transaction is not None and not is_peek_lock:
        # Its messages are removed at the commit. Nobody has their locks, which end by themselves after a rollback.
        command = ReceiveDeferred(numbers, ReceiveMode.PEEK_LOCK, session_id)
        call.queue().ask(command, call.now, partial(_delete_in, call, call.transaction))
        return
    call.ask(ReceiveDeferred(numbers, mode, session_id), _received)


def _delete_in(call: Call, transaction: Transaction, found: list[TakenMessage] | MessagingError) -> None:
    if isinstance(found, MessagingError):
        call.respond(Response.failed(found))
        return

    def reply(error: MessagingError | None) -> None:
        if error is not None:
            call.respond(Response.failed(error))
        else:
            call.answer(_received)([each._replace(lock_token=b"") for each in found])

    tokens = [each.lock_token for each in found]
    transaction.settle(call.queue(), tokens, COMPLETE, call.now, reply, call.home)


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
        expires_at=message.expires_at,
    )
    return {"message": payload, "lock-token": UUID(bytes_le=token)} if token else {"message": payload}


def heads(call: Call) -> None:
    """With the time by which readers tell an entity from one of the same name that was deleted: its numbers started over."""
    entry = call.control.catalog.find(call.node.path)
    known: dict[str, Value] = {} if entry is None else {"created-at": Timestamp(entry.created_at)}

    def body(found: list[FragmentHead]) -> Response:
        return Response.ok({"fragments": [_head(head) for head in found], **known})

    call.ask(ListFragments(), body)


def enqueued_times(call: Call) -> None:
    """For readers that search the place of a time, or share a limit among fragments so that their times rise together."""

    def body(found: list[NumberedTime | None]) -> Response:
        numbers = [Long(-1 if each is None else each.number) for each in found]
        times = [Timestamp(0 if each is None else each.enqueued_at) for each in found]
        return Response.ok({"sequence-numbers": Array(numbers), "enqueued-times": Array(times)})

    arguments, queue = call.arguments, call.queue()
    numbers = arguments.sequence("sequence-numbers", int, "numbers", TIMES_COUNT_MAX)
    queue.ask(FindTimes(numbers), call.now, call.answer(body))


def _head(head: FragmentHead) -> dict[str, Value]:
    return {
        "fragment": Int(head.fragment),
        "store": Int(head.store),
        "is-available": head.is_available,
        "first-sequence-number": Long(head.first_number),
        "last-sequence-number": Long(head.last_number),
        "active-message-count": Long(head.active),
        "deferred-message-count": Long(head.deferred),
        "scheduled-message-count": Long(head.scheduled),
        "size-in-bytes": Long(head.size_bytes),
    }


def backlog(call: Call) -> None:
    def body(found: BacklogShares) -> Response:
        if not found.by_destination and found.next_number is None:
            return NO_MESSAGES
        shares: list[Value] = [
            {"path": path, "message-count": Long(share.message_count), "size-in-bytes": Long(share.size_bytes)}
            for path, share in found.by_destination.items()
        ]
        fields: dict[str, Value] = {"destinations": shares}
        if found.next_number is not None:
            fields["next-sequence-number"] = Long(found.next_number)
        return Response.ok(fields)

    arguments = call.arguments
    count = arguments.count("message-count", SHARES_COUNT_MAX, SHARES_COUNT_MAX)
    call.ask(CountShares(arguments.number("from-sequence-number", 0), count), body)
