"""The settlement of one session's deliveries: dispositions in and out (AMQP 1.0 part 2, section 2.6.12).

A receiver in settle mode `first` settles at once. One in settle mode `second` states an outcome, leaves the delivery
unsettled, and waits for the sender to settle it. Unsettled deliveries are kept here by their delivery-id until they are
settled, or their link is gone. Ids are serial numbers; ranges may be far wider than what is known here, and may wrap.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Generic, TypeVar

from twinbus.amqp.codec.delivery_state import DeliveryState
from twinbus.amqp.codec.frame_runs import UINT_CODE, DispositionShape, disposition_shape
from twinbus.amqp.codec.performatives import RECEIVER, Disposition
from twinbus.amqp.codec.transfer_reader import DISPOSITION_MARK, read_disposition
from twinbus.amqp.codec.transfer_writer import encode_disposition
from twinbus.amqp.connection_context import ConnectionContext
from twinbus.amqp.errors import RESOURCE_LIMIT_EXCEEDED, ConnectionFault
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.serial_number import MASK, add, distance, span

RANGES_FACTOR = 10
"""How often the dispositions of one read may name all deliveries that can be unsettled. A frame is small and its range is
not: without a limit, a few thousand frames could use up all memory."""

SPARSE_BYTES = 1_024
"""Of a dictionary for each entry: several times what it needs."""

_MARK = DISPOSITION_MARK.to_bytes(4, "big")

L = TypeVar("L")


class Unsettled(dict[int, tuple[L, bytes]], Generic[L]):
    """Deliveries whose settlement is awaited: delivery-id to (link, delivery-tag), oldest first."""

    def known(self, first: int, last: int) -> list[int]:
        """The ids of first..last that are here, in order."""
        count = span(first, last)
        if count <= len(self):
            numbers = range(first, first + count)
            if numbers.stop > MASK:
                return [number for each in numbers if (number := each & MASK) in self]
            return [number for number in numbers if number in self]
        found = [number for number in self if distance(first, number) >= 0 and distance(number, last) >= 0]
        if self.__sizeof__() > SPARSE_BYTES * (len(self) + 1):
            self._compact()
        return found

    def _compact(self) -> None:
        """A dictionary keeps the places of what was removed, and to go through it takes as long as if all were still there."""
        entries = list(self.items())
        self.clear()
        self.update(entries)

    def forget(self, link: L) -> None:
        for number in [number for number, entry in self.items() if entry[0] is link]:
            del self[number]


class SessionDispositions:
    def __init__(self, context: ConnectionContext, channel: int) -> None:
        self._channel = channel
        self._outbox = context.outbox
        self._reports = context.reports
        self._unsettled_count_max = context.settings.unsettled_count_max
        self.outgoing: Unsettled[OutgoingLink] = Unsettled()
        """Deliveries that we sent and the peer has not settled."""
        self._updated: Unsettled[IncomingLink] = Unsettled()
        """Deliveries that we gave a state to and the peer has to settle."""
        self._run: tuple[DispositionShape, bool, DeliveryState | None] | None = None
        self._unsent: tuple[bool, int, int, bool, DeliveryState | None] | None = None

    def frame(self, data: bytes, start: int, end: int) -> bool:
        """Take a disposition in its common form. False if it has any other form."""
        fields = read_disposition(data, start, end)
        if fields is None:
            return False
        role, delivery_id, last, settled, state = fields
        if role is not RECEIVER or delivery_id != last:
            self._apply(role, delivery_id, last, settled, state)
            return True
        entry = self.outgoing.get(delivery_id)
        # An unknown delivery was settled before, or belonged to a link that is gone.
        if entry is not None:
            if settled:
                del self.outgoing[delivery_id]
                entry[0].unsettled_count -= 1
            self._reports.add_disposition(entry[0], (delivery_id, entry[1]), state, settled)
        return True

    def run(self, data: bytes, start: int, pos: int, last_start: int) -> int:
        """Take the dispositions from `pos` on that are like the one whose body starts at `start`, which has just been taken, as
        far as they start at `last_start` or before. Returns where the first other frame starts."""
        if data[pos + 8 : pos + 12] != _MARK:
            return pos
        remembered = self._run
        if remembered is not None:
            end = self._take_run(remembered, data, pos, last_start)
            if end > pos:
                return end
        fields = read_disposition(data, start, pos)
        shape = disposition_shape(data, start, pos)
        if fields is None or shape is None or fields[0] is not RECEIVER:
            return pos
        self._run = remembered = (shape, fields[3], fields[4])
        return self._take_run(remembered, data, pos, last_start)

    def _take_run(
        self, run: tuple[DispositionShape, bool, DeliveryState | None], data: bytes, pos: int, last_start: int
    ) -> int:
        (unpack, size, front, back), settled, state = run
        outgoing, reports = self.outgoing, self._reports
        link: OutgoingLink | None = None
        deliveries: list[tuple[int, bytes]] = []
        last_start = min(last_start, len(data) - size)
        while pos <= last_start:
            found_front, delivery_id, code, last, found_back = unpack(data, pos)
            if found_front != front or found_back != back or last != delivery_id or code != UINT_CODE:
                break
            pos += size
            entry = outgoing.pop(delivery_id, None) if settled else outgoing.get(delivery_id)
            if entry is None:
                continue  # it was settled before, or belonged to a link that is gone
            if entry[0] is not link:
                link = entry[0]
                deliveries = reports.dispositions_of(link, state, settled)
            deliveries.append((delivery_id, entry[1]))
            if settled:
                link.unsettled_count -= 1
        return pos

    def received(self, disposition: Disposition) -> None:
        last = disposition.first if disposition.last is None else disposition.last
        self._apply(disposition.role, disposition.first, last, disposition.settled, disposition.state)

    def _apply(self, role: bool, first: int, last: int, settled: bool, state: DeliveryState | None) -> None:
        self._reports.ranged_count += min(span(first, last), len(self.outgoing if role is RECEIVER else self._updated))
        if self._reports.ranged_count > RANGES_FACTOR * self._unsettled_count_max:
            raise ConnectionFault(
                f"Dispositions name {self._reports.ranged_count} deliveries at once. Settle each delivery once.",
                RESOURCE_LIMIT_EXCEEDED,
            )
        if role is RECEIVER:
            self._apply_to_outgoing(self.outgoing.known(first, last), settled, state)
            return
        for number in self._updated.known(first, last):
            receiver, tag = self._updated[number]
            if settled:
                del self._updated[number]
                receiver.settled_by_peer(1)
            self._reports.add_disposition(receiver, (number, tag), state, settled)

    def _apply_to_outgoing(self, numbers: Iterable[int], settled: bool, state: DeliveryState | None) -> None:
        take = self.outgoing.pop if settled else self.outgoing.__getitem__
        link: OutgoingLink | None = None
        deliveries: list[tuple[int, bytes]] = []
        for number in numbers:
            owner, tag = take(number)
            if owner is not link:
                link, deliveries = owner, self._reports.dispositions_of(owner, state, settled)
            deliveries.append((number, tag))
            if settled:
                link.unsettled_count -= 1

    def send(self, role: bool, first: int, last: int, settled: bool, state: DeliveryState | None) -> None:
        """Send a disposition, joined with the one before it if the ranges are adjacent."""
        before = self._unsent
        if before is not None:
            if (before[0], before[3]) == (role, settled) and first == add(before[2], 1) and before[4] == state:
                self._unsent = (role, before[1], last, settled, state)
                return
            self.flush()
        self._outbox.flush_later(self)
        self._unsent = (role, first, last, settled, state)

    def flush(self) -> None:
        if self._unsent is not None:
            unsent, self._unsent = self._unsent, None
            self._outbox.parts.append(encode_disposition(self._channel, *unsent))

    def settle_outgoing(self, first: int, last: int) -> None:
        for number in self.outgoing.known(first, last):
            self.outgoing.pop(number)[0].unsettled_count -= 1

    def await_peer(self, link: IncomingLink, first: int, last: int, tags: tuple[bytes, ...]) -> None:
        for step in range(span(first, last)):
            self._updated[add(first, step)] = (link, tags[step] if step < len(tags) else b"")

    def bound(self) -> None:
        """Forget the oldest: a client that never settles must not use more and more memory. It can still settle by lock token."""
        excess = len(self.outgoing) - self._unsettled_count_max
        if excess > 0:
            # All at once: the first one is behind the places of all that were removed before.
            for number in list(islice(self.outgoing, excess)):
                self.outgoing.pop(number)[0].unsettled_count -= 1

    def forget_outgoing(self, link: OutgoingLink) -> None:
        if link.unsettled_count:
            self.outgoing.forget(link)
            link.unsettled_count = 0

    def forget_incoming(self, link: IncomingLink) -> None:
        if self._updated:
            self._updated.forget(link)

    def clear(self) -> None:
        self.outgoing.clear()
        self._updated.clear()
