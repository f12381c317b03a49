"""The syphon over the bulk client: messages pass as bytes, settlements are pipelined, one connection each way.

Connections and links are opened when they are needed and forgotten at their first failure, so the next pass begins with new ones.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from twinbus.amqp.codec.delivery_state import ACCEPTED, DeliveryState
from twinbus.client.kept_links import KeptLinks
from twinbus.client.namespace import Namespace
from twinbus.client.outcomes import abandoned, dead_lettered
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.receiver import Receiver
from twinbus.clock import Millis
from twinbus.errors import MessageLockLost, MessagingError, OperationTimeout
from twinbus.meter.operation import SYPHON_PRODUCT
from twinbus.model.message_limits import PEEK_COUNT_MAX
from twinbus.pairing.backlog.survey import pages
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.stock.steps import run_async
from twinbus.pairing.syphon.pump import BATCH_MAX
from twinbus.pairing.syphon.transport import (
    HELD_SIZE_MAX,
    Abandon,
    Answer,
    Chunk,
    Complete,
    DeadLetter,
    GiveBackLeft,
    LookInto,
    Receive,
    Request,
    SendAll,
    Taken,
    Wait,
    taken_of,
)

CREDIT = 4 * BATCH_MAX
TIMEOUT_S = 30.0
LOOK_S = 0.25
"""How late a pump notices that it is to stop."""

LINK_LIFE_MIN_S = 5.0
"""A link that ends sooner has a fault; one that ends later may have been idle."""

DESCRIPTION_MAX = 4096


def syphon_links(connection_string: str) -> KeptLinks:
    """For all pumps of a process. Their connection identifies itself as a syphon's."""
    return KeptLinks(partial(Namespace.connect, connection_string, timeout_s=TIMEOUT_S, product=SYPHON_PRODUCT))


class BulkTransport:
    """Of one pump. `credit` is how many messages are here at most that it has not settled, and `size_max` how many bytes.
    `take_wake` says, once, that a wait is to end early."""

    def __init__(
        self,
        queue: str,
        primary: KeptLinks,
        secondary: KeptLinks,
        is_stopping: Callable[[], bool],
        credit: int = CREDIT,
        take_wake: Callable[[], bool] = lambda: False,
        size_max: int = HELD_SIZE_MAX,
    ) -> None:
        self._take_wake = take_wake
        self._queue = queue
        self._primary = primary
        self._secondary = secondary
        self._is_stopping = is_stopping
        self._credit = credit
        self._size_max = size_max
        self._receiver: Receiver | None = None
        self._held_count = self._held_size = 0

    async def perform(self, request: Request) -> Answer:
        match request:
            case Receive(count_max, wait_s):
                return await self._receive(count_max, wait_s)
            case SendAll(chunks):
                return await asyncio.gather(*(self._send(chunk) for chunk in chunks))
            case Complete(taken):
                await self._settle(taken, ACCEPTED)
            case Abandon(taken):
                await self._settle(taken, abandoned())
            case GiveBackLeft():
                await self._give_back_left(request)
            case LookInto(queue, until):
                return await self._look_into(queue, until)
            case DeadLetter(each, reason, description):
                await self._settle([each], dead_lettered(reason, description[:DESCRIPTION_MAX]))
            case Wait(duration):
                await self._wait(duration / 1000)
        return None

    async def _look_into(self, queue: str, until: Millis) -> Survey:
        survey, node = Survey(0), await self._secondary.entity(queue)

        async def peek(number: int) -> Sequence[ReceivedMessage]:
            async with asyncio.timeout(TIMEOUT_S):
                return await node.peek(PEEK_COUNT_MAX, from_number=number)

        await run_async(pages(0, survey, until), peek)
        return survey

    async def _give_back_left(self, left: GiveBackLeft) -> None:
        # What the link was handed in advance comes after them, and would be taken first.
        await self.close()
        node = await self._secondary.entity(self._queue)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for tokens in left.in_requests():
                    await node.abandon_locks(tokens)
        except TimeoutError:
            await self._secondary.drop()
            raise

    async def close(self) -> None:
        """What was handed to us in advance is given back at once; what was left keeps its lock."""
        receiver, self._receiver = self._receiver, None
        self._held_count = self._held_size = 0
        if receiver is not None:
            await receiver.close()

    async def _receive(self, count_max: int, wait_s: float) -> list[Taken]:
        # A link counts what was left against its credit for ever; a new one begins with all of it.
        if self._held_count > self._credit // 2 or self._held_size > self._size_max // 2:
            await self.close()
        receiver = self._receiver
        if receiver is None or receiver.fault is not None:
            receiver = self._receiver = await self._secondary.receiver(self._queue, self._credit, self._size_max)
            self._held_count = self._held_size = 0
        received = await self._wait_for_messages(receiver, count_max, wait_s)
        self._held_count += len(received)
        self._held_size += _size_of(received)
        return [taken_of(each, each.payload, each.delivery_tag) for each in received]

    async def _wait_for_messages(self, receiver: Receiver, count_max: int, wait_s: float) -> list[ReceivedMessage]:
        # Looking often costs nothing: the link has its credit all the time, and all of it is one receive.
        for look in range(max(1, int(wait_s / LOOK_S))):
            try:
                received = await receiver.receive(count_max, min(LOOK_S, wait_s))
            except MessagingError:
                if look * LOOK_S < LINK_LIFE_MIN_S:
                    raise
                return []  # services end links on which nothing happens; the next pass opens another
            if received or self._is_stopping() or self._take_wake():
                return received
        await receiver.end_poll()
        return []

    async def _send(self, chunk: Chunk) -> Exception | None:
        payloads = [transfer.message for transfer in chunk.transfers if isinstance(transfer.message, bytes)]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                sender = await self._primary.sender(chunk.path)
                outcomes = await sender.send_batches(payloads, keeps_keys_apart=False)
        except TimeoutError:
            await self._primary.drop()
            return OperationTimeout(f"'{chunk.path}' did not answer within {TIMEOUT_S:g} s.")
        except MessagingError as error:
            return error
        return next((outcome for outcome in outcomes if outcome is not None), None)

    async def _settle(self, taken: Sequence[Taken], state: DeliveryState) -> None:
        receiver = self._receiver
        if receiver is None:
            raise MessageLockLost("The link that delivered these messages is gone; they come again.")
        held = [each.handle for each in taken if isinstance(each.handle, ReceivedMessage)]
        held.sort(key=lambda each: each.delivery_id or 0)
        self._held_count -= len(held)
        self._held_size -= _size_of(held)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                outcomes = await receiver.settle(held, state)
        except TimeoutError:
            await self._secondary.drop()
            raise
        failure = next((outcome for outcome in outcomes if outcome is not None), None)
        if failure is not None:
            raise failure

    async def _wait(self, seconds: float) -> None:
        while seconds > 0 and not self._is_stopping() and not self._take_wake():
            await asyncio.sleep(min(LOOK_S, seconds))
            seconds -= LOOK_S


def _size_of(messages: Sequence[ReceivedMessage]) -> int:
    return sum([len(message.payload) for message in messages])
