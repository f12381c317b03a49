"""What one other node holds at this one: receivers, message sessions, transactions, and runs of messages on their way.

It ends with the line, as what a client holds ends with its connection: receivers are detached, message sessions released, transactions
rolled back. Locks on messages live on.
"""

from collections.abc import Sequence
from weakref import WeakSet

from twinbus.broker.consumer import ReceiveMode, SessionLock, TakenMessage
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.replies import Waiter
from twinbus.broker.transaction import OwnTransaction
from twinbus.clock import Millis
from twinbus.cluster.lines import values
from twinbus.cluster.lines.error_values import encode_error
from twinbus.cluster.lines.line import Answer, Line
from twinbus.cluster.lines.talk import DELIVERED_BYTES_MAX, Topic, encode_deliver, encode_progress
from twinbus.errors import MessagingError, SessionLockLost


class PartReceiver:
    """A receiver at another node. Its credit is the demand of this part."""

    def __init__(
        self,
        line: Line,
        visitor: "Visitor",
        number: int,
        queue: MessageQueue,
        mode: ReceiveMode,
        session: SessionLock | None,
    ) -> None:
        self.credit = 0
        self.mode = mode
        self.session = session
        self.queue = queue
        self.number = number
        self._line = line
        self._visitor = visitor

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        start = size = 0
        for place, delivery in enumerate(deliveries):
            size += len(delivery.message.content)
            if size > DELIVERED_BYTES_MAX and place > start:
                self._line.tell(Topic.DELIVER, encode_deliver(self.number, deliveries[start:place]))
                start, size = place, len(delivery.message.content)
        some = deliveries[start:] if start else deliveries
        self._line.tell(Topic.DELIVER, encode_deliver(self.number, some))

    def credit_returned(self, now: Millis) -> None:
        """It is the front that passes credit on."""

    def session_lost(self, error: MessagingError) -> None:
        # Its node is told, and does not close what it has lost.
        self._visitor.receivers.pop(self.number, None)
        self._line.tell(Topic.LOST, values.encode((self.number, encode_error(error))))


class Visitor:
    """What one other node holds here."""

    def __init__(self) -> None:
        self.receivers: dict[int, PartReceiver] = {}
        self.holds: dict[int, tuple[MessageQueue, SessionLock]] = {}
        self.waits: dict[int, tuple[Waiter, Answer]] = {}
        self.transactions: dict[int, OwnTransaction] = {}
        self.told_queues: WeakSet[MessageQueue] = WeakSet()

    def held(self, hold: int) -> SessionLock:
        """Raises SessionLockLost."""
        found = self.holds.get(hold)
        if found is None:
            raise SessionLockLost("The message session is not held any more. Accept it again.")
        return found[1]

    def detach(self, receiver: PartReceiver, now: Millis) -> None:
        receiver.credit = 0
        receiver.queue.detach(receiver, now)
        if receiver.session is not None:
            for hold, (_, lock) in list(self.holds.items()):
                if lock is receiver.session:
                    del self.holds[hold]

    def leave(self, now: Millis) -> None:
        """Its line is broken."""
        for waiter, _ in self.waits.values():
            waiter.cancel()
        while self.receivers:
            self.detach(self.receivers.popitem()[1], now)
        for queue, lock in self.holds.values():
            queue.release_session(lock, now)
        for transaction in self.transactions.values():
            transaction.rollback()


class SendProgress:
    """Sends on what is answered; the last of it is the answer to the frame."""

    settled_topic = Topic.PLACED

    def __init__(self, line: Line, run: int, message_count: int, answer: Answer) -> None:
        self._line = line
        self._run = run
        self._left = message_count
        self._answer = answer
        self._errors: list[tuple[int, MessagingError]] = []

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        self._left -= len(indexes)
        self._send(indexes, numbers)

    def refused(self, index: int, error: MessagingError, now: Millis) -> None:
        self._left -= 1
        self._errors.append((index, error))
        if not self._left:
            self._send((), ())

    def _send(self, indexes: Sequence[int], numbers: Sequence[int]) -> None:
        errors, self._errors = self._errors, []
        payload = encode_progress(self._run, indexes, numbers, errors)
        if self._left:
            self._line.tell(self.settled_topic, payload)
        else:
            self._answer(payload)


class SettleProgress(SendProgress):
    settled_topic = Topic.SETTLED

    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        self.accepted(indexes, (), now)

    failed = SendProgress.refused
