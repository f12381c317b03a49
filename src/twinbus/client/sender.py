"""The sending half of the bulk client: payloads in, an outcome for each of them out, many under way at once.

Payloads are encoded messages. They go out as fast as the peer gives credit and the socket takes them, without waiting for one
acknowledgement before the next message. `Outcomes` has the outcomes of those handed in together.

    submit -> queue --credit, room in the socket--> under way --the peer's disposition--> outcome
                '------------------ link or connection lost ----------'-----------------> ConnectionLost
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct

from twinbus.amqp.codec.delivery_state import Accepted, DeliveryState, Rejected, TransactionalState
from twinbus.amqp.events import CreditChanged, Dispositions, Event
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.serial_number import MASK
from twinbus.client.batches import BATCH_SIZE_DEFAULT, plan_batches
from twinbus.client.connecting.wire import BURST_SIZE_MAX, Wire
from twinbus.client.outcomes import Outcomes, Settles, SharedOutcome, outcome_in
from twinbus.client.remote_errors import ConnectionLost, error_of
from twinbus.errors import InternalError, MessageTooLarge, MessagingError
from twinbus.model import wire_names
from twinbus.model.message_limits import BATCH_SIZE_MAX

_tag = Struct(">I").pack


@dataclass(slots=True)
class _Run:
    """Payloads handed in together, sent from `start` on. The first of them has index `first` at its owner."""

    payloads: Sequence[bytes]
    owner: Settles
    first: int = 0
    message_format: int = 0
    start: int = 0
    state: TransactionalState | None = None


class Sender:
    """Created by `Namespace.sender`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._link: OutgoingLink | None = None
        self._queue: deque[_Run] = deque()
        self._under_way: dict[int, tuple[Settles, int]] = {}
        self._next_tag = 0
        self._size_max = 0
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.fault: MessagingError | None = None
        """Why nothing more can be sent; None while the sender works."""

    def bind(self, link: OutgoingLink) -> None:
        self._link = link
        self._size_max = link.attach.max_message_size or 0

    @property
    def message_size_max(self) -> int | None:
        """In bytes, as the peer announced it; None if it has no limit."""
        return self._size_max or None

    @property
    def batch_size_max(self) -> int:
        """In bytes: less than for a message if the peer accepts very large messages."""
        announced = None if self._link is None else self._link.properties.get(wire_names.BATCH_SIZE_MAX)
        if isinstance(announced, int) and announced > 0:
            return int(announced)
        return min(self._size_max, BATCH_SIZE_MAX) if self._size_max else BATCH_SIZE_DEFAULT

    def submit(self, payloads: Sequence[bytes], state: TransactionalState | None = None) -> Outcomes:
        """Hand messages in without waiting. The caller limits how many are under way.

        `state` is the transaction that they are sent in.
        """
        outcomes = Outcomes(len(payloads))
        if payloads and self._size_max and max(map(len, payloads)) > self._size_max:
            for index, payload in enumerate(payloads):
                self._enqueue(_Run([payload], outcomes, index, state=state))
        elif payloads:
            self._enqueue(_Run(payloads, outcomes, state=state))
        self._send_queued()
        return outcomes

    async def send(self, payloads: Sequence[bytes]) -> list[MessagingError | None]:
        """Send them all; returns the outcome of each, None if the peer has it."""
        return await self.submit(payloads).wait()

    def submit_batches(
        self, payloads: Sequence[bytes], *, keeps_keys_apart: bool = True, size_max: int | None = None
    ) -> Outcomes:
        """Hand messages in with as few transfers as the peer's limits and `size_max` allow; each batch is accepted or refused
        as a whole.

        Messages with different keys go into different batches, as partitioned entities require. Without that, the order of all of
        them is kept, and an ordinary entity gets larger batches. If a partitioned entity detects duplicates, message ids are keys
        too: use `submit` there.
        """
        outcomes = Outcomes(len(payloads))
        size_max = self.batch_size_max if size_max is None else min(size_max, self.batch_size_max)
        plan = plan_batches(payloads, size_max, keeps_keys_apart=keeps_keys_apart)
        for place, refusal in plan.refused:
            outcomes.settle(place, refusal)
        for batch in plan.batches:
            owner = SharedOutcome(outcomes, batch.places)
            self._enqueue(_Run([batch.payload], owner, message_format=batch.message_format))
        self._send_queued()
        return outcomes

    async def send_batches(
        self, payloads: Sequence[bytes], *, keeps_keys_apart: bool = True
    ) -> list[MessagingError | None]:
        """Send them all, in batches; returns the outcome of each message. See `submit_batches`."""
        return await self.submit_batches(payloads, keeps_keys_apart=keeps_keys_apart).wait()

    async def close(self) -> None:
        """End the link. Messages without an outcome yet get ConnectionLost, so wait for them first."""
        link = self._link
        if link is None or self.fault is not None:
            return
        self._fail(ConnectionLost("This sender was closed. Open another."))
        await self._wire.detach(link, self._gone)

    # What the link says

    def link_event(self, event: Event) -> None:
        if isinstance(event, Dispositions):
            self._settled(event)
        elif isinstance(event, CreditChanged):
            self._send_queued()
            if event.drain and self._link is not None:
                self._link.drained()

    def link_lost(self, error: MessagingError) -> None:
        self._gone.set_result(None)
        if self.fault is None:
            self._fail(error)

    def _fail(self, error: MessagingError) -> None:
        self.fault = error
        under_way, self._under_way = self._under_way, {}
        for owner, index in under_way.values():
            owner.settle(index, error)
        while self._queue:
            _refuse(self._queue.popleft(), error)

    def _enqueue(self, run: _Run) -> None:
        size = len(run.payloads[0])
        if self.fault is not None:
            _refuse(run, self.fault)
        elif self._size_max and size > self._size_max:
            # Refused before it is sent: some peers end the link for it, and with it everything else on the link.
            _refuse(run, MessageTooLarge(f"The message has {size} bytes; the limit is {self._size_max}."))
        else:
            self._queue.append(run)

    def _send_queued(self) -> None:
        link, queue, wire = self._link, self._queue, self._wire
        while queue and link is not None and link.credit > 0:
            if wire.is_congested:
                wire.when_writable(self._send_queued)
                return
            run = queue[0]
            end, size = _burst(run, link.credit)
            self._transmit(link, run, end)
            if end == len(run.payloads):
                queue.popleft()
            else:
                run.start = end
            wire.flush_soon(size)

    def _transmit(self, link: OutgoingLink, run: _Run, end: int) -> None:
        payloads = run.payloads[run.start : end]
        count = len(payloads)
        tags = [_tag(number & MASK) for number in range(self._next_tag, self._next_tag + count)]
        self._next_tag = (self._next_tag + count) & MASK
        if run.state is not None:
            ids = [link.transfer(payload, tag, state=run.state) for tag, payload in zip(tags, payloads, strict=True)]
            first_id = ids[0]
        elif run.message_format:
            first_id = link.transfer(payloads[0], tags[0], message_format=run.message_format)
        else:
            first_id = link.transfers(list(zip(tags, payloads, strict=True)))
        assert first_id is not None, "a link with credit is attached"
        places = range(run.first + run.start, run.first + end)
        numbers: Iterable[int] = range(first_id, first_id + count)
        if first_id + count > MASK:
            numbers = [number & MASK for number in numbers]
        self._under_way.update(zip(numbers, zip(repeat(run.owner), places, strict=False), strict=True))

    def _settled(self, event: Dispositions) -> None:
        error = _error_in(outcome_in(event.state))
        pop = self._under_way.pop
        for delivery_id, _ in event.deliveries:
            found = pop(delivery_id, None)
            if found is not None:
                found[0].settle(found[1], error)
        if self._queue:
            self._send_queued()


def _burst(run: _Run, credit: int) -> tuple[int, int]:
    """Where to stop, and how many bytes that is: as many messages as there is credit for, but not more than should go to the
    socket at once; at least one.
    """
    end = min(run.start + credit, len(run.payloads))
    while (size := sum(map(len, run.payloads[run.start : end]))) > BURST_SIZE_MAX and end - run.start > 1:
        end = run.start + (end - run.start) // 2
    return end, size


def _refuse(run: _Run, error: MessagingError) -> None:
    for index in range(run.first + run.start, run.first + len(run.payloads)):
        run.owner.settle(index, error)


def _error_in(state: DeliveryState | None) -> MessagingError | None:
    if isinstance(state, Accepted):
        return None
    if isinstance(state, Rejected):
        return error_of(state.error) if state.error is not None else InternalError("The peer refused the message.")
    return ConnectionLost("The peer gave the message back. Send it again.")
