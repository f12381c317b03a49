"""A receiver link whose attach is held back until a message session is free."""

from twinbus.broker.replies import Waiter
from twinbus.clock import Millis
from twinbus.gateway.addresses import Node


class PendingSession:
    __slots__ = ("node", "path", "waiter")

    def __init__(self, node: Node, path: str) -> None:
        self.node = node
        self.path = path
        self.waiter: Waiter | None = None

    def unbind(self, now: Millis) -> None:
        """The client gave up."""
        if self.waiter is not None:
            self.waiter.cancel()
