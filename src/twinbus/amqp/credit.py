"""Link credit: flows and deliveries in, how many messages may be sent out (AMQP 1.0 part 2, section 2.6.7).

A receiver says "my count is c, send n more"; both count deliveries, so what is left at the sender is c + n less the
sender's own count. Credit is respected when we send and never enforced when we receive: the Python SDK starts with
a credit that nobody granted.
"""

from dataclasses import dataclass

from twinbus.amqp.serial_number import add, distance


@dataclass(slots=True)
class SenderCredit:
    """What the peer allows us to send on one link."""

    left: int = 0
    delivery_count: int = 0
    is_draining: bool = False

    def flow_received(self, delivery_count: int | None, link_credit: int, drain: bool) -> None:
        # A receiver that has not seen our attach yet does not know our count, which starts at 0.
        unseen = distance(0 if delivery_count is None else delivery_count, self.delivery_count)
        # Not the distance to their sum: some clients mean "no limit" by the highest credit, more than half of the circle.
        self.left = max(0, link_credit - unseen)
        self.is_draining = drain

    def sent(self, count: int) -> None:
        self.delivery_count = (self.delivery_count + count) & 0xFFFFFFFF
        self.left -= count
        if self.left < 0:
            self.left = 0

    def drained(self) -> None:
        """Nothing more to send: the rest of the credit is used up unsent."""
        self.delivery_count = add(self.delivery_count, self.left)
        self.left = 0
        self.is_draining = False


@dataclass(slots=True)
class ReceiverCredit:
    """What we allow the peer to send on one link.

    `target` covers deliveries that are on their way and those that the application has not settled: credit is
    renewed as the application settles, not as messages arrive, so a slow application slows its senders down.
    It is topped up once half of it is used, so that one flow serves many messages.
    """

    target: int = 0
    left: int = 0
    delivery_count: int = 0
    unsettled_count: int = 0

    def received(self, count: int, unsettled_count: int) -> None:
        self.delivery_count = (self.delivery_count + count) & 0xFFFFFFFF
        self.left = max(0, self.left - count)
        self.unsettled_count += unsettled_count

    def settled(self, count: int) -> None:
        self.unsettled_count = max(0, self.unsettled_count - count)

    @property
    def is_refill_due(self) -> bool:
        target = self.target
        return target > 0 and target - self.unsettled_count - self.left >= (target + 1) // 2

    def refill(self) -> None:
        self.left = max(self.left, self.target - self.unsettled_count)

    def flow_received(self, delivery_count: int | None, uncounted: int = 0) -> None:
        """The sender's count; it is ahead of ours if the sender used credit up by draining. `uncounted`: deliveries that came before
        and are counted later."""
        if delivery_count is None:
            return
        skipped = max(0, distance(add(self.delivery_count, uncounted), delivery_count))
        self.delivery_count = add(self.delivery_count, skipped)
        self.left = max(0, self.left - skipped)
