"""The receiving half of the bulk client: messages out in lists, settlements in by ranges, none waited for one by one."""

import asyncio
from collections import deque
from collections.abc import Sequence

from twinbus.amqp.delivery_state import ACCEPTED, DeliveryState, Rejected
from twinbus.amqp.events import CreditChanged, Deliveries, Dispositions, Event, Incoming
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.client.remote_errors import error_of
from twinbus.client.sender import Sending
from twinbus.client.wire import Wire
from twinbus.errors import MessagingError


class Receiver:
    """Made by `Namespace.receiver`. `waits_for_outcome` is the peek-lock of Service Bus: the peer confirms each settlement."""

    def __init__(self, wire: Wire, *, waits_for_outcome: bool) -> None:
        self._wire = wire
        self._waits_for_outcome = waits_for_outcome
        self._link: IncomingLink | None = None
        self._inbox: deque[Incoming] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._settling: dict[int, tuple[Sending, int]] = {}
        self._fault: MessagingError | None = None

    def bind(self, link: IncomingLink, credit: int) -> None:
        self._link = link
        link.keep_credit(credit)
        self._wire.flush_soon()

    async def receive(self, count_max: int, wait_s: float) -> list[Incoming]:
        """Messages that are here, else the first that come; none if none came in time."""
        if not self._inbox:
            if self._fault is not None:
                raise self._fault
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait_for(self._arrival, wait_s)
            except TimeoutError:
                return []
            finally:
                self._arrival = None
        inbox = self._inbox
        return [inbox.popleft() for _ in range(min(count_max, len(inbox)))]

    def submit(self, deliveries: Sequence[Incoming], state: DeliveryState = ACCEPTED) -> Sending:
        """Settle them without waiting; in order of arrival one frame does for a run of them."""
        link = self._link
        assert link is not None
        sending = Sending(len(deliveries))
        if self._fault is not None or not deliveries:
            for index in range(len(deliveries)):
                sending.settled(index, self._fault)
            if not deliveries:
                sending.done.set_result(None)
            return sending
        start = 0
        while start < len(deliveries):
            end = _run_end(deliveries, start)
            first, last = deliveries[start].delivery_id, deliveries[end - 1].delivery_id
            if self._waits_for_outcome:
                for index in range(start, end):
                    self._settling[deliveries[index].delivery_id] = (sending, index)
                link.update(first, last, state)
            else:
                link.settle(first, last, state)
                for index in range(start, end):
                    sending.settled(index, None)
            start = end
        self._wire.flush_soon()
        return sending

    async def settle(
        self, deliveries: Sequence[Incoming], state: DeliveryState = ACCEPTED
    ) -> list[MessagingError | None]:
        """Settle them all; the outcome of each, None where the peer has done it."""
        sending = self.submit(deliveries, state)
        await sending.done
        return sending.outcomes

    def detach(self) -> None:
        if self._link is not None:
            self._link.detach()
            self._wire.flush_soon()

    # What the link says

    def link_event(self, event: Event) -> None:
        if isinstance(event, Deliveries):
            self._inbox.extend(event.deliveries)
            self._announce()
        elif isinstance(event, Dispositions):
            self._settled(event)
        elif isinstance(event, CreditChanged):
            self._announce()

    def link_lost(self, error: MessagingError) -> None:
        self._fault = error
        settling, self._settling = self._settling, {}
        for sending, index in settling.values():
            sending.settled(index, error)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_exception(error)

    def _announce(self) -> None:
        if self._arrival is not None and not self._arrival.done() and self._inbox:
            self._arrival.set_result(None)

    def _settled(self, event: Dispositions) -> None:
        refused = event.state.error if isinstance(event.state, Rejected) else None
        error = error_of(refused) if refused is not None else None
        for delivery_id, _ in event.deliveries:
            found = self._settling.pop(delivery_id, None)
            if found is not None:
                found[0].settled(found[1], error)


def _run_end(deliveries: Sequence[Incoming], start: int) -> int:
    """Where the run of consecutive delivery ids that starts here ends."""
    end = start + 1
    while end < len(deliveries) and deliveries[end].delivery_id == deliveries[end - 1].delivery_id + 1:
        end += 1
    return end
