"""The sending half of the bulk client: payloads in, an outcome for each of them out, many under way at once.

Payloads are encoded messages; they go out as fast as the peer gives credit, and nobody waits for
one acknowledgement before the next message. A `Sending` stands for those that were handed in together.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from struct import Struct

from twinbus.amqp.delivery_state import Accepted, DeliveryState, Rejected
from twinbus.amqp.events import CreditChanged, Dispositions, Event
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.client.remote_errors import ConnectionLost, error_of
from twinbus.client.wire import Wire
from twinbus.errors import InternalError, MessagingError

_tag = Struct(">I").pack
_TAG_MASK = 0xFFFFFFFF


class Sending:
    """Messages handed in together. `done` resolves when each has its outcome: None, or the error."""

    __slots__ = ("done", "left", "outcomes")

    def __init__(self, count: int) -> None:
        self.outcomes: list[MessagingError | None] = [None] * count
        self.left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(self, index: int, error: MessagingError | None) -> None:
        if error is not None:
            self.outcomes[index] = error
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)


class Sender:
    """Made by `Namespace.sender`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._link: OutgoingLink | None = None
        self._queue: deque[tuple[bytes, int, Sending, int]] = deque()
        self._under_way: dict[bytes, tuple[Sending, int]] = {}
        self._next_tag = 0
        self._fault: MessagingError | None = None

    def bind(self, link: OutgoingLink) -> None:
        self._link = link

    def submit(self, payloads: Sequence[bytes], message_format: int = 0) -> Sending:
        """Hand messages in without waiting. How many may be under way is the caller's to bound."""
        sending = Sending(len(payloads))
        if self._fault is not None or not payloads:
            for index in range(len(payloads)):
                sending.settled(index, self._fault)
            if not payloads:
                sending.done.set_result(None)
            return sending
        self._queue.extend([(payload, message_format, sending, index) for index, payload in enumerate(payloads)])
        self._send_queued()
        return sending

    async def send(self, payloads: Sequence[bytes], message_format: int = 0) -> list[MessagingError | None]:
        """Send them all; the outcome of each, None where the peer has it."""
        sending = self.submit(payloads, message_format)
        await sending.done
        return sending.outcomes

    def detach(self) -> None:
        if self._link is not None:
            self._link.detach()
            self._wire.flush_soon()

    # What the link says

    def link_event(self, event: Event) -> None:
        if isinstance(event, CreditChanged):
            self._send_queued()
            if event.drain and self._link is not None:
                self._link.drained()
        elif isinstance(event, Dispositions):
            self._settled(event)

    def link_lost(self, error: MessagingError) -> None:
        self._fault = error
        under_way, self._under_way = self._under_way, {}
        for sending, index in under_way.values():
            sending.settled(index, error)
        while self._queue:
            _, _, sending, index = self._queue.popleft()
            sending.settled(index, error)

    def _send_queued(self) -> None:
        link, queue = self._link, self._queue
        if link is None:
            return
        count = min(link.credit, len(queue))
        if not count:
            return
        burst: list[tuple[bytes, bytes]] = []
        under_way = self._under_way
        for _ in range(count):
            payload, message_format, sending, index = queue.popleft()
            self._next_tag = (self._next_tag + 1) & _TAG_MASK
            tag = _tag(self._next_tag)
            under_way[tag] = (sending, index)
            if message_format:
                link.transfer(payload, tag, message_format=message_format)
            else:
                burst.append((tag, payload))
        link.transfers(burst)
        self._wire.flush_soon()

    def _settled(self, event: Dispositions) -> None:
        error = _error_in(event.state)
        under_way = self._under_way
        for _, tag in event.deliveries:
            found = under_way.pop(tag, None)
            if found is not None:
                found[0].settled(found[1], error)
        if self._queue:
            self._send_queued()


def _error_in(state: DeliveryState | None) -> MessagingError | None:
    if isinstance(state, Accepted):
        return None
    if isinstance(state, Rejected):
        return error_of(state.error) if state.error is not None else InternalError("The peer refused the message.")
    return ConnectionLost("The peer gave the message back. Send it again.")
