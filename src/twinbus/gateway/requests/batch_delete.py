"""`$management`: delete the oldest messages of a queue without receiving them (protocol.md section 9)."""

from twinbus.broker.operations import bulk
from twinbus.gateway.requests.call import Call
from twinbus.gateway.requests.own import count_of
from twinbus.store.reads import ACTIVE_ONLY

COUNT_MAX = 4_000


def batch_delete_messages(call: Call) -> None:
    """Never one that somebody holds, and neither deferred nor scheduled ones."""
    count = min(max(call.arguments.number("message-count"), 1), COUNT_MAX)
    before = call.arguments.number("enqueued-time-utc", call.now)
    bulk.purge(call.queue(), count, before, call.now, call.answer(count_of), ACTIVE_ONLY)
