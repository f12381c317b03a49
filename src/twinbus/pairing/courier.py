"""The decisions behind every call of a paired sender, as generators, written once for threads and for asyncio.

A generator yields attempts and gets the outcome of each back, by `send` for a success and `throw` for an error. The sender for
threads performs an attempt and blocks; the sender for asyncio awaits it. Neither decides anything.

    primary --ok--> done        primary --outage, failed over by now--> backlog queue of this sender
                                backlog queue --fails--> last in the rotation, next queue ... until the time is over: raise

A send has its timeout for itself: what it waits for others that use the same link is added to it. Where its outage may fail
over at once, the primary gets a part of the time, and the rest is kept for the backlog.
"""

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from twinbus.clock import Clock, Millis
from twinbus.meter.operation import Cause
from twinbus.model import wire_names
from twinbus.model.durations import millis_of
from twinbus.pairing.attempt import Attempt
from twinbus.pairing.errors import BacklogUnavailable
from twinbus.pairing.failover import FailoverDetector, Route
from twinbus.pairing.failures import FailureKind, as_named
from twinbus.pairing.line import NotWantedAnyMore
from twinbus.pairing.preflight import PairedMessageBatch, as_messages, check
from twinbus.pairing.send_availability import SendAvailability
from twinbus.pairing.transfer import AnyMessage, sessions_of, set_aside

UNNUMBERED = 0
"""Stands for the sequence number of a message that was scheduled while failed over: it has none yet."""

ATTEMPT_MIN_S = 1.0
"""A queue that does not answer within less time than this has not failed: one caller's short timeout must not take the queue
away from all others."""

TIMEOUT_MAX_S = 30 * 86_400.0
"""Longer timeouts, and infinity, are shortened to this: locks and sockets have limits of their own."""

KEPT_SHARE = 0.4
KEPT_MAX: Millis = 15_000
"""Of a send's time, for the backlog, where its outage fails over within it."""

HOLD_MAX: Millis = 3_000
HOLD_LOOK: Millis = 50
"""How long a message may wait until the last messages of its session are home, and how often it looks."""

PAUSE_MIN: Millis = 100
PAUSE_MAX: Millis = 1_000
"""Between two rounds through backlog queues that all fail."""

Outgoing: TypeAlias = AnyMessage | list[AnyMessage] | ServiceBusMessageBatch
Parcel: TypeAlias = AmqpAnnotatedMessage | ServiceBusMessageBatch


@dataclass(slots=True)
class ToPrimary(Attempt):
    """With the primary's stock sender."""

    detector: FailoverDetector | None = None

    def is_wanted(self) -> bool:
        return self.detector is None or self.detector.failed_over_at is None


@dataclass(slots=True, kw_only=True)
class ToBacklog(Attempt):
    """Send a parcel to the backlog queue of this index."""

    index: int
    parcel: Parcel
    availability: SendAvailability

    def is_wanted(self) -> bool:
        return self.availability.is_worth_trying(self.index)


@dataclass(frozen=True, slots=True)
class Pause:
    """Let time pass."""

    duration: Millis


Step: TypeAlias = ToPrimary | ToBacklog | Pause
Result = TypeVar("Result")
Steps: TypeAlias = Generator[Step, Any, Result]
"""What a sender runs. The outcome of an attempt is whatever its operation returned."""


