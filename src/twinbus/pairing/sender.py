"""The paired sender for threads: a drop-in replacement for the SDK's `ServiceBusSender`."""

import time
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.clock import NEVER, Millis
from twinbus.pairing.backlog.delivery import Pause
from twinbus.pairing.backlog.links import BacklogLinks
from twinbus.pairing.courier import AskPartitioning, Courier, Step, ToPrimary
from twinbus.pairing.deciding.partitioning import Partitioning
from twinbus.pairing.rewriting.preflight import PairedMessageBatch, Sendable, warn_of
from twinbus.pairing.stock.guarded_sender import OVERTIME, GuardedSender
from twinbus.pairing.stock.steps import run


class PairedSender(ServiceBusSender):
    """Sends to one queue or topic of the primary, or for it to the backlog. Threads may share it.

    `PairedNamespaceClient.get_queue_sender` and `get_topic_sender` create it. Connections open when they are first needed, so
    entering its context does not fail while the primary is down.
    """

    def __init__(
        self,
        primary: GuardedSender,
        backlog: BacklogLinks[GuardedSender],
        courier: Courier,
        ask_primary: Callable[[AskPartitioning], Partitioning | None] = lambda _: None,
    ) -> None:
        # Not the constructor of the SDK's: this sender has no link of its own. It is one of them for whoever checks types.
        self.fully_qualified_namespace = primary.stock.fully_qualified_namespace
        self.entity_name = courier.path
        self._client_identifier = primary.stock.client_identifier
        self._primary = primary
        self._backlog = backlog
        self._courier = courier
        self._ask_primary = ask_primary
        self._watch, self._now, self._is_metered = courier.watch, courier.clock.now, courier.is_metered
        self._usual_size_max = courier.usual_size_max
        self._straight_s = courier.straight_s

    def __enter__(self) -> "PairedSender":
        self._courier.check_live()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def client_identifier(self) -> str:
        return self._client_identifier

    def __str__(self) -> str:
        return f"Paired sender client id: {self.client_identifier}, entity: {self.entity_name}"

    def send_messages(
        self, message: Sendable | ServiceBusMessageBatch, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Like the SDK's. Returns once the primary or a backlog queue has accepted the messages.

        While failed over, a list or batch may need more than one batch once rewritten; then an error can come after some of
        its messages were accepted.
        """
        # The shortest way, for a usual message to a healthy entity. See `courier` for what a call of ours would cost here.
        if message.__class__ is ServiceBusMessage and self._watch.is_straight and not kwargs:
            try:
                raw: Any = message._raw_amqp_message  # what is public there are functions, not fields
                (body,) = raw._data_body
                is_usual = not raw._application_properties and len(body) <= self._usual_size_max
            except (AttributeError, TypeError, ValueError):  # another kind of body, or another SDK
                is_usual = False
            line = self._primary.line
            if is_usual and line.take():
                guard = self._primary
                lost, began_at, time_s = guard.lag.noticed, self._now(), self._straight_s
                try:
                    if timeout is not None:
                        time_s = self._courier.straight_time_s(timeout)
                    if guard.is_interrupted:
                        guard.replace()
                    guard.deadline = began_at + int(time_s * 1000) + OVERTIME - lost
                    guard.stock.send_messages(message, timeout=time_s)
                except Exception as error:
                    gone = self._courier.gone_straight(message, time_s, began_at)
                    self._go_on(message, timeout, gone, lost, error)
                    return
                except BaseException:
                    # Ctrl-C may have come in the middle of a frame.
                    guard.is_interrupted = True
                    guard.free()
                    raise
                guard.deadline = NEVER
                if line.waiting or guard.is_being_interrupted():
                    line.moved_at = self._now()
                    guard.free()
                else:
                    line.release()
                    if line.waiting:
                        line.released()
                if self._is_metered or not self._watch.is_straight:
                    courier = self._courier
                    courier.arrived(message, courier.gone_straight(message, time_s, began_at))
                return
        if kwargs:
            warn_of(kwargs)
        courier = self._courier
        attempt = courier.straight(message, timeout)
        if attempt is None:
            run(courier.send(message, timeout), self._perform)
            return
        assert isinstance(message, (ServiceBusMessage, AmqpAnnotatedMessage))
        try:
            self._primary.perform(attempt)
        except Exception as error:
            run(courier.not_arrived(message, timeout, attempt), self._perform, error)
        else:
            courier.arrived(message, attempt)

    def _go_on(
        self,
        message: ServiceBusMessage,
        timeout: float | None,
        attempt: ToPrimary,
        lost: Millis,
        error: Exception,
    ) -> None:
        """With a message that went the shortest way and did not arrive."""
        courier, guard = self._courier, self._primary
        try:
            failure = guard.meaning(attempt, lost, error)
        finally:
            guard.free()
        run(courier.not_arrived(message, timeout, attempt), self._perform, failure)

    def schedule_messages(
        self, messages: Sendable, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> list[int]:
        """Like the SDK's. A message scheduled while failed over has no sequence number yet, so 0 stands in its place and it
        cannot be cancelled."""
        warn_of(kwargs)
        return run(self._courier.schedule(messages, schedule_time_utc, timeout), self._perform)

    def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Like the SDK's, always at the primary: only it knows the numbers."""
        warn_of(kwargs)
        run(self._courier.cancel(sequence_numbers, timeout), self._perform)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """Like the SDK's. During an outage that hides the primary's limit the batch has the pair's own limit."""
        return run(self._courier.new_batch(max_size_in_bytes), self._perform)

    def close(self) -> None:
        if self._courier.is_closed:
            return
        self._courier.is_closed = True
        self._usual_size_max = -1  # nothing is usual any more
        self._primary.close()

    def interrupt_if_late(self, now: Millis) -> None:
        """Called by the pair's thread: ends calls that are blocked past their deadline."""
        self._primary.interrupt_if_late(now)

    def _perform(self, step: Step) -> Any:
        if isinstance(step, ToPrimary):
            return self._primary.perform(step)
        if isinstance(step, Pause):
            return time.sleep(step.duration / 1000)
        if isinstance(step, AskPartitioning):
            return self._ask_primary(step)
        self._courier.check_live()
        return self._backlog.at(step.index).perform(step)
