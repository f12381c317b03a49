"""Taking a parcel to a backlog queue: queue after queue, within the time of one send. A generator, as in `courier`."""

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from twinbus.clock import Clock, Millis
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.errors import BacklogUnavailable
from twinbus.pairing.rewriting.stages import Stage, staged
from twinbus.pairing.stock.attempt import Attempt
from twinbus.pairing.stock.failures import FailureKind
from twinbus.pairing.stock.line import NotWantedAnyMore

ATTEMPT_MIN_S = 1.0
"""A queue that does not answer within less time than this has not failed: one caller's short timeout must not take the queue
away from all others."""

PAUSE_MIN: Millis = 100
PAUSE_MAX: Millis = 1_000
"""Between two rounds through backlog queues that all fail."""

Parcel: TypeAlias = AmqpAnnotatedMessage | ServiceBusMessageBatch


@dataclass(slots=True, kw_only=True)
class ToBacklog(Attempt):
    """Send a parcel to the backlog queue of this index."""

    index: int
    parcel: Parcel
    availability: SendAvailability
    clock: Clock
    stays_until: Millis = 0

    def is_wanted(self) -> bool:
        return self.availability.is_worth_trying(self.index) or self.clock.now() < self.stays_until


@dataclass(frozen=True, slots=True)
class Pause:
    """Let time pass."""

    duration: Millis


