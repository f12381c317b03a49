"""One sub-queue (main, dead-letter or transfer dead-letter) of a queue or subscription, over all of its fragments."""

from collections.abc import Mapping, Sequence

from twinbus.broker.outcomes import Outcome
from twinbus.broker.receiver import Delivery, ReceiveMode, Receiver, SessionLock
from twinbus.broker.replies import QueueCounts, Reply, SettleReply, Waiter
from twinbus.clock import Millis
from twinbus.store.changes import StoredMessage


class MessageQueue:
    """Where messages are received from. A receiver cannot tell how many fragments there are (contract A5)."""

    requires_session: bool

    def attach(self, receiver: Receiver, now: Millis) -> None:
        """Hand messages to it from now on. Raises EntityDisabled or NotAllowed (session entity without a session)."""
        raise NotImplementedError

    def detach(self, receiver: Receiver, now: Millis) -> None:
        """Hand it nothing more. Its message locks live on; its message session, if any, is released at once."""
        raise NotImplementedError

    def pump(self, now: Millis) -> None:
        """Hand messages to receivers with credit. To be called when credit was raised; anything else pumps by itself."""
        raise NotImplementedError

    def settle_each(self, tokens: Sequence[bytes], outcome: Outcome, now: Millis, reply: SettleReply) -> None:
        """Settle independent messages: AMQP dispositions."""
        raise NotImplementedError

    def settle(self, tokens: Sequence[bytes], outcome: Outcome, now: Millis, reply: Reply[None]) -> None:
        """Settle all or none; tokens of several fragments are refused with NotAllowed (contract A8)."""
        raise NotImplementedError

    def renew(self, tokens: Sequence[bytes], now: Millis, reply: Reply[list[Millis]]) -> None:
        """Start the lock duration anew for all of them or none; replies until when each is locked."""
        raise NotImplementedError

    def peek(
        self,
        from_number: int,
        count_max: int,
        session_id: str | None,
        now: Millis,
        reply: Reply[list[StoredMessage]],
    ) -> None:
        """Look at messages without taking them; a page may be short, an empty one is the end (contract A12)."""
        raise NotImplementedError

    def peek_merged(
        self, positions: Mapping[int, int], count_max: int, now: Millis, reply: Reply[list[StoredMessage]]
    ) -> None:
        """Peek over all fragments at once, by enqueued time. `positions`: fragment index -> lowest number wanted."""
        raise NotImplementedError

    def receive_deferred(
        self,
        numbers: Sequence[int],
        mode: ReceiveMode,
        session_id: str | None,
        now: Millis,
        reply: Reply[list[Delivery]],
    ) -> None:
        """Take deferred messages, all of them or MessageNotFound; NotAllowed over several fragments."""
        raise NotImplementedError

    def cancel_scheduled(self, numbers: Sequence[int], now: Millis, reply: Reply[None]) -> None:
        """Remove scheduled messages, all of them or MessageNotFound."""
        raise NotImplementedError

    def accept_session(
        self, session_id: str | None, deadline: Millis, now: Millis, reply: Reply[SessionLock]
    ) -> Waiter:
        """Lock a named message session, or the next free one (None), waiting for one until `deadline`."""
        raise NotImplementedError

    def release_session(self, lock: SessionLock, now: Millis) -> None:
        """Give it back in good order: its messages are free at once and no delivery count rises."""
        raise NotImplementedError

    def renew_session(self, session_id: str, now: Millis, reply: Reply[Millis]) -> None:
        raise NotImplementedError

    def session_state(self, session_id: str, reply: Reply[bytes | None]) -> None:
        raise NotImplementedError

    def set_session_state(self, session_id: str, state: bytes | None, now: Millis, reply: Reply[None]) -> None:
        """Only while the session is locked: SessionLockLost otherwise. None forgets the state."""
        raise NotImplementedError

    def list_sessions(self, updated_after: Millis | None, skip: int, top: int, reply: Reply[list[str]]) -> None:
        """Sessions with active messages or a state (None), or whose state was set after a time; by name."""
        raise NotImplementedError

    def counts(self) -> QueueCounts:
        raise NotImplementedError
