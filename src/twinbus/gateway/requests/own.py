"""`$management` operations that the service does not have: peek in one order or by ranges, purge, un-defer, claim, backlog.

All are named `com.twinbus:…`; a namespace without them answers 501, so a client finds out by asking. Messages are named
by their sequence numbers, which carry the fragment, so one request may concern several fragments.
"""

from collections.abc import Sequence

from twinbus.amqp.codec.types import Array, Int, Long, Value
from twinbus.broker.operations import bulk
from twinbus.broker.operations.backlog_shares import SHARES_COUNT_MAX, count_shares
from twinbus.broker.operations.browse import PEEK_COUNT_MAX
from twinbus.broker.operations.fragment_heads import FragmentHead, fragment_heads
from twinbus.broker.operations.range_peek import RANGE_COUNT_MAX, RangePage, peek_range
from twinbus.errors import ArgumentError, MessageNotFound
from twinbus.gateway.nodes.request_message import Arguments, Response
from twinbus.gateway.requests.browse import encode_peeked, encode_without_body, peeked_body
from twinbus.gateway.requests.call import Call, OperationEntry, as_claim, as_peek, as_range_peek, as_removal
from twinbus.model import wire_names
from twinbus.model.descriptions import FRAGMENT_COUNT, Right
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.reads import BacklogShares

RANGE_ENDS_MAX = 8_192
OWNER_LENGTH_MAX = 128
NO_MESSAGES = Response(204, "No messages", None, MessageNotFound.condition)


def peek_merged(call: Call) -> None:
    arguments = call.arguments
    count = min(max(arguments.number("message-count", 1), 1), PEEK_COUNT_MAX)
    numbers = []
    if arguments.fields.get("from-sequence-numbers") is not None:
        numbers = arguments.sequence("from-sequence-numbers", int, "numbers", FRAGMENT_COUNT)
    positions = {number >> SEQUENCE_BITS: number for number in numbers}
    call.queue().peek_merged(positions, count, call.now, call.answer(peeked_body(arguments)))


def peek_range_of_fragment(call: Call) -> None:
    arguments, queue = call.arguments, call.queue()
    first, last = arguments.number("first-sequence-number"), arguments.number("last-sequence-number")
    count = min(max(arguments.number("message-count", RANGE_COUNT_MAX), 1), RANGE_COUNT_MAX)
    states = tuple(MessageState)
    if arguments.fields.get("states") is not None:
        states = tuple(_state(name) for name in arguments.sequence("states", str, "strings", len(MessageState)))
    encode = encode_without_body if arguments.is_set("omit-message-body") else encode_peeked

    def body(page: RangePage) -> Response:
        if not page.rows:
            return NO_MESSAGES
        fields: dict[str, Value] = {"messages": [{"message": encode(row)} for row in page.rows]}
        if page.next_number is not None:
            fields["next-sequence-number"] = Long(page.next_number)
        return Response.ok(fields)

    peek_range(queue, first, last, count, states, call.now, call.answer(body))


def purge(call: Call) -> None:
    before = call.arguments.number("enqueued-time-utc", call.now)
    bulk.purge(call.queue(), _count(call.arguments), before, call.now, call.answer(count_of))


def undefer(call: Call) -> None:
    if call.arguments.fields.get("ranges") is None:
        bulk.undefer_all(call.queue(), _count(call.arguments), call.now, call.answer(count_of))
    else:
        bulk.undefer(call.queue(), _ranges(call.arguments), call.now, call.answer(count_of))


def claim(call: Call) -> None:
    arguments = call.arguments
    owner = arguments.optional_text("owner")
    if owner is not None and len(owner) > OWNER_LENGTH_MAX:
        raise ArgumentError(f"'owner' has {len(owner)} characters; {OWNER_LENGTH_MAX} are the limit.")
    fragment = arguments.number("fragment", -1)
    index = None if fragment == -1 else fragment
    last = None
    if arguments.fields.get("last-sequence-number") is not None:
        last = arguments.number("last-sequence-number")
        if last >> SEQUENCE_BITS != fragment:
            raise ArgumentError("'last-sequence-number' has to be a number of the fragment that 'fragment' names.")
    bulk.claim(call.queue(), _count(arguments), owner, index, call.now, call.answer(_claimed), last)


def delete_claimed(call: Call) -> None:
    bulk.delete_deferred(call.queue(), _ranges(call.arguments), call.now, call.answer(_counted))


def heads(call: Call) -> None:
    def body(found: list[FragmentHead]) -> Response:
        return Response.ok({"fragments": [_head(head) for head in found]})

    fragment_heads(call.queue(), call.now, call.answer(body))


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
    count = min(max(arguments.number("message-count", SHARES_COUNT_MAX), 1), SHARES_COUNT_MAX)
    count_shares(call.queue(), arguments.number("from-sequence-number", 0), count, call.now, call.answer(body))


def _state(name: str) -> MessageState:
    try:
        return MessageState[name.upper()]
    except KeyError:
        raise ArgumentError(f"'states' has '{name}'; there are active, deferred and scheduled messages.") from None


def _count(arguments: Arguments) -> int:
    return min(max(arguments.number("message-count", bulk.CALL_COUNT_MAX), 1), bulk.CALL_COUNT_MAX)


def _ranges(arguments: Arguments) -> list[bulk.Range]:
    ends = arguments.sequence("ranges", int, "numbers", RANGE_ENDS_MAX)
    if len(ends) % 2:
        raise ArgumentError("'ranges' has to hold pairs: the first and the last sequence number of each range.")
    return list(zip(ends[::2], ends[1::2], strict=True))


def count_of(numbers: Sequence[int]) -> Response:
    return _counted(numbers) if numbers else NO_MESSAGES


def _counted(numbers: Sequence[int]) -> Response:
    return Response.ok({"message-count": Int(len(numbers))})


def _claimed(numbers: Sequence[int]) -> Response:
    if not numbers:
        return NO_MESSAGES
    ends = [Long(end) for pair in bulk.ranges_of(numbers) for end in pair]
    return Response.ok({"message-count": Int(len(numbers)), "ranges": Array(list(ends))})


def _head(head: FragmentHead) -> dict[str, Value]:
    return {
        "fragment": Int(head.fragment),
        "is-available": head.is_available,
        "first-sequence-number": Long(head.first_number),
        "last-sequence-number": Long(head.last_number),
        "active-message-count": Long(head.active),
        "deferred-message-count": Long(head.deferred),
        "scheduled-message-count": Long(head.scheduled),
        "size-in-bytes": Long(head.size_bytes),
    }


OWN_OPERATIONS: dict[str, OperationEntry] = {
    wire_names.PEEK_MERGED: OperationEntry(peek_merged, Right.LISTEN, as_peek),
    wire_names.PEEK_RANGE: OperationEntry(peek_range_of_fragment, Right.LISTEN, as_range_peek),
    wire_names.PURGE: OperationEntry(purge, Right.LISTEN),
    wire_names.UNDEFER: OperationEntry(undefer, Right.LISTEN),
    wire_names.FRAGMENT_HEADS: OperationEntry(heads, Right.LISTEN),
    wire_names.CLAIM: OperationEntry(claim, Right.LISTEN, as_claim),
    wire_names.DELETE_CLAIMED: OperationEntry(delete_claimed, Right.LISTEN, as_removal),
    wire_names.BACKLOG: OperationEntry(backlog, Right.LISTEN),
}
