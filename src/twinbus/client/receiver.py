"""The receiving half of the bulk client: messages out in lists, settlements in by ranges, none waited for one by one.

    link --credit--> inbox --receive--> held by the caller --submit--> settling --the peer's answer--> outcome

In peek-lock, credit counts what is not settled: a caller that does not settle gets no more. In receive-and-delete it counts what
was not taken from the inbox. Either way the inbox is bounded.

Credit counts messages, however large they are. In peek-lock a receiver may have a limit in bytes too: then it has credit for as many
messages of the mean size of those that it holds. The size of what comes is not known before it has come, so what is on its way when
messages become larger comes all the same.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from twinbus.amqp.codec.delivery_state import ACCEPTED, RELEASED, DeliveryState, Rejected, Released
from twinbus.amqp.codec.types import Value
from twinbus.amqp.events import CreditChanged, Deliveries, Dispositions, Event
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.client.connecting.wire import CLOSE_TIMEOUT_S, Wire
from twinbus.client.outcomes import Outcomes, abandoned, dead_lettered, deferred, outcome_in
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.remote_errors import ConnectionLost, error_of
from twinbus.clock import Millis
from twinbus.errors import MessagingError, NotAllowed


class Receiver:
    """Created by `Namespace.receiver` and `Namespace.session_receiver`.

    `waits_for_outcome` is the peek-lock of Service Bus: the peer confirms each settlement. `deletes` is
    receive-and-delete: messages are removed when they are sent, and there is nothing to settle. `size_max`, in peek-lock: about
    how many bytes may be unsettled; None for no limit.
    """

    def __init__(
        self, wire: Wire, *, waits_for_outcome: bool, deletes: bool = False, size_max: int | None = None
    ) -> None:
        self._wire = wire
        self._waits_for_outcome = waits_for_outcome
        self._deletes = deletes
        self._credit = 0
        self._size_max = size_max
        self._fitting_credit = 0  # as much of the credit as messages of this size leave room for
        self._is_resting = False  # between two polls, without credit
        self._link: IncomingLink | None = None
        self._inbox: deque[ReceivedMessage] = deque()
        # By delivery id. Ids repeat from link to link, so a settled message must be this very object.
        self._held: dict[int, ReceivedMessage] = {}
        self._settling: dict[int, tuple[Outcomes, int]] = {}
        self._arrival: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_paused = False
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.session_id: str | None = None
        """The message session that is locked, for a session receiver."""
        self.session_locked_until: Millis | None = None
        """As of when the session was locked; renewals return a later time."""
        self.fault: MessagingError | None = None
        """Why no more messages come and nothing can be settled; None while the receiver works."""

    def bind(self, link: IncomingLink, credit: int) -> None:
        self._link = link
        self._credit = self._fitting_credit = credit
        if self._deletes:
            self._top_up()
        else:
            link.keep_credit(credit)
        self._wire.flush_soon()

    async def receive(self, count_max: int, wait_s: float) -> list[ReceivedMessage]:
        """Messages in the inbox, otherwise the first that arrive; an empty list if none arrive in time."""
        inbox = self._inbox
        if self._is_resting and self._link is not None:
            self._begin_poll(self._link)
        if not inbox:
            await self._wait(wait_s)
        taken = [inbox.popleft() for _ in range(min(count_max, len(inbox)))]
        if self._deletes:
            self._top_up()
        return taken

    async def collect(self, count: int, wait_s: float) -> list[ReceivedMessage]:
        """Messages until there are `count` of them or the time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        found = await self.receive(count, wait_s)
        # An error that ends the link must not lose the messages that are here already.
        while found and len(found) < count and self.fault is None and (left := deadline - loop.time()) > 0:
            with suppress(MessagingError):
                found += await self.receive(count - len(found), left)
        return found

    async def end_poll(self) -> None:
        """Have the peer use up or return the outstanding credit: one long poll ends, and the next `receive` begins another.

        What arrives in the meantime is kept for it. A namespace that counts operations distinguishes polls by this.
        """
        if self._link is not None and self.fault is None:
            await self._drain(self._link)
            self._is_resting = True

    def _begin_poll(self, link: IncomingLink) -> None:
        self._is_resting = False
        if self._deletes:
            self._top_up()
        else:
            link.keep_credit(self._fitting_credit)
        self._wire.flush_soon()

    def forget(self, messages: Sequence[ReceivedMessage]) -> None:
        """Leave them to their locks: they are not settled, and no longer count against the credit."""
        count = 0
        for message in messages:
            if message.delivery_id is not None and self._held.get(message.delivery_id) is message:
                del self._held[message.delivery_id]
                count += 1
        if self._link is not None and count:
            self._link.settled_by_peer(count)
            self._wire.flush_soon()

    def submit(self, messages: Sequence[ReceivedMessage], state: DeliveryState = ACCEPTED) -> Outcomes:
        """Settle them without waiting; a run of them in order of arrival takes one frame."""
        outcomes = Outcomes(len(messages))
        link, held, start = self._link, self._held, 0
        first = last = -1
        for index, message in enumerate(messages):
            delivery_id = message.delivery_id
            if delivery_id is None or held.get(delivery_id) is not message:
                outcomes.settle(index, self.fault or _NOT_HELD)
                continue
            del held[delivery_id]
            if delivery_id != last + 1 or start + last - first + 1 != index:
                self._settle_run(link, outcomes, start, first, last, state)
                start, first = index, delivery_id
            last = delivery_id
        self._settle_run(link, outcomes, start, first, last, state)
        self._wire.flush_soon()
        return outcomes

    async def settle(self, messages: Sequence[ReceivedMessage], state: DeliveryState) -> list[MessagingError | None]:
        """Settle them all; returns the outcome of each, None if the peer has done it."""
        return await self.submit(messages, state).wait()

    async def complete(self, messages: Sequence[ReceivedMessage]) -> list[MessagingError | None]:
        return await self.settle(messages, ACCEPTED)

    async def abandon(
        self, messages: Sequence[ReceivedMessage], properties: Mapping[str, Value] | None = None
    ) -> list[MessagingError | None]:
        """Give them back, with a higher delivery count, and with `properties` among their application properties."""
        return await self.settle(messages, abandoned(properties))

    async def defer(
        self, messages: Sequence[ReceivedMessage], properties: Mapping[str, Value] | None = None
    ) -> list[MessagingError | None]:
        """Set them aside: from now on they can only be received by their sequence numbers."""
        return await self.settle(messages, deferred(properties))

    async def dead_letter(
        self,
        messages: Sequence[ReceivedMessage],
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> list[MessagingError | None]:
        return await self.settle(messages, dead_lettered(reason, description, properties))

    async def release(self, messages: Sequence[ReceivedMessage]) -> list[MessagingError | None]:
        """Give them back as if they had not been delivered. The peer does not answer this."""
        return await self.settle(messages, RELEASED)

    async def pause(self) -> None:
        """Request no more messages, whatever is settled: those that have arrived can still be received."""
        if self._link is not None and self.fault is None and not self._is_paused:
            self._is_paused = True
            await self._drain(self._link)

    async def close(self) -> None:
        """End the link. Messages in the inbox are given back at once; those that the caller holds keep their locks.

        In receive-and-delete there is nothing to give back: `receive` still returns what is in the inbox.
        """
        link = self._link
        if link is None or self.fault is not None:
            return
        await self.pause()
        if not self._deletes:
            inbox = list(self._inbox)
            self._inbox.clear()
            self.submit(inbox, RELEASED)
        self._fail(ConnectionLost("This receiver was closed. Open another."))
        await self._wire.detach(link, self._gone)

    # What the link says

    def link_event(self, event: Event) -> None:
        if isinstance(event, Deliveries):
            self._arrived(event)
        elif isinstance(event, Dispositions):
            self._settled(event)
        elif isinstance(event, CreditChanged) and event.drain:
            _wake(self._drained)

    def link_lost(self, error: MessagingError) -> None:
        self._gone.set_result(None)
        if self.fault is None:
            self._fail(error)

    def _fail(self, error: MessagingError) -> None:
        self.fault = error
        if not self._deletes:
            # They can no longer be settled, and come again once their locks end.
            self._inbox.clear()
        self._held.clear()
        settling, self._settling = self._settling, {}
        for outcomes, index in settling.values():
            outcomes.settle(index, error)
        _wake(self._arrival)
        _wake(self._drained)

    def _arrived(self, event: Deliveries) -> None:
        if self._deletes:
            self._inbox.extend([ReceivedMessage(payload) for _, _, payload, _, _, _ in event.deliveries])
        else:
            messages = [ReceivedMessage(payload, tag, number) for number, tag, payload, _, _, _ in event.deliveries]
            self._inbox.extend(messages)
            numbers = [delivery.delivery_id for delivery in event.deliveries]
            self._held.update(zip(numbers, messages, strict=True))
            if self._size_max is not None:
                self._fit_credit(event.link, self._size_max)
        _wake(self._arrival)

    def _settled(self, event: Dispositions) -> None:
        outcome = outcome_in(event.state)
        refused = outcome.error if isinstance(outcome, Rejected) else None
        error = error_of(refused) if refused is not None else None
        pop = self._settling.pop
        for delivery_id, _ in event.deliveries:
            found = pop(delivery_id, None)
            if found is not None:
                found[0].settle(found[1], error)

    # How it is done

    async def _wait(self, wait_s: float) -> None:
        """Until something is in the inbox or the time is up. Several callers may wait for the same arrival."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while not self._inbox:
            if self.fault is not None:
                raise self.fault
            left = deadline - loop.time()
            if left <= 0:
                return
            if self._arrival is None or self._arrival.done():
                self._arrival = loop.create_future()
            await asyncio.wait([self._arrival], timeout=left)

    async def _drain(self, link: IncomingLink) -> None:
        """Have the peer use up or return the outstanding credit, so that afterwards no message is on its way."""
        self._drained = asyncio.get_running_loop().create_future()
        link.drain()
        self._wire.flush_soon()
        await asyncio.wait([self._drained], timeout=CLOSE_TIMEOUT_S)
        link.grant(0)

    def _fit_credit(self, link: IncomingLink, size_max: int) -> None:
        """Changed only by half or twice as much, since each change is a flow, and a namespace counts receives by them."""
        size = sum([len(message.payload) for message in self._held.values()])
        fitting = max(1, min(self._credit, size_max * len(self._held) // max(1, size)))
        is_more = fitting >= 2 * self._fitting_credit or self._fitting_credit < fitting == self._credit
        if fitting <= self._fitting_credit // 2 or is_more:
            self._fitting_credit = fitting
            if not self._is_paused and not self._is_resting:
                link.keep_credit(fitting)
                self._wire.flush_soon()

    def _top_up(self) -> None:
        link, room = self._link, self._credit - len(self._inbox)
        if (
            link is not None
            and not self._is_paused
            and self.fault is None
            and room - link.credit >= (self._credit + 1) // 2
        ):
            link.grant(room)
            self._wire.flush_soon()

    def _settle_run(
        self, link: IncomingLink | None, outcomes: Outcomes, start: int, first: int, last: int, state: DeliveryState
    ) -> None:
        """Deliveries `first` to `last`, which have the indexes from `start` on."""
        if link is None or first < 0:
            return
        count = last - first + 1
        if self._waits_for_outcome and not isinstance(state, Released):
            self._settling.update((first + step, (outcomes, start + step)) for step in range(count))
            link.update(first, last, state)
        else:
            link.settle(first, last, state)
            for index in range(start, start + count):
                outcomes.settle(index, None)


_NOT_HELD = NotAllowed(
    "This receiver does not hold the message: it was settled before, deleted when it was received, or came from another receiver."
)


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
