"""How one send goes, whatever the colour of the client: the decisions of it as a generator.

A courier yields attempts and is told how each went, by `send` for a success and `throw` for an
error. The thread's shell performs an attempt and blocks; asyncio's shell awaits it. Neither
decides anything.

    primary --ok--> done        primary --outage, failed over by now--> backlog queue of this sender
                                backlog queue --fails--> out of the rotation, next queue ... none left: raise
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from twinbus.clock import Clock, Millis
from twinbus.meter.operation import Cause
from twinbus.model import wire_names
from twinbus.pairing.batch import PairedMessageBatch
from twinbus.pairing.errors import BacklogUnavailable
from twinbus.pairing.failover import Route
from twinbus.pairing.failures import FailureKind
from twinbus.pairing.options import millis
from twinbus.pairing.preflight import check
from twinbus.pairing.send_availability import SendAvailability
from twinbus.pairing.transfer import AnyMessage, set_aside

UNNUMBERED = 0
"""Stands for the sequence number of a message that was scheduled while failed over: it has none yet."""

ATTEMPT_MIN_S = 1.0
"""A queue that does not answer sooner than this has not failed: a hasty caller must not cost all others the queue."""

TIMEOUT_MAX_S = 30 * 86_400.0
"""What a longer one stands for, infinity too: locks and sockets take no more than their own limits."""

Outgoing: TypeAlias = AnyMessage | list[AnyMessage] | ServiceBusMessageBatch
Parcel: TypeAlias = AmqpAnnotatedMessage | ServiceBusMessageBatch


class ToPrimary(NamedTuple):
    """Do the operation with the primary's stock sender."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class ToBacklog:
    """Send a parcel to the backlog queue of this index."""

    index: int
    parcel: Parcel
    timeout_s: float


Attempt: TypeAlias = ToPrimary | ToBacklog
Steps: TypeAlias = Generator[Attempt, list[int] | None, list[int]]
"""What a shell drives. Only a schedule at the primary and the size of its batches are answered with numbers."""


