"""The paired sender for asyncio: a drop-in for the SDK's `azure.servicebus.aio.ServiceBusSender`."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from types import TracebackType
from typing import Any

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender

from twinbus.pairing.aio.guarded_sender import GuardedSender
from twinbus.pairing.batch import PairedMessageBatch
from twinbus.pairing.courier import Attempt, Courier, Steps, ToPrimary
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.preflight import as_messages
from twinbus.pairing.steps import run_async

AtPrimary = Callable[[ServiceBusSender, float], Awaitable[list[int] | None]]


class PairedSender:
    """Sends to one queue or topic of the primary, or for it to the backlog. Tasks may share it.

    Every rule is that of `twinbus.pairing.PairedSender`; here its methods are awaited.
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
        self._courier = courier
        self._options = options
        self._check_pair_live = check_live
        self._batch_size: int | None = None
        self._is_closed = False

    async def __aenter__(self) -> "PairedSender":
        self._check_live()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __str__(self) -> str:
        return f"Paired sender client id: {self.client_identifier}, entity: {self.entity_name}"

    async def send_messages(self, message: object, *, timeout: float | None = None) -> None:
        self._check_live()
        outgoing = as_messages(message)
        if isinstance(outgoing, (list, ServiceBusMessageBatch)) and len(outgoing) == 0:
            return
        self._courier.check(outgoing)
        sendable: Any = outgoing  # the SDK takes lists of both kinds of message, its annotations only of one
        steps = self._courier.send(outgoing, timeout)
        await self._run(steps, lambda stock, timeout_s: stock.send_messages(sendable, timeout=timeout_s))

    async def schedule_messages(
        self, messages: object, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
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
        return await self._run(
            steps, lambda stock, timeout_s: stock.schedule_messages(sendable, schedule_time_utc, timeout=timeout_s)
        )

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None
    ) -> None:
        self._check_live()
        steps = self._courier.cancel(sequence_numbers, timeout)
        await self._run(
            steps, lambda stock, timeout_s: stock.cancel_scheduled_messages(sequence_numbers, timeout=timeout_s)
        )

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        self._check_live()
        size = await self._batch_size_max()
        if max_size_in_bytes and max_size_in_bytes > size:
            raise ValueError(
                f"Max message size: {max_size_in_bytes} is too large, acceptable max batch size is: {size} bytes."
            )
        return PairedMessageBatch(self.entity_name, self._options.message_size_max, max_size_in_bytes or size)

    async def close(self) -> None:
        self._is_closed = True
        opened, self._backlog = [self._primary, *self._backlog.values()], {}
        await asyncio.gather(*(sender.close() for sender in opened))

    async def _run(self, steps: Steps, at_primary: AtPrimary) -> list[int]:
        async def perform(attempt: Attempt) -> list[int] | None:
            if isinstance(attempt, ToPrimary):
                return await self._primary.run(at_primary, attempt.timeout_s)
            parcel = attempt.parcel
            return await self._backlog_sender(attempt.index).run(
                lambda stock, timeout_s: stock.send_messages(parcel, timeout=timeout_s), attempt.timeout_s
            )

        return await run_async(steps, perform)

    def _backlog_sender(self, index: int) -> GuardedSender:
        self._check_live()
        if index not in self._backlog:
            self._backlog[index] = self._open_backlog(index)
        return self._backlog[index]

    async def _batch_size_max(self) -> int:
        if self._batch_size is None:
            sizes = await self._run(self._courier.batch_size(), _batch_size)
            self._batch_size = sizes[0] if sizes else None
        return self._batch_size or self._options.message_size_max

    def _check_live(self) -> None:
        if self._is_closed:
            raise ValueError("The sender has been closed. Get a new one from the paired client.")
        self._check_pair_live()


async def _batch_size(stock: ServiceBusSender, timeout_s: float) -> list[int]:
    return [(await stock.create_message_batch()).max_size_in_bytes]
