"""What a fragment asks of its message sessions; `message_sessions.MessageSessions` answers."""

from collections.abc import Sequence
from typing import Protocol

from twinbus.broker.fragment.lane import Lane
from twinbus.clock import Millis
from twinbus.store.changes import StoredMessage
from twinbus.store.messaging_store import SessionSummary


class SessionLanes(Protocol):
    """The lanes of a session entity."""

    def lane(self, session_id: str) -> Lane: ...

    def is_held(self, message: StoredMessage, now: Millis) -> bool:
        """Whether somebody holds the session that this message belongs to."""
        ...

    def load(self, sessions: Sequence[SessionSummary]) -> None: ...

    def drop(self) -> None: ...

    def messages_free(self, lane: Lane) -> None:
        """The lane of a session that nobody holds has messages."""
        ...
