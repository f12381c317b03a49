"""A receiver link whose attach is held back until a message session is free."""

from twinbus.broker.replies import Waiter
from twinbus.clock import Millis
from twinbus.gateway.addresses import Node
from twinbus.gateway.links.link_meter import LinkMeter
from twinbus.meter.operation import Cause


class PendingSession:
    __slots__ = ("meter", "node", "path", "waiter")

    def __init__(self, node: Node, path: str, meter: LinkMeter) -> None:
        self.node = node
        self.path = path
        self.meter = meter
        self.waiter: Waiter | None = None

    def unbind(self, now: Millis) -> None:
        """The client gave up."""
        self.meter.counted(Cause.EMPTY_RECEIVE)
        if self.waiter is not None:
            self.waiter.cancel()
