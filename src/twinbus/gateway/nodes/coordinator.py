"""Transactions on the wire (AMQP 1.0 part 4): a control link declares and discharges them, other links name them.

    declare                  -> declared(id)
    transfer, disposition    state transactional-state(id, outcome) -> the same back, or rejected
                             inside it; nothing happens yet
    discharge(id, fail)      -> accepted once all of it is durable or forgotten, or rejected with the reason

A transaction belongs to the connection that declared it, and ends with the control link it was declared on. For links on
the AMQP session of its control link it has a home: see `transaction_homes`.
"""

from collections.abc import Callable, Sequence

from twinbus.amqp.codec.composites import one_of
from twinbus.amqp.codec.delivery_state import ACCEPTED, Declared, DeliveryState, Received, Rejected, TransactionalState
from twinbus.amqp.codec.sections import ValueBody, decode_sections
from twinbus.amqp.codec.terminus import Declare, Discharge
from twinbus.amqp.events import Incoming
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.session import Session
from twinbus.broker.consumer import SessionLock
from twinbus.broker.fragment.settlement import added_bytes
from twinbus.broker.replies import Reply
from twinbus.broker.source import Source
from twinbus.broker.target import Target
from twinbus.broker.transaction import Transaction
from twinbus.clock import Millis
from twinbus.errors import ArgumentError, MessagingError, NotImplementedHere, QuotaExceeded, TransactionUnknown
from twinbus.gateway.links.outcome_states import confirmation, outcome_of
from twinbus.gateway.nodes.transaction_homes import TransactionHomes
from twinbus.gateway.transaction_room import TransactionRoom

CREDIT = 100
SIZE_MAX = 64 * 1024
"""Of a request, which needs a hundred bytes. It is decoded as a whole, and whoever sends it needs no token."""
OPEN_MAX = 100
"""Open transactions of one connection."""

_REQUEST = one_of("a declare or a discharge", Declare, Discharge)


class Transactions:
    """The open transactions of one connection, by id."""

    def __init__(
        self, homes: TransactionHomes, new_transaction: Callable[[], Transaction], room: TransactionRoom
    ) -> None:
        self._homes = homes
        self._room = room
        self._new_transaction = new_transaction
        self._open: dict[bytes, Transaction] = {}
        self._under_way: dict[bytes, Transaction] = {}  # commits that are not answered
        self._sessions: dict[bytes, Session] = {}  # that they were declared on
        self._after_commit: dict[bytes, list[Callable[[], None]]] = {}
        self._after_rollback: dict[bytes, list[Callable[[Millis], None]]] = {}
        self._last_id = 0

    def declare(self, session: Session) -> bytes:
        if len(self._open) >= OPEN_MAX:
            raise QuotaExceeded(f"The connection has {OPEN_MAX} transactions open, which is the limit. Discharge some.")
        self._last_id += 1
        txn_id = self._last_id.to_bytes(8, "big")
        self._open[txn_id] = self._new_transaction()
        self._sessions[txn_id] = session
        self._after_commit[txn_id], self._after_rollback[txn_id] = [], []
        return txn_id

    def find(self, txn_id: bytes) -> Transaction:
        found = self._open.get(txn_id)
        if found is None:
            raise TransactionUnknown("No transaction of this connection has this id. Declare one first.")
        return found

    def home(self, txn_id: bytes, session: Session) -> Target | None:
        """Of the transaction, for an operation on this AMQP session."""
        return self._homes.of(session) if self._sessions.get(txn_id) is session else None

    @property
    def size_bytes(self) -> int:
        """Of what they hold in memory."""
        return sum([each.size_bytes for each in (*self._open.values(), *self._under_way.values())])

    def check_room(self, size: int) -> None:
        """Raises if there is no room for this many bytes more."""
        self._room.check(self, size)

    def after_commit(self, txn_id: bytes, call: Callable[[], None]) -> None:
        """Nothing happens if it has been rolled back, which may come before the answer to an operation."""
        calls = self._after_commit.get(txn_id)
        if calls is not None:
            calls.append(call)

    def after_rollback(self, txn_id: bytes, call: Callable[[Millis], None], now: Millis) -> None:
        """If it is rolled back, or its commit fails; at once if it has been."""
        calls = self._after_rollback.get(txn_id)
        if calls is not None:
            calls.append(call)
        else:
            call(now)

    def commit(self, txn_id: bytes, now: Millis, reply: Reply[None]) -> None:
        self._sessions.pop(txn_id, None)

        def committed(result: MessagingError | None) -> None:
            del self._under_way[txn_id]
            # Not before: what is done at another node may be answered after the commit was asked for.
            calls, give_backs = self._after_commit.pop(txn_id), self._after_rollback.pop(txn_id)
            if result is None:
                for call in calls:
                    call()
            else:
                for give_back in give_backs:
                    give_back(now)
            reply(result)

        # Not open before the commit is answered: nobody can add to it or discharge it again.
        self._under_way[txn_id] = transaction = self._open.pop(txn_id)
        transaction.commit(now, committed)

    def rollback(self, txn_id: bytes, now: Millis) -> None:
        self._after_commit.pop(txn_id, None)
        self._sessions.pop(txn_id, None)
        self._open.pop(txn_id).rollback()
        for give_back in self._after_rollback.pop(txn_id, []):
            give_back(now)

    def settle(
        self,
        state: TransactionalState,
        session: Session,
        queue: Source,
        tokens: Sequence[bytes],
        now: Millis,
        answer: Callable[[DeliveryState], None],
        *,
        is_settled: bool,
        message_session: SessionLock | None,
    ) -> None:
        """Settle the messages of one disposition, all or none; calls `answer` with what to answer.

        `is_settled`: the client waits for no answer, so a refusal must doom the whole transaction.
        """
        try:
            transaction = self.find(state.txn_id)
        except TransactionUnknown as error:
            answer(Rejected.because(error))
            return

        def reply(result: MessagingError | None) -> None:
            if result is None:
                answer(in_transaction(state, confirmation(state.outcome)))
                return
            if is_settled:
                transaction.doom(result)
            answer(in_transaction(state, Rejected.because(result)))

        try:
            outcome = outcome_of(state.outcome)
            if outcome is None or state.outcome is None:
                raise ArgumentError(
                    "The state names no outcome. Settle a message in a transaction as accepted, rejected, released or modified."
                )
            self.check_room(added_bytes(outcome))
            home = self.home(state.txn_id, session)
        except MessagingError as error:
            reply(error)
            return
        transaction.settle(queue, tokens, outcome, now, reply, home, message_session)


