"""The locks of a fragment on their way to another node, to which its store moves: taken out at one, put in at the other.

Nothing of it is written: if one of the nodes ends on the way, the locks are gone as after a crash. Times are those of the node that has
them at the moment.
"""

from typing import NamedTuple

from twinbus.broker.consumer import SessionLock, TakenMessage
from twinbus.clock import NEVER, Millis


class MovedSession(NamedTuple):
    """A message session that is held. `tokens`: what is locked for as long as it is."""

    lock: SessionLock
    tokens: list[bytes]


class MovedLocks(NamedTuple):
    """`messages`: rows without content. Those of message sessions are locked until NEVER."""

    messages: list[TakenMessage]
    sessions: list[MovedSession]

    def clock_stepped(self, by: Millis) -> None:
        self.messages[:] = [
            each._replace(locked_until=each.locked_until + by) if each.locked_until < NEVER else each
            for each in self.messages
        ]
        for lock, _ in self.sessions:
            lock.clock_stepped(by)
