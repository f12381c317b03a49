"""A receive of one message for a caller that waits for it, as HTTP does: a receiver with a credit of 1.

waiting --deliver--> answered
   |----give_up----> answered with None, or with the message whose removal is under way
   '--session_lost-> answered with the error
"""

from twinbus.broker.consumer import ReceiveMode, SessionLock, TakenMessage
from twinbus.broker.outcomes import RELEASE
from twinbus.broker.replies import Reply
from twinbus.broker.source import Source
from twinbus.clock import Millis
from twinbus.errors import MessagingError


class SingleReceive:
    """Implements the broker's `Consumer` protocol. `reply` is called once, with the message, None or an error."""

    def __init__(self, queue: Source, mode: ReceiveMode, reply: Reply[TakenMessage | None]) -> None:
        self.credit = 1
        self.mode = mode
        self.session: SessionLock | None = None
        self._queue = queue
        self._reply = reply
        self._is_answered = False
        self._is_attached = False
        self._is_given_up = False

    def start(self, now: Millis) -> None:
        """Raises MessagingError where nothing can be received from the queue this way."""
        self._is_attached = True
        self._queue.attach(self, now)

    @property
    def is_under_way(self) -> bool:
        """The queue has taken a message for this receive, and its removal is not durable yet."""
        return self.credit == 0 and not self._is_answered

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        assert len(deliveries) == 1
        self._answer(deliveries[0])

    def credit_returned(self, now: Millis) -> None:
        if self._is_given_up and not self.is_under_way:
            self._answer_empty()

    def session_lost(self, error: MessagingError) -> None:
        """There is no message session here, but the entity was deleted or its store is lost: no message will come."""
        self.credit = 0
        self._answer(error)

    def give_up(self, now: Millis) -> None:
        """The waiting is over. But a message that is being removed is still waited for: nobody else will get it."""
        self._is_given_up = True
        if self.is_under_way:
            self._queue.recall(self, now)
        else:
            self._answer_empty()

    def _answer_empty(self) -> None:
        self.credit = 0
        self._answer(None)

    def finish(self, now: Millis) -> None:
        """Call it once at the end, however the receive ended."""
        self.credit = 0
        self._is_answered = True
        if self._is_attached:
            self._is_attached = False
            self._queue.detach(self, now)

    def return_message(self, delivery: TakenMessage, now: Millis) -> None:
        """The caller has gone: a locked message is available again at once."""
        if delivery.lock_token:
            self._queue.settle([delivery.lock_token], RELEASE, now, lambda _: None)

    def _answer(self, delivery: TakenMessage | MessagingError | None) -> None:
        if not self._is_answered:
            self._is_answered = True
            self._reply(delivery)
