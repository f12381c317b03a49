"""What a fragment has to know of those above it: the queue that it is a part of, and its message sessions."""

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Protocol

from twinbus.broker.consumer import SessionLock
from twinbus.broker.fragment.lane import Lane
from twinbus.broker.moved_locks import MovedLocks, MovedSession
from twinbus.clock import Millis
from twinbus.store.changes import StoredMessage
from twinbus.store.messaging_store import SessionSummary

if TYPE_CHECKING:
    from twinbus.broker.fragment.fragment import Fragment


class FragmentWatcher(Protocol):
    """The queue that a fragment is a part of."""

    @property
    def is_taken_from(self) -> bool:
        """Whether somebody receives from it, or it forwards what it has."""
        ...

    def messages_ready(self, fragment: "Fragment", lane: Lane, now: Millis) -> None: ...

    def messages_read(self) -> None:
        """A read of messages for its receivers has been answered, whether it found any or not."""
        ...

    def session_free(self, now: Millis) -> None:
        """A message session with messages is held by nobody."""
        ...

    def session_came(self, fragment: "Fragment", lock: SessionLock) -> None:
        """With the store, from another node: somebody has to see when it ends."""
        ...

    def fragment_lost(self, fragment: "Fragment") -> None: ...

    def fragment_moved(self, fragment: "Fragment", locks: Set[SessionLock]) -> None:
        """Another node serves it from now on, where the message sessions with these locks are still held. All others are lost."""
        ...


class SessionLanes(Protocol):
    """The lanes of a session entity: `message_sessions.MessageSessions`."""

    def lane(self, session_id: str) -> Lane: ...

    def is_held(self, message: StoredMessage, now: Millis) -> bool:
        """Whether somebody holds the session that this message belongs to."""
        ...

    def load(self, sessions: Sequence[SessionSummary], now: Millis, moved: MovedLocks) -> None: ...

    def drop(self) -> None: ...

    def move_out(self, travels: Callable[[SessionLock], bool]) -> list[MovedSession]:
        """As `drop`. Returns those that are held elsewhere from now on."""
        ...

    def clock_stepped(self, by: Millis) -> None:
        """The holds last as long as they were given for."""
        ...

    def messages_free(self, lane: Lane, now: Millis) -> None:
        """The lane of a session that nobody holds has messages."""
        ...
