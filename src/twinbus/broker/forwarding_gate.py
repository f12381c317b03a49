"""Whether messages may begin their way from one entity to another; shared by all message brokers of a process.

It is closed while a backup copies one store after the other: a message that moves from one that is still to be copied to one
that was copied already would be in neither copy. What wants to begin meanwhile begins when the gate opens.
"""

from collections.abc import Callable

from twinbus.broker.telling import tell
from twinbus.clock import Millis
from twinbus.store.changes import FragmentKey

Begin = Callable[[Millis], None]


class ForwardingGate:
    def __init__(self) -> None:
        self.is_open = True
        self._waiting: dict[FragmentKey, Begin] = {}

    def close(self) -> None:
        """Messages that are under way go on."""
        self.is_open = False

    def open(self, now: Millis) -> None:
        self.is_open = True
        waiting, self._waiting = self._waiting, {}
        for begin in waiting.values():
            tell(begin, now)

    def when_open(self, fragment: FragmentKey, begin: Begin) -> None:
        """`begin` looks for itself whether there is still something to forward. The last one for a fragment counts."""
        self._waiting[fragment] = begin
