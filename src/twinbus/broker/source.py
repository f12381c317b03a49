"""Where messages are taken from: what gateways ask of one sub-queue, wherever its fragments are.

`twinbus.broker.entity.message_queue.MessageQueue` is one whose fragments all have their stores at this node;
`twinbus.cluster.fronts.source.FrontSource` one with fragments at several nodes.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from twinbus.broker.commands import Command
from twinbus.broker.consumer import Consumer, SessionLock, SessionRequest
from twinbus.broker.entity_settings import EntitySettings
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.outcomes import Outcome
from twinbus.broker.replies import Reply, SettleReply, Waiter
from twinbus.clock import Millis
from twinbus.store.changes import FragmentKey

T = TypeVar("T")


class Source(Protocol):
    """The methods are described where the queue of a single node has them."""

    @property
    def key(self) -> FragmentKey:
        """That of its first fragment: it names this sub-queue of this very entity."""
        ...

    @property
    def fragments_here(self) -> Sequence[Fragment]:
        """As this node sees them: those in the stores of other nodes are unavailable."""
        ...

    @property
    def settings(self) -> EntitySettings: ...

    @property
    def requires_session(self) -> bool: ...

    @property
    def receiver_count(self) -> int: ...

    @property
    def is_reading(self) -> bool: ...

    def after_reading(self, call: Callable[[], None]) -> None: ...

    def attach(self, receiver: Consumer, now: Millis) -> None: ...

    def detach(self, receiver: Consumer, now: Millis) -> None: ...

    def pump(self, now: Millis, receiver: Consumer | None = None) -> None: ...

    def recall(self, receiver: Consumer, now: Millis, *, waits: bool = True) -> None: ...

    def settle_each(
        self,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        reply: SettleReply,
        session: SessionLock | None = None,
    ) -> None: ...

    def settle(
        self,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        reply: Reply[None],
        session: SessionLock | None = None,
    ) -> None: ...

    def renew(self, tokens: Sequence[bytes], now: Millis, reply: Reply[list[Millis]]) -> None: ...

    def accept_session(
        self, request: SessionRequest, deadline: Millis, now: Millis, reply: Reply[SessionLock]
    ) -> Waiter: ...

    def release_session(self, lock: SessionLock, now: Millis) -> None: ...

    def renew_session(self, session_id: str, now: Millis, reply: Reply[Millis]) -> None: ...

    def session_lock(self, session_id: str, now: Millis) -> SessionLock | None: ...

    def ask(self, command: Command[T], now: Millis, reply: Reply[T]) -> None: ...