class Courier:
    """Decides for one paired sender. `queue` is the sender's backlog queue once it has one.

    `check_pair_live` raises once the pair is over.
    """

    def __init__(
        self,
        path: str,
        availability: SendAvailability,
        clock: Clock,
        new_message_id: Callable[[], str],
        check_pair_live: Callable[[], None],
    ) -> None:
        self.path = path
        self.queue: int | None = None
        self.is_closed = False
        self._check_pair_live = check_pair_live
        self._batch_size: int | None = None
        self._availability = availability
        self._detector = availability.detector(path)
        self._clock = clock
        self._new_message_id = new_message_id
        self._timeout_default = min(millis_of(availability.options.operation_timeout), int(TIMEOUT_MAX_S * 1000))
        self._size_max = availability.options.message_size_max

    def queue_ahead(self, now: Millis) -> int | None:
        """The backlog queue that this sender would use now."""
        self.queue = self._availability.choose_queue(self.queue, now)
        return self.queue

    def check_live(self) -> None:
        self._check_pair_live()
        if self.is_closed:
            raise ValueError("The sender has been closed. Get a new one from the paired client.")

    def _check(self, outgoing: Outgoing) -> None:
        """Refuse now what could not be sent during an outage. The messages of a batch were checked when they were added."""
        if isinstance(outgoing, list):
            for message in outgoing:
                check(message, self.path, self._size_max)
        elif not isinstance(outgoing, ServiceBusMessageBatch):
            check(outgoing, self.path, self._size_max)
        elif not isinstance(outgoing, PairedMessageBatch) or outgoing.destination != self.path:
            raise ValueError("Fill a batch from this sender's create_message_batch: it checks and keeps each message.")

    def send(self, message: object, timeout_s: float | None) -> Steps[None]:
        """Attempts until the messages are accepted. Raises what the caller of `send_messages` gets."""
        self.check_live()
        outgoing = as_messages(message)
        if isinstance(outgoing, (list, ServiceBusMessageBatch)) and len(outgoing) == 0:
            return
        self._check(outgoing)
        now, timeout = self._clock.now(), self._timeout(timeout_s)
        deadline = now + timeout
        if self._detector.is_untroubled or (yield from self._goes_to_primary(_messages_of(outgoing), deadline)):
            attempt = self._to_primary(
                lambda stock, left_s: stock.send_messages(outgoing, timeout=left_s), now, timeout
            )
            is_done, _ = yield from self._try_primary(attempt, deadline)
            if is_done:
                self._availability.meter.sent(Cause.SEND, self.path, _messages_of(outgoing), now)
                return
            deadline += attempt.waited
        yield from self._to_backlog(_messages_of(outgoing), deadline)

    def schedule(self, given: object, at: datetime, timeout_s: float | None) -> Steps[list[int]]:
        """Sequence numbers of the primary, or `UNNUMBERED` for each message that had to go to the backlog."""
        self.check_live()
        outgoing = as_messages(given)
        if isinstance(outgoing, ServiceBusMessageBatch):
            raise TypeError("A batch cannot be scheduled; give a message or a list of messages.")
        messages = outgoing if isinstance(outgoing, list) else [outgoing]
        if not messages:
            return []
        self._check(messages)
        now, timeout = self._clock.now(), self._timeout(timeout_s)
        deadline = now + timeout
        if self._detector.is_untroubled or (yield from self._goes_to_primary(messages, deadline)):
            attempt = self._to_primary(
                lambda stock, left_s: stock.schedule_messages(messages, at, timeout=left_s), now, timeout
            )
            is_done, numbers = yield from self._try_primary(attempt, deadline)
            if is_done:
                self._availability.meter.sent(Cause.SCHEDULE, self.path, messages, now)
                return numbers or []
            deadline += attempt.waited
        for message in messages:
            _schedule(message, at)
        yield from self._to_backlog(messages, deadline)
        return [UNNUMBERED] * len(messages)

    def cancel(self, sequence_numbers: int | list[int], timeout_s: float | None) -> Steps[None]:
        """One attempt at the primary. Its outcome counts like that of a send, but it never goes to the backlog."""
        self.check_live()
        numbers = sequence_numbers if isinstance(sequence_numbers, list) else [sequence_numbers]
        if not numbers:
            return  # the SDK sends no request for this, so there is no answer that could count
        if UNNUMBERED in numbers:
            raise ValueError("A message that was scheduled while failed over has no sequence number to cancel it by.")
        try:
            yield ToPrimary(
                lambda stock, left_s: stock.cancel_scheduled_messages(sequence_numbers, timeout=left_s),
                self._timeout(timeout_s) / 1000,
            )
        except Exception as error:
            self._availability.primary_failed(self.path, error, self._clock.now())
            raise
        self._primary_answered()
        self._availability.meter.cancelled(self.path, len(numbers), self._clock.now())

    def new_batch(self, size_max: int | None) -> Steps[PairedMessageBatch]:
        """An empty batch. During an outage that hides the primary's limit it has the pair's own limit."""
        self.check_live()
        if self._batch_size is None:
            self._batch_size = yield from self._ask_batch_size()
        limit = self._batch_size or self._size_max
        if size_max and size_max > limit:
            raise ValueError(f"Max message size: {size_max} is too large, acceptable max batch size is: {limit} bytes.")
        return PairedMessageBatch(self.path, self._size_max, size_max or limit)

    def _ask_batch_size(self) -> Steps[int | None]:
        """The primary's limit for a batch; None while the primary is down, which counts like a failed send."""
        if not self._detector.is_untroubled:
            return None
        try:
            batch = yield ToPrimary(lambda stock, _: stock.create_message_batch(), self._timeout_default / 1000)
        except Exception as error:
            if not self._availability.kind_of(error).is_outage:
                raise
            self._availability.primary_failed(self.path, error, self._clock.now())
            return None
        limit: int = batch.max_size_in_bytes
        return limit

    def _timeout(self, timeout_s: float | None) -> Millis:
        if timeout_s is None:
            return self._timeout_default
        if timeout_s <= 0:
            raise ValueError("The timeout must be greater than 0.")
        return max(1, int(min(timeout_s, TIMEOUT_MAX_S) * 1000))

    def _goes_to_primary(self, messages: list[AnyMessage], deadline: Millis) -> Steps[bool]:
        """A message of a session whose last messages are nearly home waits for them, for a part of its time."""
        sessions = sessions_of(messages)
        now = self._clock.now()
        held_until = now + min(HOLD_MAX, (deadline - now) // 2)
        while (route := self._availability.route(self.path, self._clock.now(), sessions)) is Route.HOLD:
            if self._clock.now() >= held_until:
                return False
            yield Pause(HOLD_LOOK)
        return route is Route.PRIMARY

    def _to_primary(self, operation: Callable[[Any, float], Any], now: Millis, timeout: Millis) -> ToPrimary:
        kept = min(int(timeout * KEPT_SHARE), KEPT_MAX)
        if not self._detector.fails_over_by(now + timeout - kept):
            kept = 0
        return ToPrimary(operation, (timeout - kept) / 1000, detector=self._detector)

    def _try_primary(self, attempt: ToPrimary, deadline: Millis) -> Steps[tuple[bool, Any]]:
        """Whether the primary has done it, and its answer. False if the send may continue at a backlog queue; otherwise raises."""
        is_second_try = False
        while True:
            try:
                outcome = yield attempt
            except NotWantedAnyMore:
                return False, None
            except Exception as error:
                kind = self._availability.kind_of(error)
                if kind is FailureKind.DETACHED:
                    if not is_second_try:
                        is_second_try = True
                        attempt.timeout_s = max(0.001, min(attempt.timeout_s, self._left_s(deadline + attempt.waited)))
                        continue
                    kind = FailureKind.OUTAGE  # a link that was just opened was not idle
                self._primary_failed(error, kind, deadline + attempt.waited)
                return False, None
            self._primary_answered()
            return True, outcome

    def _primary_answered(self) -> None:
        if self._detector.failing_since is not None:
            self._availability.primary_answered(self.path)

    def _primary_failed(self, error: Exception, kind: FailureKind, deadline: Millis) -> None:
        """Returns if the send may continue at a backlog queue; otherwise raises `error`."""
        now = self._clock.now()
        route = self._availability.primary_failed(self.path, error, now, kind)
        if route is not Route.BACKLOG or now >= deadline:
            raise as_named(error, kind)

    def _to_backlog(self, messages: list[AnyMessage], deadline: Millis) -> Steps[None]:
        refusal = self._availability.refusal(self.path)
        if refusal is not None:
            # Every send raises this one error, so what each of them adds to its traceback would stay.
            raise refusal.with_traceback(None)
        now = self._clock.now()
        aside = [set_aside(message, self.path, self._new_message_id, now) for message in messages]
        sessions = sessions_of(messages)
        for parcel, held in _parcels(aside, self._size_max):
            deadline = yield from self._deliver(parcel, held, sessions, deadline)

    def _deliver(
        self, parcel: Parcel, held: list[AmqpAnnotatedMessage], sessions: Collection[str], deadline: Millis
    ) -> Steps[Millis]:
        """Try queue after queue until one takes the parcel. Returns the deadline, later by what was waited in line."""
        availability, tries = self._availability, _Tries()
        while True:
            # Also kept in a local: another thread with the same sender may change it in the meantime.
            queue = availability.queue_of(self.path, sessions)
            if queue is None:
                queue = self.queue = availability.choose_queue(self.queue, self._clock.now())
            if queue is None:
                raise self._no_queue(tries.last_error)
            attempt = self._attempt(queue, parcel, deadline, tries)
            availability.backlog_begins(self.path, sessions, queue)
            try:
                yield attempt
            except NotWantedAnyMore:
                deadline += attempt.waited
                continue
            except Exception as failure:
                deadline += attempt.waited
                self._note_failure(attempt, failure, tries)
                if availability.is_hopeless(tries.lasting):
                    raise self._no_queue(failure) from failure
                if tries.is_round_over(queue) and (pause := tries.pause(deadline - self._clock.now())):
                    yield Pause(pause)
            else:
                availability.backlog_sent(self.path, queue, held, self._clock.now())
                return deadline + attempt.waited
            finally:
                availability.backlog_ends(self.path, sessions, self._clock.now())

    def _attempt(self, queue: int, parcel: Parcel, deadline: Millis, tries: "_Tries") -> ToBacklog:
        if tries.last_error is not None and self._left_s(deadline) <= 0:
            raise self._no_queue(tries.last_error) from tries.last_error
        return ToBacklog(
            lambda stock, left_s: stock.send_messages(parcel, timeout=left_s),
            self._attempt_s(queue, deadline),
            index=queue,
            parcel=parcel,
            availability=self._availability,
        )

    def _note_failure(self, attempt: ToBacklog, failure: Exception, tries: "_Tries") -> None:
        """Raises `failure` if no other queue can help."""
        kind = self._availability.kind_of(failure)
        if kind.is_of_the_message or (kind is FailureKind.TIMEOUT and attempt.timeout_s < ATTEMPT_MIN_S):
            raise failure
        tries.last_error = failure
        if kind is FailureKind.LOCAL:
            self.queue = None  # its line stands still; another one may move
        elif kind is not FailureKind.DETACHED or attempt.index in tries.detached:
            self._availability.queue_failed(attempt.index, failure, self._clock.now())
        else:
            tries.detached.add(attempt.index)
        if kind.is_lasting:
            tries.lasting.add(attempt.index)

    def _no_queue(self, error: Exception | None) -> Exception:
        cause = error or self._availability.last_error(self.path)
        return BacklogUnavailable(
            f"'{self.path}' is failed over and no backlog queue took the message in time, so it was not accepted. "
            f"Send it again once one of the namespaces is available. The last failure was: {cause}",
            error=cause,
        )

    def _attempt_s(self, queue: int, deadline: Millis) -> float:
        """Half of the remaining time, so that a queue that hangs leaves some for the next; all of it for the last queue."""
        remaining = self._left_s(deadline)
        if remaining <= 0:
            raise OperationTimeoutError(message=f"The send to '{self.path}' did not finish within its timeout.")
        if not self._availability.has_other_queue(queue):
            return remaining
        return max(remaining / 2, min(remaining, ATTEMPT_MIN_S))

    def _left_s(self, deadline: Millis) -> float:
        return (deadline - self._clock.now()) / 1000


class _Tries:
    """What one send has met at backlog queues so far."""

    def __init__(self) -> None:
        self.last_error: Exception | None = None
        self.lasting: set[int] = set()
        self.detached: set[int] = set()
        self._tried: set[int] = set()
        self._pause = PAUSE_MIN

    def is_round_over(self, queue: int) -> bool:
        """True if this queue was tried before: all others have failed since."""
        is_over = queue in self._tried
        self._tried.add(queue)
        return is_over

    def pause(self, left: Millis) -> Millis:
        pause, self._pause = self._pause, min(PAUSE_MAX, 2 * self._pause)
        return max(0, min(pause, left))


def _schedule(message: AnyMessage, at: datetime) -> None:
    """Sets the time on the caller's message, as the SDK's own schedule does."""
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
    """As few batches as hold the messages in order, each with its messages: rewriting may have made one batch too large."""
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
