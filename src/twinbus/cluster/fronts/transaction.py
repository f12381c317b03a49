"""A transaction of a gateway whose entity has parts at several nodes. It lives at the node that has its fragment.

    nowhere --an operation is asked for--> at the node of its fragment --commit, rollback, an operation failed unheard--> over
       ^--------------all were refused--------------'

Everything in a transaction concerns one fragment, so whatever is sent goes where the transaction is, and that node judges it as it would on a
single node. What lies in a fragment already (a lock, a number, a message session) is refused here if its fragment is at another node.
Transfers alone can go into any fragment of their home, so a transaction that has nothing else moves to the node of what comes next.

A commit is asked for when all operations before it are answered: whoever does not wait for their answers dooms the transaction with one that
is refused. When the line breaks, the transaction is rolled back; if that happens during the commit, its outcome is unknown.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity.transfers import ViaPlacement
from twinbus.broker.fragment.settlement import added_bytes
from twinbus.broker.outcomes import Outcome
from twinbus.broker.replies import Reply
from twinbus.broker.source import Source
from twinbus.broker.target import Target, WayIn
from twinbus.broker.telling import tell
from twinbus.broker.transaction import OwnTransaction
from twinbus.clock import Millis
from twinbus.cluster.moves.moves import Call, no_room_to_wait
from twinbus.cluster.ownership import Owners
from twinbus.cluster.parts.part import PartServer
from twinbus.cluster.peers.hold import Hold
from twinbus.cluster.peers.peer import Peer
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import MessagingError, NotAllowed, TransactionUnknown
from twinbus.meter.operation import NO_FRAGMENT
from twinbus.model.message import Message
from twinbus.model.partition_key import candidates
from twinbus.model.wire_names import SEQUENCE_BITS

AnyReply: TypeAlias = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class _Operation:
    """`here`: does it in a transaction of this node. `word`, `arguments`, `messages`: what another node is asked."""

    word: str
    arguments: Callable[[Peer], object]
    here: Callable[[OwnTransaction, Millis, AnyReply], None]
    store: int | None  # that its fragment is in; None: of any, which its node refuses
    home: Target | None
    messages: Sequence[Message] = ()
    size_bytes: int = 0
    is_sent: bool = False  # so it goes where the transaction is
    is_transfer: bool = False


class _Place(Protocol):
    """The transaction at its node."""

    @property
    def node(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def operate(self, operation: _Operation, now: Millis, reply: AnyReply) -> None: ...

    def commit(self, now: Millis, reply: Reply[None]) -> None: ...

    def rollback(self) -> None: ...


class FrontTransaction:
    """`owners`: the node of each store; `part`: finds what is at this node by its name."""

    def __init__(self, owners: Owners, peers: Peers, part: PartServer) -> None:
        self._owners = owners
        self._peers = peers
        self._part = part
        self._place: _Place | None = None
        self._accepted = 0
        self._unanswered = 0
        self._transfers: list[_Operation] = []  # while there is nothing else
        self._moving: list[Callable[[], None]] | None = None  # while it moves: operations that wait for that
        self._fault: MessagingError | None = None  # why it is over
        self._commit_reply: Reply[None] | None = None  # of a commit that waits for answers

    @property
    def size_bytes(self) -> int:
        return 0 if self._place is None else self._place.size_bytes

    # Operations

    def send(
        self, target: WayIn, messages: Sequence[Message], now: Millis, reply: Reply[int], home: Target | None = None
    ) -> None:
        def find() -> _Operation:
            local, own_home = self._part.way_in(target.name), self._own_home(home)
            placement = local.placement if own_home is None else own_home.transfers.way_to(local.placement)
            key = next(iter({placement.key_of(message) for message in messages}), None)
            index = 0 if not placement.settings.is_partitioned else None
            if index is None and key is not None:
                index = candidates(key, len(placement.fragments), 0)[0]
            return _Operation(
                "send",
                lambda _: target.name,
                lambda own, now, reply: own.send(local, messages, now, reply, own_home),
                None if index is None else placement.fragments[index].broker.index,
                home,
                messages,
                sum([len(message.content) for message in messages]),
                is_sent=True,
                is_transfer=isinstance(placement, ViaPlacement),
            )

        if messages:
            self._operate(find, now, reply)
        else:
            self._send_nothing(target, reply)

    def _send_nothing(self, target: WayIn, reply: Reply[int]) -> None:
        """Nothing has no place: the transaction is where it was, if it is anywhere."""
        try:
            self._check_open()
            self._part.way_in(target.name).placement.check_open()
        except MessagingError as error:
            reply(error)
        else:
            reply(NO_FRAGMENT)

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
        def find() -> _Operation:
            local, own_home = self._part.queue(queue.key), self._own_home(home)
            index = tokens[0][0] if tokens and tokens[0] else 0
            fragment = local.fragments[index] if index < len(local.fragments) else local.fragments[0]
            own_session = session.own if isinstance(session, Hold) else session
            return _Operation(
                "settle",
                lambda peer: (queue.key, list(tokens), outcome, peer.hold_number(session)),
                lambda own, now, reply: own.settle(local, tokens, outcome, now, reply, own_home, own_session),
                fragment.broker.index,
                home,
                size_bytes=added_bytes(outcome),
            )

        self._operate(find, now, reply)

    def cancel_scheduled(
        self, target: WayIn, numbers: Sequence[int], now: Millis, reply: Reply[None], home: Target | None = None
    ) -> None:
        def find() -> _Operation:
            local, own_home = self._part.way_in(target.name), self._own_home(home)
            fragments = local.placement.fragments
            index = numbers[0] >> SEQUENCE_BITS if numbers else 0
            fragment = fragments[index] if 0 <= index < len(fragments) else fragments[0]
            return _Operation(
                "cancel",
                lambda _: (target.name, list(numbers)),
                lambda own, now, reply: own.cancel_scheduled(local, numbers, now, reply, own_home),
                fragment.broker.index,
                home,
            )

        self._operate(find, now, reply)

    def set_session_state(
        self,
        queue: Source,
        session_id: str,
        state: bytes | None,
        now: Millis,
        reply: Reply[None],
        home: Target | None = None,
    ) -> None:
        def find() -> _Operation:
            local, own_home = self._part.queue(queue.key), self._own_home(home)
            fragment = local.fragments[candidates(session_id, len(local.fragments), 0)[0]]
            return _Operation(
                "state",
                lambda _: (queue.key, session_id, state),
                lambda own, now, reply: own.set_session_state(local, session_id, state, now, reply, own_home),
                fragment.broker.index,
                home,
                size_bytes=len(state or b""),
            )

        self._operate(find, now, reply)

    def doom(self, error: MessagingError) -> None:
        if self._fault is None:
            self._fault = error
            self._leave()

    def commit(self, now: Millis, reply: Reply[None]) -> None:
        try:
            self._check_open()
        except MessagingError as error:
            reply(error)
            return
        self._commit_reply = reply
        self._commit_if_answered(now)

    def rollback(self) -> None:
        self._fault = self._fault or _over()
        self._leave()

    # Where it is

    def _own_home(self, home: Target | None) -> Any:
        """The same at this node."""
        return None if home is None else self._part.way_in(home.name)

    def _check_open(self) -> None:
        if self._fault is not None:
            raise self._fault
        if self._commit_reply is not None:
            raise _over()

    def _operate(self, find: Callable[[], _Operation], now: Millis, reply: AnyReply) -> None:
        try:
            self._check_open()
        except MessagingError as error:
            reply(error)
            return
        self._unanswered += 1
        self._place_and_do(find, now, reply)

    def _place_and_do(self, find: Callable[[], _Operation], now: Millis, reply: AnyReply) -> None:
        if self._moving is not None:
            self._moving.append(lambda: self._place_and_do(find, now, reply))
            return
        try:
            if self._fault is not None:
                raise self._fault
            operation = find()
            if self._waits(operation, lambda later: self._place_and_do(find, later, reply)):
                return
            place = self._place_of(operation)
        except MessagingError as error:
            self._unanswered -= 1
            tell(reply, error)
            self._commit_if_answered(now)
            return
        if place is self._place:
            self._do(place, operation, now, reply)
        else:
            self._move(place, operation, now, reply)

    def _waits(self, operation: _Operation, call: Call) -> bool:
        """A transaction that has a place goes on there, though its store moves: it has a moment to end. Raises FragmentUnavailable if one
        that is new has no room to wait: its messages would overtake those that wait."""
        moves, store = self._owners.moves, operation.store
        if self._place is not None or store is None or store not in moves.stores:
            return False
        if not moves.wait(store, call, operation.size_bytes):
            raise no_room_to_wait()
        return True

    def _do(self, place: _Place, operation: _Operation, now: Millis, reply: AnyReply) -> None:
        def answered(result: Any) -> None:
            self._unanswered -= 1
            if isinstance(result, MessagingError):
                if not self._accepted and not self._unanswered and self._fault is None:
                    self._leave()  # what is refused is no part of it
            else:
                self._accepted += 1
                if operation.is_transfer and len(self._transfers) == self._accepted - 1:
                    self._transfers.append(operation)
            tell(reply, result)
            self._commit_if_answered(now)

        place.operate(operation, now, answered)

    def _move(self, place: _Place, operation: _Operation, now: Millis, reply: AnyReply) -> None:
        """Once the operation is accepted where its fragment is, the transfers are repeated there. Others wait meanwhile."""
        self._moving = []

        def answered(result: Any) -> None:
            waiting, self._moving = self._moving or [], None
            self._unanswered -= 1
            if isinstance(result, MessagingError) or self._fault is not None:
                place.rollback()
            else:
                self._leave()
                self._place = place
                self._accepted += 1
                for transfer in self._transfers:
                    self._unanswered += 1
                    place.operate(transfer, now, lambda repeated: self._repeated(repeated, now))
            tell(reply, result)
            for call in waiting:
                call()
            self._commit_if_answered(now)

        place.operate(operation, now, answered)

    def _repeated(self, result: Any, now: Millis) -> None:
        self._unanswered -= 1
        if isinstance(result, MessagingError):
            self.doom(result)
        self._commit_if_answered(now)

    def _place_of(self, operation: _Operation) -> _Place:
        """Another one than now: it has to move there."""
        owner = self._peers.node if operation.store is None else self._owners.of[operation.store]
        if self._place is None:
            self._place = self._begin(owner)
        elif owner != self._place.node and not operation.is_sent:
            if self._unanswered > 1 or len(self._transfers) < self._accepted:  # it is one of them
                raise NotAllowed(
                    "These messages lie in different fragments, and a transaction stays within one entity, and within one "
                    "fragment of it if it is partitioned. There every message of a transaction needs a session id or a "
                    "partition key, and all of them the same session id or key. Use one transaction for each entity and "
                    "key, or send via the first entity."
                )
            return self._begin(owner)
        return self._place

    def _begin(self, node: int) -> _Place:
        return _Here(node) if node == self._peers.node else _There(self._peers[node])

    def _leave(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            place.rollback()

    def _commit_if_answered(self, now: Millis) -> None:
        if self._commit_reply is None or self._unanswered:
            return
        reply, self._commit_reply = self._commit_reply, None
        if self._fault is not None:
            reply(self._fault)
            return
        self._fault = _over()
        if self._place is None:
            reply(None)
        else:
            self._place.commit(now, reply)


class _Here:
    def __init__(self, node: int) -> None:
        self.node = node
        self._own = OwnTransaction()

    @property
    def size_bytes(self) -> int:
        return self._own.size_bytes

    def operate(self, operation: _Operation, now: Millis, reply: AnyReply) -> None:
        operation.here(self._own, now, reply)

    def commit(self, now: Millis, reply: Reply[None]) -> None:
        self._own.commit(now, reply)

    def rollback(self) -> None:
        self._own.rollback()


class _There:
    """At another node, for as long as the line to it holds that there is when it begins."""

    def __init__(self, peer: Peer) -> None:
        if not peer.is_open:
            raise peer.unavailable()
        self.node = peer.node
        self.size_bytes = 0
        self._peer = peer
        self._line = peer.line
        self._number = peer.new_number()

    def operate(self, operation: _Operation, now: Millis, reply: AnyReply) -> None:
        def answered(result: Any) -> None:
            if not isinstance(result, MessagingError):
                self.size_bytes += operation.size_bytes
            reply(result)

        path = None if operation.home is None else operation.home.name.path
        self._ask(operation.word, path, operation.arguments(self._peer), answered, operation.messages)

    def commit(self, now: Millis, reply: Reply[None]) -> None:
        self._ask("commit", None, None, reply)

    def rollback(self) -> None:
        self._ask("rollback", None, None, _nobody_waits)

    def _ask(
        self, word: str, home: str | None, arguments: object, reply: AnyReply, messages: Sequence[Message] = ()
    ) -> None:
        if self._peer.line is not self._line or not self._peer.is_open:
            # What was done before is rolled back by now; to go on would commit the rest alone.
            reply(
                TransactionUnknown(
                    "The line to the transaction's node broke, and it was rolled back. Declare another one."
                )
            )
            return
        self._peer.transact(self._number, word, home, arguments, reply, messages)


def _over() -> TransactionUnknown:
    return TransactionUnknown("The transaction is over. Declare another one.")


def _nobody_waits(_: Any) -> None:
    """It has no answer that anybody needs."""
