"""A hold on a message session, wherever its fragment is: what gateways have in place of the lock itself."""

from twinbus.broker.consumer import SessionLock
from twinbus.clock import Millis


class Hold(SessionLock):
    """A hold on a message session, as fronts give it to gateways: the same wherever its store moves to.

    `own`: the lock itself, if its fragment is at this node. Otherwise this is a copy, which follows what the other node says.
    """

    __slots__ = ("__weakref__", "_is_held", "_locked_until", "node", "number", "own")

    def __init__(
        self,
        node: int,
        number: int,
        session_id: str,
        fragment_index: int,
        locked_at: Millis,
        locked_until: Millis,
        token: bytes | None,
        own: SessionLock | None = None,
    ) -> None:
        self.own = own
        self.node = node
        self.number = number
        super().__init__(session_id, fragment_index, locked_at, locked_until, token)

    @property
    def is_held(self) -> bool:
        return self._is_held and (self.own is None or self.own.is_held)

    @is_held.setter
    def is_held(self, is_held: bool) -> None:
        self._is_held = is_held

    @property
    def locked_until(self) -> Millis:
        return self._locked_until if self.own is None else self.own.locked_until

    @locked_until.setter
    def locked_until(self, until: Millis) -> None:
        self._locked_until = until

    def travel(self) -> None:
        """Its store leaves this node; where it is served next is not known yet."""
        self._locked_until, self.own = self.locked_until, None

    def move(self, node: int, number: int, own: SessionLock | None) -> None:
        self.node, self.number, self.own = node, number, own
