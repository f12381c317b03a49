"""The paired sender for asyncio: a drop-in replacement for the SDK's `azure.servicebus.aio.ServiceBusSender`."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from types import TracebackType
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.pairing.aio.guarded_sender import GuardedSender
from twinbus.pairing.backlog.delivery import Pause
from twinbus.pairing.backlog.links import BacklogLinks
from twinbus.pairing.courier import AskPartitioning, Courier, Step, ToPrimary
from twinbus.pairing.deciding.partitioning import Partitioning
from twinbus.pairing.rewriting.preflight import PairedMessageBatch, Sendable, warn_of
from twinbus.pairing.stock.steps import run_async

AskPrimary: TypeAlias = Callable[[AskPartitioning], Awaitable[Partitioning | None]]


async def not_asked(_: AskPartitioning) -> Partitioning | None:
    return None


class PairedSender(ServiceBusSender):
    """Sends to one queue or topic of the primary, or for it to the backlog. Tasks may share it.

    Every rule is that of `twinbus.pairing.PairedSender`; here its methods are awaited.
    """

    def __init__(
        self,
        primary: GuardedSender,
        backlog: BacklogLinks[GuardedSender],
        courier: Courier,
        ask_primary: AskPrimary = not_asked,
    ) -> None:
        # Not the constructor of the SDK's: this sender has no link of its own. It is one of them for whoever checks types.
        self.fully_qualified_namespace = primary.stock.fully_qualified_namespace
        self.entity_name = courier.path
        self._client_identifier = primary.stock.client_identifier
        self._primary = primary
        self._backlog = backlog
        self._courier = courier
        self._ask_primary = ask_primary

    async def __aenter__(self) -> "PairedSender":
        self._courier.check_live()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def client_identifier(self) -> str:
        return self._client_identifier

    def __str__(self) -> str:
        return f"Paired sender client id: {self.client_identifier}, entity: {self.entity_name}"

    async def send_messages(
        self, message: Sendable | ServiceBusMessageBatch, *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        if kwargs:
            warn_of(kwargs)
        courier = self._courier
        attempt = courier.straight(message, timeout)
        if attempt is None:
            await run_async(courier.send(message, timeout), self._perform)
            return
        assert isinstance(message, (ServiceBusMessage, AmqpAnnotatedMessage))
        try:
            await self._primary.perform(attempt)
        except Exception as error:
            await run_async(courier.not_arrived(message, timeout, attempt), self._perform, error)
        else:
            courier.arrived(message, attempt)

    async def schedule_messages(
        self, messages: Sendable, schedule_time_utc: datetime, *, timeout: float | None = None, **kwargs: Any
    ) -> list[int]:
        warn_of(kwargs)
        return await run_async(self._courier.schedule(messages, schedule_time_utc, timeout), self._perform)

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        warn_of(kwargs)
        await run_async(self._courier.cancel(sequence_numbers, timeout), self._perform)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        return await run_async(self._courier.new_batch(max_size_in_bytes), self._perform)

    async def close(self) -> None:
        if self._courier.is_closed:
            return
        self._courier.is_closed = True
        await self._primary.close()

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, ToPrimary):
            return await self._primary.perform(step)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.duration / 1000)
        if isinstance(step, AskPartitioning):
            return await self._ask_primary(step)
        self._courier.check_live()
        return await self._backlog.at(step.index).perform(step)
