"""What an operation may use of the queue that it is asked of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.message_sessions import MessageSessions
from twinbus.clock import Millis


@dataclass(frozen=True, slots=True)
class WaysOut:
    """Where messages of a queue can go in one commit: fragments of the same index, each in the same store."""

    owner: EntitySettings  # of the queue or topic that it belongs to
    home: Sequence[Fragment] | None  # of the queue or subscription whose dead letters these are; None: they are not
    transfers: Sequence[Fragment]  # from where messages go on to other entities


class AskedQueue(Protocol):
    """`twinbus.broker.entity.message_queue.MessageQueue` is one."""

    @property
    def settings(self) -> EntitySettings: ...

    @property
    def fragments(self) -> Sequence[Fragment]: ...

    @property
    def own_fragments(self) -> Sequence[Fragment]:
        """Without those whose stores other nodes serve."""
        ...

    @property
    def requires_session(self) -> bool: ...

    @property
    def ways_out(self) -> WaysOut: ...

    def settings_of(self, path: str) -> EntitySettings:
        """Of the queue or topic with this path. Raises EntityNotFound."""
        ...

    def fragments_of(self, path: str) -> Sequence[Fragment]:
        """Where messages of the queue with this path lie, as far as this node is concerned. None for a topic."""
        ...

    def expect_claims(self) -> None:
        """Messages are claimed from it: it has to know where the first ones are that nobody has."""
        ...

    def sessions(self) -> "SessionPlaces":
        """Raises NotAllowed where the queue has no message sessions."""
        ...


class SessionPlaces(Protocol):
    """Where the message sessions of a queue are."""

    def place(self, session_id: str) -> Fragment: ...

    def sessions_of(self, fragment: Fragment) -> MessageSessions: ...

    def check_held(self, session_id: str, now: Millis) -> SessionLock:
        """The lock on it. Raises SessionLockLost if nobody holds it, and FragmentUnavailable."""
        ...
