"""The locks of a fragment on their way to another node, to which its store moves: taken out at one, put in at the other.

Nothing of it is written: if one of the nodes ends on the way, the locks are gone as after a crash. Times are those of the node that has
them at the moment.
"""

from typing import NamedTuple

from twinbus.broker.consumer import SessionLock, TakenMessage


class MovedSession(NamedTuple):
    """A message session that is held. `tokens`: what is locked for as long as it is."""

    lock: SessionLock
    tokens: list[bytes]


class MovedLocks(NamedTuple):
    """`messages`: rows without content. Those of message sessions are locked until NEVER."""

    messages: list[TakenMessage]
    sessions: list[MovedSession]
