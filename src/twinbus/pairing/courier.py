"""The decisions behind every call of a paired sender, as generators, written once for threads and for asyncio.

A generator yields attempts and gets the outcome of each back, by `send` for a success and `throw` for an error. The sender for
threads performs an attempt and blocks; the sender for asyncio awaits it. Neither decides anything.

    primary --ok--> done        primary --outage, failed over by now--> backlog queue of this sender
                                backlog queue --fails--> last in the rotation, next queue ... until the time is over: raise
                                                         or the primary takes it again: primary

Most sends have nothing to decide about: one message, and nothing is known against the primary. Such a send goes *straight*, as one
attempt without a generator; only if that fails do the decisions begin, with its failure. A send finds the processor's caches
cold, where each function that it passes through takes about five times as long as in a loop: so the sender for threads sends a usual
message by itself, and asks here only afterwards, if there is anything to ask.

A send has its timeout for itself: what it waits for others that use the same link is added to it. Where its outage may fail
over at once, the primary gets a part of the time, and the rest is kept for the backlog.
"""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.clock import Clock, Millis
from twinbus.meter.operation import Cause
from twinbus.model import wire_names
from twinbus.model.durations import millis_of
from twinbus.pairing.backlog.delivery import BacklogDelivery, Pause, ToBacklog
from twinbus.pairing.deciding.entity_watch import EntityWatch
from twinbus.pairing.deciding.failover import Route
from twinbus.pairing.deciding.partitioning import Partitioning
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.rewriting.preflight import PairedMessageBatch, as_messages, check, usual_size_max
from twinbus.pairing.rewriting.transfer import AnyMessage, sessions_of, set_aside
from twinbus.pairing.stock.attempt import Attempt
from twinbus.pairing.stock.failures import FailureKind, as_named, is_answer
from twinbus.pairing.stock.line import NotWantedAnyMore

UNNUMBERED = 0
"""Stands for the sequence number of a message that was scheduled while failed over: it has none yet."""

TIMEOUT_MAX_S = 30 * 86_400.0
"""Longer timeouts, and infinity, are shortened to this: locks and sockets have limits of their own."""

KEPT_SHARE = 0.4
KEPT_MAX: Millis = 15_000
"""Of a send's time, for the backlog, where its outage fails over within it."""

HOLD_MAX: Millis = 3_000
HOLD_LOOK: Millis = 50
"""How long a message may wait until the last messages of its session are home, and how often it looks."""

ASK_MAX: Millis = 3_000
"""At most, and no more than a quarter of a send's time, to learn how its entity is partitioned. Once for each entity."""

_LOGGER = logging.getLogger(__name__)

Outgoing: TypeAlias = AnyMessage | list[AnyMessage] | ServiceBusMessageBatch


@dataclass(slots=True)
class ToPrimary(Attempt):
    """With the primary's stock sender. `fragment` is the one that the messages need, where that is known; the send began at
    `began_at`. `watch` is None where it has nowhere else to go."""

    watch: EntityWatch | None = None
    fragment: int | None = None
    began_at: Millis = 0

    def is_wanted(self) -> bool:
        return self.watch is None or not self.watch.is_failed_over(self.fragment)


@dataclass(frozen=True, slots=True)
class AskPartitioning:
    """Ask the primary's administration how the entity is partitioned."""

    path: str
    timeout_s: float


Step: TypeAlias = ToPrimary | ToBacklog | Pause | AskPartitioning
Result = TypeVar("Result")
Steps: TypeAlias = Generator[Step, Any, Result]
"""What a sender runs. The outcome of an attempt is whatever its operation returned."""


