"""`$management` requests that change many messages at once: delete, purge, undefer, claim.

Those named `com.twinbus:...` are ours; a namespace without them answers 501, so a client finds out by asking. Messages are
named by their sequence numbers, which carry the fragment, so one request may concern several fragments.
"""

from collections.abc import Collection, Sequence

from twinbus.amqp.codec.types import Array, Int, Long
from twinbus.broker.commands import CALL_COUNT_MAX, Claim, DeleteDeferred, Purge, Range, Undefer, UndeferAll, ranges_of
from twinbus.errors import ArgumentError
from twinbus.gateway.nodes.request_message import Arguments, Response
from twinbus.gateway.requests.call import NO_MESSAGES, Call
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.reads import ACTIVE_ONLY, ANY_STATE

DELETE_COUNT_MAX = 4_000
RANGE_ENDS_MAX = 8_192
OWNER_LENGTH_MAX = 128


def batch_delete_messages(call: Call) -> None:
    """The oldest active messages that nobody holds; neither deferred nor scheduled ones."""
    _purge(call, call.arguments.count("message-count", DELETE_COUNT_MAX), ACTIVE_ONLY)


def purge(call: Call) -> None:
    _purge(call, _count(call.arguments), ANY_STATE)


def _purge(call: Call, count: int, states: Collection[MessageState]) -> None:
    """With a session id: of that message session alone, which the caller may hold."""
    before = call.arguments.number("enqueued-time-utc", call.now)
    session_id, is_by_holder = call.session_id(), False
    if session_id is not None:
        call.require_session(session_id)
        is_by_holder = call.is_of_caller(session_id)
    call.ask(Purge(count, before, states, session_id, is_by_holder), _changed)


def undefer(call: Call) -> None:
    if call.arguments.fields.get("ranges") is None:
        call.ask(UndeferAll(_count(call.arguments)), _changed)
    else:
        call.ask(Undefer(_ranges(call.arguments)), _changed)


def claim(call: Call) -> None:
    arguments = call.arguments
    owner = arguments.optional_text("owner")
    if owner is not None and len(owner) > OWNER_LENGTH_MAX:
        raise ArgumentError(f"'owner' has {len(owner)} characters; the limit is {OWNER_LENGTH_MAX}.")
    fragment = arguments.number("fragment", -1)
    index = None if fragment == -1 else fragment
    last = None
    if arguments.fields.get("last-sequence-number") is not None:
        last = arguments.number("last-sequence-number")
        if last >> SEQUENCE_BITS != fragment:
            raise ArgumentError("'last-sequence-number' must be in the fragment that 'fragment' names.")
    call.ask(Claim(_count(arguments), owner, index, last), _claimed)


def delete_claimed(call: Call) -> None:
    call.ask(DeleteDeferred(_ranges(call.arguments)), _counted)


def _count(arguments: Arguments) -> int:
    return arguments.count("message-count", CALL_COUNT_MAX, CALL_COUNT_MAX)


def _ranges(arguments: Arguments) -> list[Range]:
    ends = arguments.sequence("ranges", int, "numbers", RANGE_ENDS_MAX)
    if len(ends) % 2:
        raise ArgumentError("'ranges' must hold pairs: the first and the last sequence number of each range.")
    return list(zip(ends[::2], ends[1::2], strict=True))


def _changed(numbers: Sequence[int]) -> Response:
    return _counted(numbers) if numbers else NO_MESSAGES


def _counted(numbers: Sequence[int]) -> Response:
    return Response.ok({"message-count": Int(len(numbers))})


def _claimed(numbers: Sequence[int]) -> Response:
    if not numbers:
        return NO_MESSAGES
    ends = [Long(end) for pair in ranges_of(numbers) for end in pair]
    return Response.ok({"message-count": Int(len(numbers)), "ranges": Array(list(ends))})
