"""One message that comes in several transfer frames: frames in, a whole payload or its size out.

A message over its limit is read to its end and its bytes are dropped: the peer can then be told
that this one message is too large, and the link with all that follows on it lives on.
"""

from dataclasses import dataclass, field

from twinbus.amqp.codec.delivery_state import DeliveryState
from twinbus.amqp.codec.performatives import Transfer


@dataclass(slots=True)
class PartialDelivery:
    delivery_id: int
    delivery_tag: bytes
    message_format: int
    settled: bool
    state: DeliveryState | None
    size_max: int
    size: int = 0
    parts: list[bytes] = field(default_factory=list)

    @property
    def is_oversize(self) -> bool:
        return self.size > self.size_max

    @property
    def held_size(self) -> int:
        return 0 if self.is_oversize else self.size

    def belongs_to(self, transfer: Transfer) -> bool:
        return transfer.delivery_id is None or transfer.delivery_id == self.delivery_id

    def add(self, transfer: Transfer, payload: bytes) -> None:
        self.size += len(payload)
        # Any frame may say that the delivery is settled, and none can take it back (section 2.7.5).
        self.settled = self.settled or bool(transfer.settled)
        self.state = transfer.state or self.state
        if self.is_oversize:
            self.parts.clear()
        elif payload:
            self.parts.append(payload)


@dataclass(slots=True)
class ReassemblyBudget:
    """Bytes of incomplete messages over all links of a connection."""

    size_max: int
    size: int = 0

    @property
    def is_exceeded(self) -> bool:
        return self.size > self.size_max
