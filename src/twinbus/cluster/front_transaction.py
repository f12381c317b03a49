"""A transaction of a gateway whose entity has parts at several nodes. It lives at the node that has its fragment.

Which one that is is known with the first operation: everything in a transaction concerns one fragment. Later operations go to the same node,
which refuses those that belong elsewhere. A commit is asked for when all operations before it are answered: whoever does not wait for
their answers dooms the transaction with one that is refused. When the line breaks, the transaction is rolled back; if that happens
during the commit, its outcome is unknown.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twinbus.broker.consumer import SessionLock
from twinbus.broker.outcomes import Outcome
from twinbus.broker.replies import Reply
from twinbus.broker.source import Source
from twinbus.broker.target import Target, WayIn
from twinbus.broker.telling import tell
from twinbus.broker.transaction import OwnTransaction
from twinbus.clock import Millis
from twinbus.cluster.error_values import encode_error
from twinbus.cluster.ownership import Owners
from twinbus.cluster.part import PartServer
from twinbus.cluster.peers import Hold, Peer, Peers
from twinbus.errors import MessagingError, NotAllowed, TransactionUnknown
from twinbus.model.message import Message
from twinbus.model.partition_key import candidates
from twinbus.model.wire_names import SEQUENCE_BITS


class FrontTransaction:
    """`owners`: the node of each store; `part`: finds what is at this node by its name."""

    def __init__(self, owners: Owners, peers: Peers, part: PartServer) -> None:
        self._owners = owners
        self._peers = peers
        self._part = part
        self._node: int | None = None
        self._own: OwnTransaction | None = None
        self._line: object = None  # that the transaction at another node depends on
        self._number = 0
        self._size_bytes = 0
        self._doom: MessagingError | None = None
        self._unanswered = 0  # operations at another node
        self._commit_reply: Reply[None] | None = None  # of a commit that waits for them

    @property
    def size_bytes(self) -> int:
        return self._size_bytes if self._own is None else self._own.size_bytes

    # Operations

    def send(
        self, target: WayIn, messages: Sequence[Message], now: Millis, reply: Reply[int], home: Target | None = None
    ) -> None:
        try:
            local = self._part.way_in(target.name)
            placement = local.placement
            local_home = None if home is None else self._part.way_in(home.name)
            if local_home is not None:
                placement = local_home.transfers.way_to(placement)  # type: ignore[union-attr]
            keys = {placement.key_of(message) for message in messages}
            key = next(iter(keys), None)
            index = None
            if not placement.settings.is_partitioned:
                index = 0
            elif key is not None:
                index = candidates(key, len(placement.fragments), 0)[0]
            node = self._choose(None if index is None else placement.fragments[index].broker.index)
        except MessagingError as error:
            reply(error)
            return
        if node == self._peers.node:
            self._here().send(local, messages, now, reply, local_home)  # type: ignore[arg-type]
            return

        def sent(result: int | MessagingError) -> None:
            if not isinstance(result, MessagingError):
                self._size_bytes += sum([len(message.content) for message in messages])
            reply(result)

        self._operate("send", home, target.name, sent, messages)

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
        try:
            local = self._part.queue(queue.key)
            index = tokens[0][0] if tokens and tokens[0] else 0
            fragment = local.fragments[index] if index < len(local.fragments) else local.fragments[0]
            node = self._choose(fragment.broker.index)
            local_home = None if home is None else self._part.way_in(home.name)
        except MessagingError as error:
            reply(error)
            return
        if node == self._peers.node:
            own = None if isinstance(session, Hold) else session
            self._here().settle(local, tokens, outcome, now, reply, local_home, own)  # type: ignore[arg-type]
            return
        hold = self._peer.hold_number(session)
        self._operate("settle", home, (queue.key, list(tokens), outcome, hold), reply)

    def cancel_scheduled(
        self, target: WayIn, numbers: Sequence[int], now: Millis, reply: Reply[None], home: Target | None = None
    ) -> None:
        try:
            local = self._part.way_in(target.name)
            fragments = local.placement.fragments
            index = numbers[0] >> SEQUENCE_BITS if numbers else 0
            fragment = fragments[index] if 0 <= index < len(fragments) else fragments[0]
            node = self._choose(fragment.broker.index)
            local_home = None if home is None else self._part.way_in(home.name)
        except MessagingError as error:
            reply(error)
            return
        if node == self._peers.node:
            self._here().cancel_scheduled(local, numbers, now, reply, local_home)  # type: ignore[arg-type]
            return
        self._operate("cancel", home, (target.name, list(numbers)), reply)

    def set_session_state(
        self,
        queue: Source,
        session_id: str,
        state: bytes | None,
        now: Millis,
        reply: Reply[None],
        home: Target | None = None,
    ) -> None:
        try:
            local = self._part.queue(queue.key)
            fragment = local.fragments[candidates(session_id, len(local.fragments), 0)[0]]
            node = self._choose(fragment.broker.index)
            local_home = None if home is None else self._part.way_in(home.name)
        except MessagingError as error:
            reply(error)
            return
        if node == self._peers.node:
            self._here().set_session_state(local, session_id, state, now, reply, local_home)  # type: ignore[arg-type]
            return
        self._size_bytes += len(state or b"")
        self._operate("state", home, (queue.key, session_id, state), reply)

    def doom(self, error: MessagingError) -> None:
        if self._own is not None:
            self._own.doom(error)
        elif self._node is not None:
            self._ask("doom", None, encode_error(error), _nobody_waits)
        else:
            self._doom = error

    def commit(self, now: Millis, reply: Reply[None]) -> None:
        if self._doom is not None:
            reply(self._doom)
        elif self._own is not None:
            self._own.commit(now, reply)
        elif self._node is not None:
            self._commit_reply = reply
            self._commit_if_answered()
        else:
            reply(None)

    def rollback(self) -> None:
        if self._own is not None:
            self._own.rollback()
        elif self._node is not None:
            self._ask("rollback", None, None, _nobody_waits)

    # Where it is

    @property
    def _peer(self) -> Peer:
        assert self._node is not None
        return self._peers[self._node]

    def _choose(self, store: int | None) -> int:
        """The node that it is at, with an operation on a fragment in this store; None: on any, which its node refuses."""
        if self._doom is not None:
            raise self._doom
        owner = None if store is None else self._owners.of[store]
        if self._node is None:
            self._node = self._peers.node if owner is None else owner
            if self._node == self._peers.node:
                self._own = OwnTransaction()
            else:
                if not self._peer.is_open:
                    self._node = None
                    raise self._peers[owner if owner is not None else 0].unavailable()
                self._line = self._peer.line
                self._number = self._peer.new_number()
        elif owner is not None and owner != self._node:
            raise NotAllowed(
                "A transaction stays within one entity, and within one fragment of it if it is partitioned. Use one "
                "transaction for each entity and for each session id or partition key, or send via the first entity."
            )
        return self._node

    def _here(self) -> OwnTransaction:
        assert self._own is not None
        return self._own

    def _operate(
        self,
        operation: str,
        home: Target | None,
        arguments: object,
        reply: Callable[[Any], None],
        messages: Sequence[Message] = (),
    ) -> None:
        self._unanswered += 1

        def answered(result: Any) -> None:
            tell(reply, result)
            self._unanswered -= 1
            self._commit_if_answered()

        self._ask(operation, home, arguments, answered, messages)

    def _commit_if_answered(self) -> None:
        if self._commit_reply is not None and not self._unanswered:
            reply, self._commit_reply = self._commit_reply, None
            self._ask("commit", None, None, reply)

    def _ask(
        self,
        operation: str,
        home: Target | None,
        arguments: object,
        reply: Callable[[Any], None],
        messages: Sequence[Message] = (),
    ) -> None:
        if self._peer.line is not self._line or not self._peer.is_open:
            # What was done before is rolled back by now; to go on would commit the rest alone.
            reply(
                TransactionUnknown(
                    "The line to the transaction's node broke, and it was rolled back. Declare another one."
                )
            )
            return
        path = None if home is None else home.name.path
        self._peer.transact(self._number, operation, path, arguments, reply, messages)


def _nobody_waits(_: Any) -> None:
    """It has no answer that anybody needs."""
