"""The paired sender for threads: a drop-in for the SDK's `ServiceBusSender`."""

import threading
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Any

from azure.servicebus import ServiceBusMessageBatch, ServiceBusSender

from twinbus.clock import Millis
from twinbus.pairing.batch import PairedMessageBatch
from twinbus.pairing.closing import close_all
from twinbus.pairing.courier import Attempt, Courier, Steps, ToPrimary
from twinbus.pairing.guarded_sender import GuardedSender
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.preflight import as_messages
from twinbus.pairing.steps import run

AtPrimary = Callable[[ServiceBusSender, float], list[int] | None]


class PairedSender:
    """Sends to one queue or topic of the primary, or for it to the backlog. Threads may share it.

    Made by `PairedNamespaceClient.get_queue_sender` and `get_topic_sender`. Opening connections
    waits until they are needed, so entering its context does not fail while the primary is down.
    """

    def __init__(
        self,
        primary: GuardedSender,
        open_backlog: Callable[[int], GuardedSender],
        courier: Courier,
        options: SendAvailabilityPairedNamespaceOptions,
        check_live: Callable[[], None],
    ) -> None:
        self.fully_qualified_namespace = primary.stock.fully_qualified_namespace
        self.client_identifier = primary.stock.client_identifier
        self.entity_name = courier.path
        self._primary = primary
        self._open_backlog = open_backlog
        self._backlog: dict[int, GuardedSender] = {}
        self._backlog_lock = threading.Lock()
        self._courier = courier
        self._options = options
        self._check_pair_live = check_live
        self._batch_size: int | None = None
        self._is_closed = False

    def __enter__(self) -> "PairedSender":
        self._check_live()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return f"Paired sender client id: {self.client_identifier}, entity: {self.entity_name}"

    def send_messages(self, message: object, *, timeout: float | None = None) -> None:
        """Like the SDK's. Returns once the primary or a backlog queue has accepted the messages.

        While failed over, a list or batch may need more than one batch once rewritten; then an
        error can come after some of its messages were accepted.
        """
        self._check_live()
        outgoing = as_messages(message)
        if isinstance(outgoing, (list, ServiceBusMessageBatch)) and len(outgoing) == 0:
            return
        self._courier.check(outgoing)
        sendable: Any = outgoing  # the SDK takes lists of both kinds of message, its annotations only of one
        steps = self._courier.send(outgoing, timeout)
        self._run(steps, lambda stock, timeout_s: stock.send_messages(sendable, timeout=timeout_s))

    def schedule_messages(
        self, messages: object, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Like the SDK's. A message scheduled while failed over has no sequence number yet, so 0 stands
        in its place and it cannot be cancelled."""
        self._check_live()
        given = as_messages(messages)
        if isinstance(given, ServiceBusMessageBatch):
            raise TypeError("A batch cannot be scheduled; give a message or a list of messages.")
        outgoing = given if isinstance(given, list) else [given]
        if not outgoing:
            return []
        self._courier.check(outgoing)
        sendable: Any = outgoing
        steps = self._courier.schedule(outgoing, schedule_time_utc, timeout)
        return self._run(
            steps, lambda stock, timeout_s: stock.schedule_messages(sendable, schedule_time_utc, timeout=timeout_s)
        )

    def cancel_scheduled_messages(self, sequence_numbers: int | list[int], *, timeout: float | None = None) -> None:
        """Like the SDK's, always at the primary: only it knows the numbers."""
        self._check_live()
        steps = self._courier.cancel(sequence_numbers, timeout)
        self._run(steps, lambda stock, timeout_s: stock.cancel_scheduled_messages(sequence_numbers, timeout=timeout_s))

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """Like the SDK's. During an outage that hides the primary's limit the pair's own one is used."""
        self._check_live()
        size = self._batch_size_max()
        if max_size_in_bytes and max_size_in_bytes > size:
            raise ValueError(
                f"Max message size: {max_size_in_bytes} is too large, acceptable max batch size is: {size} bytes."
            )
        return PairedMessageBatch(self.entity_name, self._options.message_size_max, max_size_in_bytes or size)

    def close(self) -> None:
        self._is_closed = True
        with self._backlog_lock:
            opened = [self._primary, *self._backlog.values()]
            self._backlog = {}
        close_all(opened)

    def interrupt_if_late(self, now: Millis) -> None:
        """Called by the pair's thread: ends what is blocked past its deadline."""
        self._primary.interrupt_if_late(now)
        for sender in list(self._backlog.values()):
            sender.interrupt_if_late(now)

    def _run(self, steps: Steps, at_primary: AtPrimary) -> list[int]:
        def perform(attempt: Attempt) -> list[int] | None:
            if isinstance(attempt, ToPrimary):
                return self._primary.run(at_primary, attempt.timeout_s)
            parcel = attempt.parcel
            return self._backlog_sender(attempt.index).run(
                lambda stock, timeout_s: stock.send_messages(parcel, timeout=timeout_s), attempt.timeout_s
            )

        return run(steps, perform)

    def _backlog_sender(self, index: int) -> GuardedSender:
        with self._backlog_lock:
            self._check_live()
            if index not in self._backlog:
                self._backlog[index] = self._open_backlog(index)
            return self._backlog[index]

    def _batch_size_max(self) -> int:
        if self._batch_size is None:
            sizes = self._run(
                self._courier.batch_size(), lambda stock, _: [stock.create_message_batch().max_size_in_bytes]
            )
            self._batch_size = sizes[0] if sizes else None
        return self._batch_size or self._options.message_size_max

    def _check_live(self) -> None:
        if self._is_closed:
            raise ValueError("The sender has been closed. Get a new one from the paired client.")
        self._check_pair_live()