class Courier:
    """Decides for one paired sender. `check_pair_live` raises once the pair is over."""

    def __init__(
        self,
        path: str,
        availability: SendAvailability,
        clock: Clock,
        new_message_id: Callable[[], str],
        check_pair_live: Callable[[], None],
    ) -> None:
        self.path = path
        self.backlog = BacklogDelivery(path, availability, clock)
        self.is_closed = False
        self._check_pair_live = check_pair_live
        self._batch_size: int | None = None
        self._size_max = availability.options.message_size_max
        self._availability = availability
        self.watch = availability.watch(path)
        self.usual_size_max = usual_size_max(self._size_max)
        self.clock = clock
        self._new_message_id = new_message_id
        self._timeout_default = min(millis_of(availability.options.operation_timeout), int(TIMEOUT_MAX_S * 1000))
        self.is_metered = availability.meter.is_on
        self._fails_over_at_once = not availability.options.failover_interval
        self.straight_s = _time_s(self._timeout_default, self._fails_over_at_once)

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

    def straight(self, message: object, timeout_s: float | None) -> ToPrimary | None:
        """The one attempt of a send about which nothing is to be decided. Then call `arrived`, or run `not_arrived`.
        None for any other send: run `send`."""
        if not self.watch.is_straight or not isinstance(message, (ServiceBusMessage, AmqpAnnotatedMessage)):
            return None
        self.check_live()
        check(message, self.path, self._size_max)
        return self.gone_straight(message, self.straight_time_s(timeout_s), self.clock.now())

    def straight_time_s(self, timeout_s: float | None) -> float:
        """What the primary gets of the time of a send that goes straight."""
        return self.straight_s if timeout_s is None else _time_s(self._timeout(timeout_s), self._fails_over_at_once)

    def gone_straight(self, message: AnyMessage, time_s: float, began_at: Millis) -> ToPrimary:
        """The attempt of a send that the caller has begun already, because its message is a usual one."""
        return ToPrimary(
            lambda stock, left_s: stock.send_messages(message, timeout=left_s),
            time_s,
            0,
            self._elsewhere,
            None,
            began_at,
        )

    @property
    def _elsewhere(self) -> EntityWatch | None:
        """Who knows whether a send should go to the backlog instead; None while there is none."""
        return self.watch if self._availability.backlog_queues else None

    def arrived(self, message: AnyMessage, attempt: ToPrimary) -> None:
        """Straight at the primary."""
        if self.is_metered:
            self._availability.meter.sent(Cause.SEND, self.path, [message], attempt.began_at)
        if not self.watch.is_straight:
            self._primary_answered([message])

    def not_arrived(self, message: AnyMessage, timeout_s: float | None, attempt: ToPrimary) -> Steps[None]:
        """Goes on with a send that went straight to the primary. The first step is `attempt`, which has failed."""
        errand = self._errand([message], timeout_s, attempt.began_at)
        is_done, _ = yield from self._try_primary(attempt, errand)
        if not is_done and not (yield from self._to_backlog(errand)):
            yield from self._send(errand, attempt.operation)

    def send(self, message: object, timeout_s: float | None) -> Steps[None]:
        """Attempts until the messages are accepted. Raises what the caller of `send_messages` gets."""
        self.check_live()
        outgoing = as_messages(message)
        if isinstance(outgoing, (list, ServiceBusMessageBatch)) and len(outgoing) == 0:
            return
        self._check(outgoing)
        errand = self._errand(_messages_of(outgoing), timeout_s, self.clock.now())
        yield from self._send(errand, lambda stock, left_s: stock.send_messages(outgoing, timeout=left_s))

    def _send(self, errand: "_Errand", operation: Callable[[Any, float], Any]) -> Steps[None]:
        """To whichever place takes it."""
        while True:
            is_done, _ = yield from self._at_primary(errand, operation)
            if is_done or (yield from self._to_backlog(errand)):
                return

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
        errand = self._errand(messages, timeout_s, self.clock.now(), Cause.SCHEDULE)
        while True:
            is_done, numbers = yield from self._at_primary(
                errand, lambda stock, left_s: stock.schedule_messages(messages, at, timeout=left_s)
            )
            if is_done:
                return numbers or []
            for message in messages:
                _schedule(message, at)
            if (yield from self._to_backlog(errand)):
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
            self.check_live()
            self._availability.primary_failed(
                self.path, error, self.clock.now(), fragment=self.watch.fragment_of_numbers(numbers)
            )
            raise
        self._primary_answered(None)
        self._availability.meter.cancelled(self.path, len(numbers), self.clock.now())

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
        if not self.watch.whole.is_untroubled:
            return None
        try:
            batch = yield ToPrimary(lambda stock, _: stock.create_message_batch(), self._timeout_default / 1000)
        except Exception as error:
            self.check_live()
            if not self._availability.kind_of(error).is_outage:
                raise
            self._availability.primary_failed(self.path, error, self.clock.now())
            return None
        limit: int = batch.max_size_in_bytes
        return limit

    def _timeout(self, timeout_s: float | None) -> Millis:
        if timeout_s is None:
            return self._timeout_default
        if timeout_s <= 0:
            raise ValueError("The timeout must be greater than 0.")
        return max(1, int(min(timeout_s, TIMEOUT_MAX_S) * 1000))

    def _errand(
        self, messages: list[AnyMessage], timeout_s: float | None, began_at: Millis, cause: Cause = Cause.SEND
    ) -> "_Errand":
        timeout = self._timeout(timeout_s)
        return _Errand(messages, cause, began_at, timeout, began_at + timeout)

    def _at_primary(self, errand: "_Errand", operation: Callable[[Any, float], Any]) -> Steps[tuple[bool, Any]]:
        """Whether the primary has done it, and its answer. False if it is to go to a backlog queue; otherwise raises."""
        if not (self.watch.is_untroubled or (yield from self._goes_to_primary(errand))):
            return False, None
        return (yield from self._try_primary(self._to_primary(operation, errand), errand))

    def _goes_to_primary(self, errand: "_Errand") -> Steps[bool]:
        """A message of a session whose last messages are nearly home waits for them, for a part of its time."""
        sessions = sessions_of(errand.messages)
        errand.fragment = self.watch.fragment_of(errand.messages)
        now = self.clock.now()
        held_until = now + min(HOLD_MAX, (errand.deadline - now) // 2)
        while (route := self._availability.route(self.path, self.clock.now(), sessions, errand.fragment)) is Route.HOLD:
            if self.clock.now() >= held_until:
                return False
            yield Pause(HOLD_LOOK)
        return route is Route.PRIMARY

    def _to_primary(self, operation: Callable[[Any, float], Any], errand: "_Errand") -> ToPrimary:
        fails_over = self.watch.fails_over_by(errand.began_at + errand.timeout - _kept(errand.timeout), errand.fragment)
        time_s = _time_s(errand.timeout, fails_over)
        if errand.came_back:
            time_s = min(time_s, max(0.001, self._left_s(errand.deadline)))
        return ToPrimary(operation, time_s, 0, self._elsewhere, errand.fragment, errand.began_at)

    def _try_primary(self, attempt: ToPrimary, errand: "_Errand") -> Steps[tuple[bool, Any]]:
        is_second_try = False
        while True:
            try:
                outcome = yield attempt
            except NotWantedAnyMore:
                errand.deadline += attempt.waited
                return False, None
            except Exception as error:
                self.check_live()  # a close breaks off what is under way, which says nothing about the primary
                kind = self._availability.kind_of(error)
                deadline = errand.deadline + attempt.waited
                if kind is FailureKind.DETACHED:
                    if not is_second_try:
                        is_second_try = True
                        attempt.timeout_s = max(0.001, min(attempt.timeout_s, self._left_s(deadline)))
                        continue
                    kind = FailureKind.OUTAGE  # a link that was just opened was not idle
                if kind.is_outage:
                    yield from self._find_fragment(errand, error, deadline)
                self._primary_failed(error, kind, errand, attempt.waited)
                errand.deadline += attempt.waited
                return False, None
            self._primary_answered(errand.messages)
            self._availability.meter.sent(errand.cause, self.path, errand.messages, errand.began_at)
            return True, outcome

    def _find_fragment(self, errand: "_Errand", error: Exception, deadline: Millis) -> Steps[None]:
        """The one that a failed send needed. Asks the primary once whether the entity has fragments, if it matters: the primary
        answered, so it can be asked."""
        if self.watch.partitioning is None and is_answer(error):
            now = self.clock.now()
            ends_at = now + min(ASK_MAX, (deadline - now) // 4)
            if self._availability.begin_asking(self.path, self.clock.now()):
                answer: Partitioning | None = None
                try:
                    answer = yield AskPartitioning(self.path, max(0.001, self._left_s(ends_at)))
                except Exception as unanswered:
                    _LOGGER.info("the primary does not say how %s is partitioned: %s", self.path, unanswered)
                finally:
                    self._availability.asked(self.path, answer, self.clock.now())
            while self.watch.is_asking and self.clock.now() < ends_at:
                yield Pause(HOLD_LOOK)
        errand.fragment = self.watch.fragment_of(errand.messages)

    def _primary_answered(self, messages: list[AnyMessage] | None) -> None:
        watch = self.watch
        if watch.has_fragments or not watch.is_untroubled:
            fragment = None if messages is None else watch.fragment_of(messages)
            self._availability.primary_answered(self.path, self.clock.now(), fragment)

    def _primary_failed(self, error: Exception, kind: FailureKind, errand: "_Errand", waited: Millis) -> None:
        """Returns if the send may continue at a backlog queue; otherwise raises `error`."""
        now = self.clock.now()
        route = self._availability.primary_failed(
            self.path, error, now, kind, fragment=errand.fragment, began_at=errand.began_at + waited
        )
        if route is not Route.BACKLOG or now >= errand.deadline + waited:
            raise as_named(error, kind)

    def _to_backlog(self, errand: "_Errand") -> Steps[bool]:
        """False if it comes back: no backlog queue took it, and meanwhile the primary takes it again."""
        refusal = self._availability.refusal(self.path, errand.fragment)
        if refusal is not None:
            # Every send raises this one error, so what each of them adds to its traceback would stay.
            raise refusal.with_traceback(None)
        if not errand.aside:
            now = self.clock.now()
            errand.aside = [set_aside(message, self.path, self._new_message_id, now) for message in errand.messages]
        sessions = sessions_of(errand.messages)

        def goes_to_primary() -> bool:
            return self._availability.route(self.path, self.clock.now(), sessions, errand.fragment) is Route.PRIMARY

        deadline = yield from self.backlog.deliver(errand.aside, sessions, errand.deadline, goes_to_primary)
        if deadline is None:
            return True
        errand.deadline, errand.came_back = deadline, True
        return False

    def _left_s(self, deadline: Millis) -> float:
        return (deadline - self.clock.now()) / 1000


@dataclass(slots=True)
class _Errand:
    """One call of the application. `fragment` is the one that its messages need, once that is known. `came_back` from the backlog;
    if it goes there again, its messages are the same, with the ids that they were given."""

    messages: list[AnyMessage]
    cause: Cause
    began_at: Millis
    timeout: Millis
    deadline: Millis
    fragment: int | None = None
    came_back: bool = False
    aside: list[AmqpAnnotatedMessage] = field(default_factory=list)


def _kept(timeout: Millis) -> Millis:
    return min(int(timeout * KEPT_SHARE), KEPT_MAX)


def _time_s(timeout: Millis, fails_over: bool) -> float:
    """What the primary gets of a send's time, if its outage fails over within it or not."""
    return (timeout - _kept(timeout) if fails_over else timeout) / 1000


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
