"""`$management`: delete the oldest messages of a queue without receiving them (protocol.md section 9)."""

from twinbus.broker import bulk
from twinbus.broker.fragment import ACTIVE_ONLY
from twinbus.gateway.operations import Call
from twinbus.gateway.own_operations import count_of

COUNT_MAX = 4_000


def batch_delete_messages(call: Call) -> None:
    """Never one that somebody holds, and neither deferred nor scheduled ones."""
    count = min(max(call.arguments.number("message-count"), 1), COUNT_MAX)
    before = call.arguments.number("enqueued-time-utc", call.now)
    bulk.purge(call.queue(), count, before, call.now, call.answer(count_of), ACTIVE_ONLY)