class Courier:
    """Of one paired sender. `queue` is the sender's backlog queue once it has one."""

    def __init__(
        self, path: str, availability: SendAvailability, clock: Clock, new_message_id: Callable[[], str]
    ) -> None:
        self.path = path
        self.queue: int | None = None
        self._availability = availability
        self._detector = availability.detector(path)
        self._clock = clock
        self._new_message_id = new_message_id
        self._timeout_default = min(millis(availability.options.operation_timeout), int(TIMEOUT_MAX_S * 1000))
        self._size_max = availability.options.message_size_max

    @property
    def is_untroubled(self) -> bool:
        """The entity is healthy, as far as its senders know."""
        return self._detector.is_untroubled

    def check(self, outgoing: Outgoing) -> None:
        """Refuse now what could not be sent during an outage. A batch has been checked as it was filled."""
        if isinstance(outgoing, list):
            for message in outgoing:
                check(message, self.path, self._size_max)
        elif not isinstance(outgoing, ServiceBusMessageBatch):
            check(outgoing, self.path, self._size_max)
        elif not isinstance(outgoing, PairedMessageBatch) or outgoing.destination != self.path:
            raise ValueError("Fill a batch from this sender's create_message_batch: it checks and keeps each message.")

    def send(self, outgoing: Outgoing, timeout_s: float | None) -> Steps:
        """Attempts until the messages are accepted. Raises what the caller of `send_messages` gets."""
        now, timeout = self._clock.now(), self._timeout(timeout_s)
        if self._goes_to_primary(now):
            try:
                yield ToPrimary(timeout / 1000)
            except Exception as error:
                self._primary_failed(error, now + timeout)
            else:
                self._primary_answered()
                self._availability.meter.sent(Cause.SEND, self.path, _messages_of(outgoing), now)
                return []
        yield from self._to_backlog(_messages_of(outgoing), now + timeout)
        return []

    def schedule(self, messages: list[AnyMessage], at: datetime, timeout_s: float | None) -> Steps:
        """Sequence numbers of the primary, or `UNNUMBERED` for each message that had to go to the backlog."""
        now, timeout = self._clock.now(), self._timeout(timeout_s)
        if self._goes_to_primary(now):
            try:
                numbers = yield ToPrimary(timeout / 1000)
            except Exception as error:
                self._primary_failed(error, now + timeout)
            else:
                self._primary_answered()
                self._availability.meter.sent(Cause.SCHEDULE, self.path, messages, now)
                return numbers or []
        for message in messages:
            _schedule(message, at)
        yield from self._to_backlog(messages, now + timeout)
        return [UNNUMBERED] * len(messages)

    def cancel(self, sequence_numbers: int | list[int], timeout_s: float | None) -> Steps:
        """One attempt at the primary. How it goes counts like a send, but it never goes to the backlog."""
        numbers = sequence_numbers if isinstance(sequence_numbers, list) else [sequence_numbers]
        if not numbers:
            return []  # the SDK asks nobody, so there is no answer that could count
        if UNNUMBERED in numbers:
            raise ValueError("A message that was scheduled while failed over has no sequence number to cancel it by.")
        try:
            yield ToPrimary(self._timeout(timeout_s) / 1000)
        except Exception as error:
            self._availability.primary_failed(self.path, error, self._clock.now())
            raise
        self._primary_answered()
        self._availability.meter.cancelled(self.path, len(numbers), self._clock.now())
        return []

    def batch_size(self) -> Steps:
        """What the primary says that a batch of it may hold; empty while it is away. That counts like a failed send."""
        if not self._detector.is_untroubled:
            return []
        try:
            found = yield ToPrimary(self._timeout_default / 1000)
        except Exception as error:
            if not self._availability.kind_of(error).is_outage:
                raise
            self._availability.primary_failed(self.path, error, self._clock.now())
            return []
        return found or []

    def _timeout(self, timeout_s: float | None) -> Millis:
        if timeout_s is None:
            return self._timeout_default
        if timeout_s <= 0:
            raise ValueError("The timeout must be greater than 0.")
        return max(1, int(min(timeout_s, TIMEOUT_MAX_S) * 1000))

    def _goes_to_primary(self, now: Millis) -> bool:
        return self._detector.is_untroubled or self._availability.route(self.path, now) is Route.PRIMARY

    def _primary_answered(self) -> None:
        if self._detector.failing_since is not None:
            self._availability.primary_answered(self.path)

    def _primary_failed(self, error: Exception, deadline: Millis) -> None:
        """Returns where the send may go on at a backlog queue, and raises `error` where it may not."""
        now = self._clock.now()
        route = self._availability.primary_failed(self.path, error, now)
        if route is not Route.BACKLOG or now >= deadline:
            raise error

    def _to_backlog(self, messages: list[AnyMessage], deadline: Millis) -> Generator[Attempt, object, None]:
        refusal = self._availability.refusal(self.path)
        if refusal is not None:
            # The one error for every send: what each of them added to its traceback would stay.
            raise refusal.with_traceback(None)
        now = self._clock.now()
        aside = [set_aside(message, self.path, self._new_message_id, now) for message in messages]
        for parcel, held in _parcels(aside, self._size_max):
            yield from self._deliver(parcel, held, deadline)

    def _deliver(
        self, parcel: Parcel, held: list[AmqpAnnotatedMessage], deadline: Millis
    ) -> Generator[Attempt, object, None]:
        """Try queue after queue until one takes the parcel."""
        availability = self._availability
        error: Exception | None = None
        while True:
            # Kept in a local too: another thread with the same sender may move it on meanwhile.
            queue = self.queue = availability.choose_queue(self.queue, self._clock.now())
            if queue is None:
                raise self._no_queue(error)
            attempt = ToBacklog(queue, parcel, self._attempt_s(queue, deadline))
            try:
                yield attempt
            except Exception as failure:
                kind = availability.kind_of(failure)
                if kind.is_of_the_message or (kind is FailureKind.TIMEOUT and attempt.timeout_s < ATTEMPT_MIN_S):
                    raise
                error = failure
                availability.queue_failed(queue, failure, self._clock.now())
            else:
                availability.backlog_sent(self.path, queue, held, self._clock.now())
                return

    def _no_queue(self, error: Exception | None) -> Exception:
        cause = error or self._availability.last_error(self.path)
        return BacklogUnavailable(
            f"'{self.path}' is failed over and no backlog queue is left in the rotation, so the message was not "
            f"accepted. Send it again once one of the namespaces is back. The last failure was: {cause}",
            error=cause,
        )

    def _attempt_s(self, queue: int, deadline: Millis) -> float:
        """Half of the time left, so that one hung queue leaves some for the next; all of it for the last queue."""
        remaining = self._remaining_s(deadline)
        if not self._availability.has_other_queue(queue):
            return remaining
        return max(remaining / 2, min(remaining, ATTEMPT_MIN_S))

    def _remaining_s(self, deadline: Millis) -> float:
        remaining = deadline - self._clock.now()
        if remaining <= 0:
            raise OperationTimeoutError(message=f"The send to '{self.path}' did not finish within its timeout.")
        return remaining / 1000


def _schedule(message: AnyMessage, at: datetime) -> None:
    """As the SDK's own schedule does, on the caller's message."""
    if isinstance(message, ServiceBusMessage):
        message.scheduled_enqueue_time_utc = at
    else:
        message.annotations = {**(message.annotations or {}), wire_names.SCHEDULED_ENQUEUE_TIME: at}


def _messages_of(outgoing: Outgoing) -> list[AnyMessage]:
    if isinstance(outgoing, PairedMessageBatch):
        return outgoing.messages
    assert not isinstance(outgoing, ServiceBusMessageBatch)
    return outgoing if isinstance(outgoing, list) else [outgoing]


def _parcels(messages: list[AmqpAnnotatedMessage], size_max: int) -> list[tuple[Parcel, list[AmqpAnnotatedMessage]]]:
    """As few batches as hold them in order, each with what it holds: rewriting may have made one batch too large."""
    if len(messages) == 1:
        return [(messages[0], messages)]
    parcels: list[tuple[Parcel, list[AmqpAnnotatedMessage]]] = []
    batch, held = ServiceBusMessageBatch(max_size_in_bytes=size_max), list[AmqpAnnotatedMessage]()
    for message in messages:
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            parcels.append((batch, held))
            batch, held = ServiceBusMessageBatch(max_size_in_bytes=size_max), []
            batch.add_message(message)
        held.append(message)
    return [*parcels, (batch, held)] if held else parcels
