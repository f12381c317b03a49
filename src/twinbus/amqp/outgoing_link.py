"""A link on which we send: deliveries in, transfer frames out, within the peer's credit and window."""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar

from twinbus.amqp.codec.delivery_state import DeliveryState
from twinbus.amqp.codec.performatives import SENDER, Attach, Flow
from twinbus.amqp.codec.terminus import Coordinator, Source, Target
from twinbus.amqp.codec.transfer_writer import Payload, TransferWriter
from twinbus.amqp.credit import SenderCredit
from twinbus.amqp.events import CreditChanged
from twinbus.amqp.link import Link, LinkState
from twinbus.amqp.serial_number import MASK

if TYPE_CHECKING:
    from twinbus.amqp.session import Session


class OutgoingLink(Link):
    is_sender: ClassVar[bool] = True

    def __init__(self, session: "Session", handle: int, attach: Attach, state: LinkState) -> None:
        super().__init__(session, handle, attach, state)
        self._credit = SenderCredit()
        self._writer = TransferWriter(session.channel, handle, session.remote_frame_size_max)
        self.unsettled: dict[int, bytes] = {}
        """Deliveries that were sent and that the peer has not settled: delivery-id to delivery-tag, oldest first."""

    @property
    def credit(self) -> int:
        """Messages that may be sent now; 0 while earlier ones wait for the session's window.

        Messages beyond the credit are sent all the same: pre-settled responses must not get lost because two
        of them are made at the same time.
        """
        if self.state is not LinkState.ATTACHED or self.session.is_held_back:
            return 0
        return self._credit.left

    @property
    def unsettled_count(self) -> int:
        return len(self.unsettled)

    @property
    def delivery_count(self) -> int:
        """Rises with each delivery, and by the credit that a drain uses up."""
        return self._credit.delivery_count

    @property
    def is_draining(self) -> bool:
        """The peer waits for `drained`."""
        return self._credit.is_draining

    def accept(
        self,
        *,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        properties: dict[Any, Any] | None = None,
    ) -> None:
        """Accept the link that the peer attached; the peer's source and target are echoed unless others are given.

        The peer may have granted credit already: see `credit`.
        """
        if self.state is LinkState.OFFERED:
            self._answer(
                source=source or self.source or Source(),
                target=target or self.target or Target(),
                properties=properties,
                max_message_size=None,
            )
            self.state = LinkState.ATTACHED

    def transfer(
        self,
        payload: bytes,
        delivery_tag: bytes,
        settled: bool = False,
        message_format: int = 0,
        state: DeliveryState | None = None,
    ) -> int | None:
        """Send one message. Returns its delivery-id, or None if the link is gone and nothing was sent."""
        if self.state is not LinkState.ATTACHED:
            return None
        delivery_id = self.session.take_delivery_ids(1)
        if not settled:
            self.session.dispositions.outgoing[delivery_id] = self
            self.unsettled[delivery_id] = delivery_tag
        self._credit.sent(1)
        if message_format == 0 and state is None:
            parts = self._writer.write_all(delivery_id, [(delivery_tag, payload)], settled)
        else:
            parts = self._writer.write(delivery_id, delivery_tag, payload, message_format, settled, state)
        self.session.transmit(self, parts)
        return delivery_id

    def transfers(self, deliveries: Sequence[tuple[bytes, Payload]], settled: bool = False) -> int | None:
        """Send (delivery-tag, payload) pairs. Returns the first delivery-id (the others follow it), or None if the link is gone."""
        if self.state is not LinkState.ATTACHED or not deliveries:
            return None
        count = len(deliveries)
        first = self.session.take_delivery_ids(count)
        parts = self._writer.write_all(first, deliveries, settled)
        if not settled:
            numbers: Iterable[int] = range(first, first + count)
            if first + count > MASK:
                numbers = [number & MASK for number in numbers]
            self.session.dispositions.outgoing.update(zip(numbers, repeat(self), strict=False))
            self.unsettled.update(zip(numbers, [tag for tag, _ in deliveries], strict=True))
        self._credit.sent(count)
        self.session.transmit(self, parts)
        return first

    def confirm(self, first_id: int, last_id: int, state: DeliveryState | None) -> None:
        """Settle deliveries that the peer gave a state to and left unsettled, with the resulting outcome."""
        if self.state in (LinkState.ATTACHED, LinkState.ENDING):
            self.session.dispositions.settle_outgoing(first_id, last_id)
            self.session.dispositions.send(SENDER, first_id, last_id, True, state)

    def drained(self) -> None:
        """There is nothing more to send for the granted credit: use it up, and tell the peer."""
        if self.state is LinkState.ATTACHED:
            self._credit.drained()
            self.session.transmit_drained(self)

    def send_flow(self, drain: bool = False) -> None:
        self.session.send_flow(self.handle, self._credit.delivery_count, self._credit.left, drain)

    def flow_received(self, flow: Flow) -> None:
        if self.state in (LinkState.DETACHING, LinkState.ENDING):
            return
        if flow.link_credit is not None:
            self._credit.flow_received(flow.delivery_count, flow.link_credit, flow.drain)
            self.session.report(CreditChanged(self, self._credit.left, flow.drain))
        if flow.echo and self.state is LinkState.ATTACHED and not flow.drain:
            self.send_flow()

    def report_credit(self) -> None:
        """The session's window opened: what could not be sent before may be sent now."""
        if self.credit or self._credit.is_draining:
            self.session.report(CreditChanged(self, self.credit, self._credit.is_draining, is_news=False))

    def _forget(self) -> None:
        self.session.forget_outgoing(self)
