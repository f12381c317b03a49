"""A link on which we receive: transfer frames in, whole deliveries out, credit granted as they are settled."""

from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from twinbus.amqp.codec.delivery_state import DeliveryState
from twinbus.amqp.codec.performatives import RECEIVER, Attach, Flow, Transfer
from twinbus.amqp.codec.terminus import Coordinator, Source, Target
from twinbus.amqp.codec.transfer_reader import NO_ID
from twinbus.amqp.credit import ReceiverCredit
from twinbus.amqp.errors import INVALID_FIELD, RESOURCE_LIMIT_EXCEEDED, LinkFault
from twinbus.amqp.events import CreditChanged, Incoming, OversizeDelivery
from twinbus.amqp.link import Link, LinkState
from twinbus.amqp.reassembly import PartialDelivery
from twinbus.amqp.serial_number import span

if TYPE_CHECKING:
    from twinbus.amqp.session import Session

_IS_SETTLED = itemgetter(Incoming._fields.index("settled"))


class IncomingLink(Link):
    is_sender: ClassVar[bool] = False

    def __init__(self, session: "Session", handle: int, attach: Attach, state: LinkState) -> None:
        super().__init__(session, handle, attach, state)
        self._credit = ReceiverCredit(delivery_count=attach.initial_delivery_count or 0)
        self.message_size_max = self.announced_size_max = session.settings.message_size_max
        self.partial: PartialDelivery | None = None
        self.updated: dict[int, bytes] = {}
        """Deliveries that were given a state and that the peer has to settle: delivery-id to delivery-tag."""

    @property
    def credit(self) -> int:
        """Messages that the peer may still send."""
        return self._credit.left

    @property
    def unsettled_count(self) -> int:
        """Deliveries that were reported and are not settled yet."""
        return self._credit.unsettled_count

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        properties: dict[Any, Any] | None = None,
        max_message_size: int | None = None,
        size_allowance: int = 0,
        credit: int = 0,
        is_for_requests: bool = False,
    ) -> None:
        """Accept the link that the peer attached; the peer's source and target are echoed unless others are given.

        `credit` is granted at once, because one SDK waits for it for a second only, and renewed as deliveries
        are settled. `size_allowance`: bytes beyond the announced size that are accepted.
        `is_for_requests`: a delivery is a request, which costs more work than a message; each counts as a frame of its own.
        """
        if self.state is not LinkState.OFFERED:
            return
        self.announced_size_max = max_message_size or self.announced_size_max
        self.message_size_max = self.announced_size_max + size_allowance
        if max_message_size is not None:
            self.session.reassembly.admit(self.message_size_max)
        self._answer(
            source=source or self.source or Source(),
            target=target or self.target or Target(),
            properties=properties,
            max_message_size=self.announced_size_max,
        )
        self.state = LinkState.ATTACHED
        if is_for_requests:
            self.session.take_singly(self)
        self.keep_credit(credit)

    def attach_answered(self) -> None:
        """The peer accepted the link that we attached, and says where its count starts."""
        self._credit.delivery_count = self.attach.initial_delivery_count or 0

    def keep_credit(self, target: int) -> None:
        """Let at most `target` deliveries be on their way or unsettled, and top up when half of them are done."""
        self._credit.target = target
        self._credit.left = max(0, target - self._credit.unsettled_count)
        self.send_flow()

    def grant(self, credit: int) -> None:
        """Let the peer send `credit` more messages, once: this ends what `keep_credit` started."""
        self._credit.target = 0
        self._credit.left = credit
        self.send_flow()

    def drain(self) -> None:
        """Ask the sender to use the credit up now; `CreditChanged` with `drain` reports that it has."""
        self.send_flow(drain=True)

    def settle(self, first_id: int, last_id: int, state: DeliveryState | None) -> None:
        """Settle a range of this link's deliveries with one outcome. Adjacent ranges are sent as one."""
        if self.state is not LinkState.ATTACHED:
            return
        self.session.dispositions.send(RECEIVER, first_id, last_id, True, state)
        self._count_settled(1 if first_id == last_id else span(first_id, last_id))

    def update(self, first_id: int, last_id: int, state: DeliveryState | None, tags: tuple[bytes, ...] = ()) -> None:
        """Send an outcome and wait for the sender to settle: `Dispositions` reports its answer."""
        if self.state is LinkState.ATTACHED:
            self.session.dispositions.await_peer(self, first_id, last_id, tags)
            self.session.dispositions.send(RECEIVER, first_id, last_id, False, state)

    def hold(self, size: int) -> None:
        """A delivery of this size that came settled waits for the application, and counts as any other until `let_go`."""
        self.session.inflow.received(1, size)

    def let_go(self, count: int) -> None:
        self.session.inflow.settled(count)

    def settled_by_peer(self, count: int) -> None:
        self._count_settled(count)

    def send_flow(self, drain: bool = False) -> None:
        if self.state is LinkState.ATTACHED:
            self.session.send_flow(self.handle, self._credit.delivery_count, self._credit.left, drain)

    def received(self, deliveries: list[Incoming]) -> int:
        """Count deliveries that were reported; return how many of them the application has to settle."""
        if self.state in (LinkState.DETACHING, LinkState.GONE):
            return 0
        count = len(deliveries)
        unsettled_count: int = count - sum(map(_IS_SETTLED, deliveries))
        self._count_received(count, unsettled_count)
        return unsettled_count

    def transfer_received(self, transfer: Transfer, payload: bytes) -> None:
        """Any transfer frame that the session has not handled itself, as it does with common ones."""
        if self.state is LinkState.DETACHING:
            return
        partial = self.partial
        if partial is None:
            if transfer.delivery_id is None:
                self.fail(LinkFault("The first transfer of a delivery needs a delivery-id.", INVALID_FIELD))
                return
            partial = PartialDelivery(
                transfer.delivery_id,
                transfer.delivery_tag or b"",
                transfer.message_format or 0,
                settled=False,
                state=None,
                size_max=self.message_size_max,
            )
            if transfer.resume:
                # No link here has state to resume, so this delivery is none that we know (section 2.7.5).
                partial.ignore()
        elif transfer.delivery_id not in (None, partial.delivery_id):
            self.fail(LinkFault("A delivery starts before the previous one is complete.", INVALID_FIELD))
            return
        if transfer.aborted:
            self._release(partial)
            self._count_received(1, 0)
            return
        self._add(partial, payload, transfer.state, settled=bool(transfer.settled), more=transfer.more)

    def takes_part(self, delivery_id: int) -> bool:
        """Whether `part_received` is for this transfer frame; if not, `transfer_received` is."""
        if self.partial is None:
            return delivery_id != NO_ID
        return delivery_id in (NO_ID, self.partial.delivery_id)

    def part_received(
        self,
        delivery_id: int,
        delivery_tag: bytes,
        message_format: int,
        payload: bytes | memoryview,
        *,
        settled: bool,
        more: bool,
    ) -> None:
        """A transfer frame in its common form that begins or continues a delivery."""
        partial = self.partial
        if partial is None:
            partial = PartialDelivery(
                delivery_id, delivery_tag, message_format, settled=False, state=None, size_max=self.message_size_max
            )
        self._add(partial, payload, None, settled=settled, more=more)

    def flow_received(self, flow: Flow) -> None:
        uncounted = self.session.uncounted(self)
        self._credit.flow_received(flow.delivery_count, uncounted)
        if flow.drain:
            self.session.report(CreditChanged(self, max(0, self._credit.left - uncounted), True))
        if flow.echo:
            self.send_flow()

    def _release(self, partial: PartialDelivery) -> None:
        self.session.reassembly.release(partial)
        self.partial = None

    def _add(
        self,
        partial: PartialDelivery,
        payload: bytes | memoryview,
        state: DeliveryState | None,
        *,
        settled: bool,
        more: bool,
    ) -> None:
        self._release(partial)
        partial.add(payload, state, settled=settled)
        if not more:
            self._complete(partial)
            return
        budget = self.session.reassembly
        self.partial = partial
        budget.hold(partial)
        if budget.is_exceeded:
            self.fail(
                LinkFault("The incomplete messages of this connection exceed its buffer.", RESOURCE_LIMIT_EXCEEDED)
            )

    def _complete(self, partial: PartialDelivery) -> None:
        if partial.is_ignored:
            self._count_received(1, 0)
            return
        if partial.is_oversize or partial.is_dropped:
            self._count_received(1, 0 if partial.settled else 1)
            self.session.inflow.received(0 if partial.settled else 1, 0)
            self.session.report(
                OversizeDelivery(
                    self,
                    partial.delivery_id,
                    partial.delivery_tag,
                    partial.size,
                    partial.settled,
                    is_over_limit=partial.is_oversize,
                )
            )
            return
        payload = b"".join(partial.parts)
        self.session.report_delivery(
            self,
            Incoming(
                partial.delivery_id,
                partial.delivery_tag,
                payload,
                partial.message_format,
                partial.settled,
                partial.state,
            ),
        )

    def _count_received(self, count: int, unsettled_count: int) -> None:
        self._credit.received(count, unsettled_count)
        self._refill()

    def _count_settled(self, count: int) -> None:
        self.session.inflow.settled(count)
        self._credit.settled(count)
        self._refill()

    def _refill(self) -> None:
        if self._credit.is_refill_due and self.state is LinkState.ATTACHED:
            self._credit.refill()
            self.send_flow()

    def _forget(self) -> None:
        self.session.inflow.settled(self._credit.unsettled_count)
        self._credit.settled(self._credit.unsettled_count)
        if self.partial is not None:
            self.session.reassembly.release(self.partial)
            self.partial = None
        self.session.forget_incoming(self)
