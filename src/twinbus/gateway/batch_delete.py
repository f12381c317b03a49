"""`$management`: delete the oldest messages of a queue without receiving them.

Taken as a receiver takes them, and so never one that somebody else holds; those that were enqueued after the time asked
for are put back. What memory does not hold comes from the store when there is somebody to take it, so the taker looks
again until a look brings nothing more. A peek serves as the bell: it waits in line behind what the store has to read.
"""

from collections.abc import Sequence

from twinbus.amqp.types import Int
from twinbus.broker.message_queue import MessageQueue
from twinbus.broker.outcomes import COMPLETE, RELEASE
from twinbus.broker.receiver import Delivery, ReceiveMode, SessionLock
from twinbus.clock import Millis
from twinbus.errors import MessageNotFound, MessagingError
from twinbus.gateway.operations import Call
from twinbus.gateway.receiver_binding import SILENT
from twinbus.gateway.requests import Response

COUNT_MAX = 4_000
NOTHING_DELETED = Response(204, "No messages", None, MessageNotFound.condition)


def batch_delete_messages(call: Call) -> None:
    count = min(max(call.arguments.number("message-count"), 1), COUNT_MAX)
    before = call.arguments.number("enqueued-time-utc", call.now)
    _BatchDelete(call, count, before).start()


class _BatchDelete:
    """Keeps the broker's `Receiver` protocol while it takes."""

    session: SessionLock | None = None
    mode = ReceiveMode.PEEK_LOCK

    def __init__(self, call: Call, count: int, before: Millis) -> None:
        self.credit = count
        self._call = call
        self._queue: MessageQueue = call.queue()
        self._before = before
        self._taken: list[Delivery] = []
        self._counted = 0
        self._deleted_count = 0

    def start(self) -> None:
        self._queue.attach(self, self._call.now)
        self._look()

    def deliver(self, deliveries: list[Delivery]) -> None:
        self._taken += deliveries

    def session_lost(self, error: MessagingError) -> None:
        """Has none."""

    def _look(self) -> None:
        self._queue.peek(0, 1, None, self._call.now, self._looked)

    def _looked(self, _: object) -> None:
        has_more = len(self._taken) > self._counted and self.credit > 0
        self._counted = len(self._taken)
        if has_more and self._taken[-1].message.enqueued_at <= self._before:
            self._look()
            return
        self._queue.detach(self, self._call.now)
        self._settle()

    def _settle(self) -> None:
        old = [each.lock_token for each in self._taken if each.message.enqueued_at <= self._before]
        new = [each.lock_token for each in self._taken if each.message.enqueued_at > self._before]
        self._waiting_count = len(old)
        if new:
            self._queue.settle_each(new, RELEASE, self._call.now, SILENT)
        if old:
            self._queue.settle_each(old, COMPLETE, self._call.now, self)
        else:
            self._call.respond(NOTHING_DELETED)

    def settled(self, indexes: Sequence[int]) -> None:
        self._deleted_count += len(indexes)
        self._answered(len(indexes))

    def failed(self, index: int, error: MessagingError) -> None:
        self._answered(1)

    def _answered(self, count: int) -> None:
        self._waiting_count -= count
        if not self._waiting_count:
            self._call.respond(Response.ok({"message-count": Int(self._deleted_count)}))