class BacklogDelivery:
    """Of one paired sender to this entity. `queue` is the sender's backlog queue once it has one."""

    def __init__(self, path: str, availability: SendAvailability, clock: Clock) -> None:
        self.queue: int | None = None
        self._path, self._availability, self._clock = path, availability, clock
        self._size_max = availability.options.message_size_max

    def queue_ahead(self, now: Millis) -> int | None:
        """The backlog queue that this sender would use now."""
        self.queue = self._availability.choose_queue(self.queue, now)
        return self.queue

    def deliver(
        self,
        messages: list[AmqpAnnotatedMessage],
        sessions: Collection[str],
        deadline: Millis,
        goes_to_primary: Callable[[], bool],
    ) -> Generator[ToBacklog | Pause, Any, Millis | None]:
        """As few parcels as hold the messages, in order. None once they are accepted. Otherwise nothing is, and they go to the primary
        by this deadline: `goes_to_primary`, asked after each failure, says that it takes them after all."""
        try:
            for parcel, held in parcels(messages, self._size_max):
                deadline = yield from self._deliver(parcel, held, sessions, deadline, goes_to_primary)
                goes_to_primary = _never
        except _GoesToPrimary as leaving:
            return leaving.deadline
        return None

    def _deliver(
        self,
        parcel: Parcel,
        held: list[AmqpAnnotatedMessage],
        sessions: Collection[str],
        deadline: Millis,
        goes_to_primary: Callable[[], bool],
    ) -> Generator[ToBacklog | Pause, Any, Millis]:
        """Try queue after queue until one takes the parcel. Returns the deadline, later by what was waited in line."""
        availability, now = self._availability, self._clock.now()
        tries = _Tries(stays_until=now + (deadline - now) // 2)
        plain, said = held, dict[str, Stage]()
        while True:
            if tries.last_error is not None and goes_to_primary() and self._left_s(deadline) > 0:
                raise _GoesToPrimary(deadline)
            # Also kept in a local: another thread with the same sender may change it in the meantime.
            queue = self._next_queue(sessions, tries)
            if queue is None:
                raise self._no_queue(tries.last_error)
            stages = availability.stages_at(self._path, sessions, queue)
            if stages != said:
                said = stages
                (parcel, held), *more = parcels(staged(plain, stages), self._size_max)
                if more:  # what they have to say has made one batch too large
                    for part in (plain[: len(held)], plain[len(held) :]):
                        for smaller, kept in parcels(part, self._size_max):
                            deadline = yield from self._deliver(smaller, kept, sessions, deadline, goes_to_primary)
                            goes_to_primary = _never
                    return deadline
            attempt = self._attempt(queue, parcel, sessions, deadline, tries)
            availability.backlog_begins(self._path, sessions, queue)
            accepted_by: int | None = None
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
                accepted_by = queue
                availability.backlog_sent(self._path, queue, held, self._clock.now())
                return deadline + attempt.waited
            finally:
                availability.backlog_ends(self._path, sessions, self._clock.now(), accepted_by)

    def _next_queue(self, sessions: Collection[str], tries: "_Tries") -> int | None:
        """Message sessions stay with their queue for half of the time: what goes elsewhere comes home later, as it waits for what
        is there. Other messages go wherever they are taken."""
        own, now = self._availability.queue_of(self._path, sessions), self._clock.now()
        if own is not None and now < tries.stays_until:
            return own
        self.queue = self._availability.choose_queue(self.queue if own is None else own, now)
        return self.queue

    def _attempt(
        self, queue: int, parcel: Parcel, sessions: Collection[str], deadline: Millis, tries: "_Tries"
    ) -> ToBacklog:
        if tries.last_error is not None and self._left_s(deadline) <= 0:
            raise self._no_queue(tries.last_error) from tries.last_error
        return ToBacklog(
            lambda stock, left_s: stock.send_messages(parcel, timeout=left_s),
            self._attempt_s(queue, deadline),
            index=queue,
            parcel=parcel,
            availability=self._availability,
            clock=self._clock,
            stays_until=tries.stays_until if sessions else 0,
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
        cause = error or self._availability.last_error(self._path)
        is_failed_over = self._availability.watch(self._path).is_failed_over_anywhere()
        why = (
            f"'{self._path}' is failed over and no backlog queue took the message in time, so it was not accepted. "
            "Send it again once one of the namespaces is available."
            if is_failed_over
            else f"Messages for '{self._path}' that follow others in the backlog still go there, although the primary works, and no "
            "backlog queue took this one in time, so it was not accepted. Send it again."
        )
        return BacklogUnavailable(f"{why} The last failure was: {cause}", error=cause)

    def _attempt_s(self, queue: int, deadline: Millis) -> float:
        """Half of the remaining time, so that a queue that hangs leaves some for the next; all of it for the last queue."""
        remaining = self._left_s(deadline)
        if remaining <= 0:
            raise OperationTimeoutError(message=f"The send to '{self._path}' did not finish within its timeout.")
        if not self._availability.has_other_queue(queue):
            return remaining
        return max(remaining / 2, min(remaining, ATTEMPT_MIN_S))

    def _left_s(self, deadline: Millis) -> float:
        return (deadline - self._clock.now()) / 1000


class _GoesToPrimary(Exception):
    """Nothing was accepted, and the primary takes the messages after all."""

    def __init__(self, deadline: Millis) -> None:
        super().__init__()
        self.deadline = deadline


def _never() -> bool:
    """Some messages of the send are in the backlog, and the others belong behind them."""
    return False


class _Tries:
    """What one send has met at backlog queues so far."""

    def __init__(self, stays_until: Millis) -> None:
        self.stays_until = stays_until
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


def parcels(messages: list[AmqpAnnotatedMessage], size_max: int) -> list[tuple[Parcel, list[AmqpAnnotatedMessage]]]:
    """As few batches as hold the messages in order, each with its messages: rewriting may have made one batch too large."""
    if len(messages) == 1:
        return [(messages[0], messages)]
    full: list[tuple[Parcel, list[AmqpAnnotatedMessage]]] = []
    batch, held = ServiceBusMessageBatch(max_size_in_bytes=size_max), list[AmqpAnnotatedMessage]()
    for message in messages:
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            full.append((batch, held))
            batch, held = ServiceBusMessageBatch(max_size_in_bytes=size_max), []
            batch.add_message(message)
        held.append(message)
    return [*full, (batch, held)] if held else full
