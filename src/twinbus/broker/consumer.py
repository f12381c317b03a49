"""What takes messages out of a queue, and what it is handed."""

from enum import Enum
from typing import NamedTuple, Protocol

from twinbus.clock import Millis
from twinbus.errors import MessagingError
from twinbus.store.changes import StoredMessage


class ReceiveMode(Enum):
    PEEK_LOCK = 1
    RECEIVE_AND_DELETE = 0


class TakenMessage(NamedTuple):
    """One message handed over. The token is 16 bytes in .NET GUID order, and empty in receive-and-delete."""

    message: StoredMessage
    lock_token: bytes
    locked_until: Millis


class SessionRequest(NamedTuple):
    """Which message session a receiver wants, and how."""

    session_id: str | None = None  # None: the next free one
    is_exclusive: bool = True  # false: another receiver may take the session over by its token
    token: bytes | None = None  # of the hold that is taken over


class SessionLock:
    """The hold of one receiver on one message session.

    The broker alone changes it. `locked_at` is when it was accepted. `token` is 16 bytes, and None for an exclusive hold.
    `is_held` turns false when the lock is released, expires, is taken over or its fragment loses its store; it never turns
    true again.
    """

    __slots__ = ("fragment_index", "is_held", "locked_at", "locked_until", "session_id", "token")

    def __init__(
        self,
        session_id: str,
        fragment_index: int,
        locked_at: Millis,
        locked_until: Millis,
        token: bytes | None = None,
    ) -> None:
        self.session_id = session_id
        self.fragment_index = fragment_index
        self.locked_at = locked_at
        self.locked_until = locked_until
        self.token = token
        self.is_held = True

    def clock_stepped(self, by: Millis) -> None:
        self.locked_at += by
        self.locked_until += by


class Consumer(Protocol):
    """A receiving link, as a queue sees it. The gateway implements it."""

    credit: int
    """How many messages may still be handed over: the gateway sets it, the queue takes from it."""
    mode: ReceiveMode
    session: SessionLock | None
    """The message session this receiver accepted; None where the entity has none."""

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        """Take these messages. May call back into the queue, to settle or to ask for more, but not to attach or detach anybody. It
        is handed nothing more before it has returned."""
        ...

    def credit_returned(self, now: Millis) -> None:
        """Of a receiver that has recalled its credit: what had been passed on and was not used is in `credit` again. All of it
        may not be back yet, and nothing is passed on until the next `pump`."""
        ...

    def session_lost(self, error: MessagingError) -> None:
        """The message session is gone for good, or the whole entity: the link has to be detached with this error.

        The queue has let go of the receiver already: it need not be detached.
        """
        ...
