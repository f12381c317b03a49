"""`$management`: schedule messages and cancel them."""

from functools import partial

from twinbus.amqp.codec.types import Array, Long
from twinbus.errors import ArgumentError, MessageTooLarge, MessagingError
from twinbus.gateway.nodes.request_message import Response
from twinbus.gateway.requests.call import Call, done
from twinbus.meter.operation import Cause
from twinbus.model.message import Message, read_message
from twinbus.model.message_limits import BATCH_COUNT_MAX

NUMBER_UNKNOWN = 0
"""In a transaction: messages get their numbers at the commit, so that a rollback leaves no gaps."""
SEQUENCE_NUMBERS_MAX = 4_096


def schedule_message(call: Call) -> None:
    entries = call.arguments.sequence("messages", dict, "maps", BATCH_COUNT_MAX)
    messages = [_message(call, entry) for entry in entries]

    def body(numbers: list[int]) -> Response:
        call.meter.sent(messages, numbers, Cause.SCHEDULE)
        return numbered(numbers)

    def numbered(numbers: list[int]) -> Response:
        return Response.ok({"sequence-numbers": Array([Long(number) for number in numbers])})

    def enlisted(fragment: int | MessagingError) -> None:
        if isinstance(fragment, MessagingError):
            call.respond(Response.failed(fragment))
            return
        call.after_commit(partial(call.meter.sent, messages, None, Cause.SCHEDULE, fragment))
        call.respond(numbered([NUMBER_UNKNOWN] * len(messages)))

    if call.transaction is not None:
        call.check_room(sum([len(message.content) for message in messages]))
        call.transaction.send(call.target(), messages, call.now, enlisted, call.home)
        return
    call.target().schedule(messages, call.now, call.answer(body))


def _message(call: Call, entry: dict[str, object]) -> Message:
    payload = entry.get("message")
    if not isinstance(payload, bytes):
        raise ArgumentError("Each entry of 'messages' needs the encoded message as binary 'message'.")
    size_max = call.node.message_size_max
    if len(payload) > size_max:
        raise MessageTooLarge.at(call.node.path, len(payload), size_max)
    return read_message(payload, call.new_id)


def cancel_scheduled_message(call: Call) -> None:
    numbers = call.arguments.sequence("sequence-numbers", int, "numbers", SEQUENCE_NUMBERS_MAX)
    if call.transaction is None:
        call.target().cancel_scheduled(numbers, call.now, call.answer(done))
        return
    call.transaction.cancel_scheduled(call.target(), numbers, call.now, call.enlisted, call.home)
