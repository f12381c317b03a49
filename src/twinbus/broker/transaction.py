"""A transaction, as gateways use it: every operation answers by a reply, at once or when the node has it whose fragment it is in.

An operation that is refused is no part of the transaction. `home` is the entity that the transaction is on, where it has one.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.entity.transfers import Transfers, ViaTarget
from twinbus.broker.fragment_transaction import FragmentTransaction
from twinbus.broker.outcomes import Outcome
from twinbus.broker.replies import Reply
from twinbus.broker.source import Source
from twinbus.broker.target import Target, WayIn
from twinbus.clock import Millis
from twinbus.errors import MessagingError
from twinbus.model.message import Message

OwnWayIn: TypeAlias = QueueEntity | TopicEntity | ViaTarget


class Transaction(Protocol):
    @property
    def size_bytes(self) -> int:
        """Of what it holds in memory until it is over."""
        ...

    def send(
        self, target: WayIn, messages: Sequence[Message], now: Millis, reply: Reply[int], home: Target | None = None
    ) -> None:
        """Replies the fragment that takes them, if they go to the transaction's own entity."""
        ...

    def settle(
        self,
        queue: Source,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        reply: Reply[None],
        home: Target | None = None,
        session: SessionLock | None = None,
    ) -> None: ...

    def cancel_scheduled(
        self, target: WayIn, numbers: Sequence[int], now: Millis, reply: Reply[None], home: Target | None = None
    ) -> None: ...

    def set_session_state(
        self,
        queue: Source,
        session_id: str,
        state: bytes | None,
        now: Millis,
        reply: Reply[None],
        home: Target | None = None,
    ) -> None: ...

    def doom(self, error: MessagingError) -> None: ...

    def commit(self, now: Millis, reply: Reply[None]) -> None: ...

    def rollback(self) -> None: ...


class OwnTransaction:
    """On an entity all of whose fragments are at this node. Everything is answered at once, except a commit and a cancellation."""

    __slots__ = ("_work",)

    def __init__(self) -> None:
        self._work = FragmentTransaction()

    @property
    def size_bytes(self) -> int:
        return self._work.size_bytes

    def send(
        self, target: WayIn, messages: Sequence[Message], now: Millis, reply: Reply[int], home: Target | None = None
    ) -> None:
        assert isinstance(target, OwnWayIn)
        try:
            fragment = self._work.send(target.placement, messages, now, _transfers(home))
        except MessagingError as error:
            reply(error)
            return
        reply(fragment)

    def settle(
        self,
        queue: Source,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        reply: Reply[None],
        home: Target | None = None,
        session: SessionLock | None = None,
    ) -> None:
        assert isinstance(queue, MessageQueue)
        try:
            self._work.settle(queue, tokens, outcome, now, _transfers(home), session)
        except MessagingError as error:
            reply(error)
            return
        reply(None)

    def cancel_scheduled(
        self, target: WayIn, numbers: Sequence[int], now: Millis, reply: Reply[None], home: Target | None = None
    ) -> None:
        assert isinstance(target, OwnWayIn)
        self._work.cancel_scheduled(target.placement, numbers, now, reply, _transfers(home))

    def set_session_state(
        self,
        queue: Source,
        session_id: str,
        state: bytes | None,
        now: Millis,
        reply: Reply[None],
        home: Target | None = None,
    ) -> None:
        assert isinstance(queue, MessageQueue)
        try:
            self._work.set_session_state(queue, session_id, state, now, _transfers(home))
        except MessagingError as error:
            reply(error)
            return
        reply(None)

    def doom(self, error: MessagingError) -> None:
        self._work.doom(error)

    def commit(self, now: Millis, reply: Reply[None]) -> None:
        self._work.commit(now, reply)

    def rollback(self) -> None:
        self._work.rollback()


def _transfers(home: Target | None) -> Transfers | None:
    if home is None:
        return None
    assert isinstance(home, QueueEntity | TopicEntity)
    return home.transfers
