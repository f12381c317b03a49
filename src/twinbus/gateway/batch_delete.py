"""`$management`: delete the oldest messages of a queue without receiving them. What somebody holds is left alone."""

from twinbus.amqp.types import Int
from twinbus.broker.bulk import purge
from twinbus.broker.fragment import ACTIVE_ONLY
from twinbus.errors import MessageNotFound, NotAllowed
from twinbus.gateway.operations import Call
from twinbus.gateway.requests import Response

COUNT_MAX = 4_000
NOTHING_DELETED = Response(204, "No messages", None, MessageNotFound.condition)


def batch_delete_messages(call: Call) -> None:
    if call.arguments.optional_text("session-id") is not None:
        raise NotAllowed("Messages of one session cannot be deleted in a batch. Receive them in that session.")
    count = min(max(call.arguments.number("message-count"), 1), COUNT_MAX)
    before = call.arguments.number("enqueued-time-utc", call.now)

    def body(numbers: list[int]) -> Response:
        return Response.ok({"message-count": Int(len(numbers))}) if numbers else NOTHING_DELETED

    purge(call.queue(), count, before, call.now, call.answer(body), ACTIVE_ONLY)