class CoordinatorBinding:
    """A control link."""

    __slots__ = ("_declared", "_link", "_transactions", "_wake")

    def __init__(self, link: IncomingLink, transactions: Transactions, wake: Callable[[], None]) -> None:
        self._link = link
        self._transactions = transactions
        self._wake = wake
        self._declared: set[bytes] = set()

    def receive(self, deliveries: Sequence[Incoming], now: Millis) -> None:
        for delivery in deliveries:
            # -1 stands for a delivery whose answer nobody waits for.
            answer_id = -1 if delivery.settled else delivery.delivery_id
            try:
                self._handle(answer_id, read_request(delivery.payload), now)
            except MessagingError as error:
                self._answer(answer_id, Rejected.because(error))

    def _handle(self, delivery_id: int, request: Declare | Discharge, now: Millis) -> None:
        if isinstance(request, Declare):
            if request.global_id is not None:
                raise NotImplementedHere("Distributed transactions are not supported. Declare one without a global id.")
            txn_id = self._transactions.declare(self._link.session)
            self._declared.add(txn_id)
            self._answer(delivery_id, Declared(txn_id=txn_id))
            return
        if request.txn_id not in self._declared:
            raise TransactionUnknown(
                "No open transaction of this link has this id. Discharge a transaction on the link that declared it."
            )
        self._declared.discard(request.txn_id)
        if request.fail:
            self._transactions.rollback(request.txn_id, now)
            self._answer(delivery_id, ACCEPTED)
            return

        def reply(error: MessagingError | None) -> None:
            self._answer(delivery_id, ACCEPTED if error is None else Rejected.because(error))

        self._transactions.commit(request.txn_id, now, reply)

    def _answer(self, delivery_id: int, state: DeliveryState) -> None:
        if delivery_id >= 0:
            self._link.settle(delivery_id, delivery_id, state)
            self._wake()

    def unbind(self, now: Millis) -> None:
        """The control link is gone: everything it declared is rolled back."""
        for txn_id in self._declared:
            self._transactions.rollback(txn_id, now)


def read_request(payload: bytes) -> Declare | Discharge:
    """Raises DecodeError for anything else."""
    body = decode_sections(payload).body
    request: Declare | Discharge = _REQUEST.read(body.value if isinstance(body, ValueBody) else None)
    return request


def in_transaction(state: TransactionalState, outcome: DeliveryState) -> TransactionalState:
    """The answer to something done in a transaction."""
    assert not isinstance(outcome, TransactionalState | Received)
    return TransactionalState(txn_id=state.txn_id, outcome=outcome)
