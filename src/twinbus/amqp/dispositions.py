"""The settlement of one session's deliveries: dispositions in and out (AMQP 1.0 part 2, section 2.6.12).

A receiver in settle mode `first` settles at once. One in settle mode `second` states an outcome, leaves the delivery
unsettled, and waits for the sender to settle it. Unsettled deliveries are kept here by their delivery-id until they are
settled, or their link is gone. Ids are serial numbers; ranges may be far wider than what is known here, and may wrap.

A range of very many is taken in parts, as large as the share of each call of the connection; what the peer sent behind it waits.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from twinbus.amqp.codec.delivery_state import DeliveryState, TransactionalState
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

TOGETHER_IN_TRANSACTION = 1_000
"""Deliveries of one disposition in a transaction that are reported together: they are settled all or none. Many times as many as a
transaction may have, so whoever names more is refused each part."""

SPARSE_BYTES = 1_024
"""Of a dictionary for each entry: several times what it needs."""

_MARK = DISPOSITION_MARK.to_bytes(4, "big")

L = TypeVar("L")


class Unsettled(dict[int, L], Generic[L]):
    """Deliveries whose settlement is awaited: delivery-id to link, oldest first. Each link has its own, with their delivery-tags."""

    def known(self, first: int, last: int) -> list[int]:
        """The ids of first..last that are here, in order."""
        return self.known_of(self.candidates(first, last), first, last)

    def candidates(self, first: int, last: int) -> Sequence[int]:
        """Those of first..last that are here are among these, in order; no more than there are here."""
        count = span(first, last)
        if count <= len(self):
            return range(first, first + count)
        if self.__sizeof__() > SPARSE_BYTES * (len(self) + 1):
            self._compact()
        return list(self)

    def known_of(self, candidates: Sequence[int], first: int, last: int) -> list[int]:
        """Those of first..last that are here, of some of its candidates."""
        if not isinstance(candidates, range):
            inside = [each for each in candidates if distance(first, each) >= 0 and distance(each, last) >= 0]
            return [number for number in inside if number in self]
        if candidates.stop > MASK:
            return [number for each in candidates if (number := each & MASK) in self]
        return [number for number in candidates if number in self]

    def _compact(self) -> None:
        """A dictionary keeps the places of what was removed, and to go through it takes as long as if all were still there."""
        entries = list(self.items())
        self.clear()
        self.update(entries)

    def forget(self, link: L, unsettled: dict[int, bytes]) -> None:
        """Those of a link, which are forgotten there too: thousands of links may end together."""
        for number in unsettled:
            if self.get(number) is link:
                del self[number]
        unsettled.clear()


class _Range(NamedTuple):
    """Of a disposition."""

    role: bool
    first: int
    last: int
    settled: bool
    state: DeliveryState | None
    candidates: Sequence[int]  # as they were when it came; some may be gone since


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
        link = self.outgoing.get(delivery_id)
        # An unknown delivery was settled before, or belonged to a link that is gone.
        if link is not None:
            if settled:
                del self.outgoing[delivery_id]
            tag = link.unsettled.pop(delivery_id) if settled else link.unsettled[delivery_id]
            self._reports.add_disposition(link, (delivery_id, tag), state, settled)
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
            found = outgoing.pop(delivery_id, None) if settled else outgoing.get(delivery_id)
            if found is None:
                continue  # it was settled before, or belonged to a link that is gone
            if found is not link:
                link = found
                tag_of = link.unsettled.pop if settled else link.unsettled.__getitem__
                deliveries = reports.dispositions_of(link, state, settled)
            deliveries.append((delivery_id, tag_of(delivery_id)))
        return pos

    def received(self, disposition: Disposition) -> None:
        last = disposition.first if disposition.last is None else disposition.last
        self._apply(disposition.role, disposition.first, last, disposition.settled, disposition.state)

    def _apply(self, role: bool, first: int, last: int, settled: bool, state: DeliveryState | None) -> None:
        table: Unsettled[Any] = self.outgoing if role is RECEIVER else self._updated
        is_in_transaction = isinstance(state, TransactionalState)
        candidates = table.known(first, last) if is_in_transaction else table.candidates(first, last)
        self._apply_some(_Range(role, first, last, settled, state, candidates), 0)

    def _apply_some(self, named: "_Range", start: int) -> None:
        """As many deliveries as this call has room for, and at least one; the rest is left to a later one (`Reports.rest`)."""
        role, first, last, settled, state, candidates = named
        reports, end = self._reports, len(candidates)
        stop = start + max(1, reports.ranged_count_max - reports.ranged_count)
        if isinstance(state, TransactionalState):
            stop = max(stop, start + TOGETHER_IN_TRANSACTION)
            end -= TOGETHER_IN_TRANSACTION  # so the last part has as many
        if stop >= end:
            stop = len(candidates)
        reports.ranged_count += stop - start
        if reports.ranged_count > RANGES_FACTOR * self._unsettled_count_max:
            raise ConnectionFault(
                f"Dispositions name {reports.ranged_count} deliveries at once. Settle each delivery once.",
                RESOURCE_LIMIT_EXCEEDED,
            )
        if stop < len(candidates):
            reports.rest = partial(self._apply_some, named, stop)
        if role is RECEIVER:
            known = self.outgoing.known_of(candidates[start:stop], first, last)
            self._apply_to_outgoing(known, settled, state)
            return
        for number in self._updated.known_of(candidates[start:stop], first, last):
            receiver = self._updated[number]
            tag = receiver.updated[number]
            if settled:
                del self._updated[number], receiver.updated[number]
                receiver.settled_by_peer(1)
            self._reports.add_disposition(receiver, (number, tag), state, settled)

    def _apply_to_outgoing(self, numbers: Iterable[int], settled: bool, state: DeliveryState | None) -> None:
        take = self.outgoing.pop if settled else self.outgoing.__getitem__
        link: OutgoingLink | None = None
        deliveries: list[tuple[int, bytes]] = []
        for number in numbers:
            owner = take(number)
            if owner is not link:
                link, deliveries = owner, self._reports.dispositions_of(owner, state, settled)
                tag_of = owner.unsettled.pop if settled else owner.unsettled.__getitem__
            deliveries.append((number, tag_of(number)))

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
            del self.outgoing.pop(number).unsettled[number]

    def await_peer(self, link: IncomingLink, first: int, last: int, tags: tuple[bytes, ...]) -> None:
        for step in range(span(first, last)):
            number = add(first, step)
            self._updated[number] = link
            link.updated[number] = tags[step] if step < len(tags) else b""

    def bound(self) -> None:
        """Forget the oldest: a client that never settles must not use more and more memory. It can still settle by lock token."""
        excess = len(self.outgoing) - self._unsettled_count_max
        if excess > 0:
            # All at once: the first one is behind the places of all that were removed before.
            for number in list(islice(self.outgoing, excess)):
                del self.outgoing.pop(number).unsettled[number]

    def forget_outgoing(self, link: OutgoingLink) -> None:
        self.outgoing.forget(link, link.unsettled)

    def forget_incoming(self, link: IncomingLink) -> None:
        self._updated.forget(link, link.updated)

    def clear(self) -> None:
        self.outgoing.clear()
        self._updated.clear()
