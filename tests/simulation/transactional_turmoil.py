"""Turmoil in which some messages are sent and settled in transactions: an auditor of all or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from tests.simulation.turmoil import KEYS, OUTCOMES, AuditedReceiver, Turmoil
from twinbus.broker.consumer import TakenMessage
from twinbus.broker.entity.transfers import Transfers
from twinbus.broker.fragment_transaction import FragmentTransaction
from twinbus.broker.outcomes import COMPLETE, Defer, Outcome
from twinbus.errors import MessagingError
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import read_content
from twinbus.store.changes import FragmentKey, StoredMessage, SubQueue, fragment_parts
from twinbus.testing.messages import make_message, message_id_of

T = TypeVar("T")

TRANSACTIONAL_KEYS = [key for key in KEYS if key is not None]


@dataclass(slots=True, eq=False)
class Attempt:
    """One transaction: what it sends and settles, and what became of it."""

    key: str
    transaction: FragmentTransaction = field(default_factory=FragmentTransaction)
    names: list[str] = field(default_factory=list)  # of what it sends to the queue itself
    transferred: list[str] = field(default_factory=list)  # to other entities
    settled: list[tuple[StoredMessage, Outcome]] = field(default_factory=list)
    is_answered: bool = False
    error: MessagingError | None = None

    @property
    def completed_numbers(self) -> set[int]:
        return {message.sequence_number for message, outcome in self.settled if outcome == COMPLETE}


class TransactionalTurmoil(Turmoil):
    outcomes: ClassVar[list[Outcome]] = OUTCOMES

    def __init__(self, seed: int, description: QueueDescription, store_count: int = 16) -> None:
        super().__init__(seed, description, store_count)
        self._open: list[Attempt] = []
        self._committing: list[Attempt] = []
        self._seen: set[str] = set()
        self._name_count = 0
        self.commit_count = 0
        self._commands += [
            (self.begin, 15),
            (self.enlist, 40),
            (self.discharge, 15),
            (self.fail_next, 6),
            (self.mend, 15),
            (self.crash, 4),
        ]

    @property
    def home(self) -> Transfers | None:
        """Of its transactions, if they have one."""
        return None

    # Commands

    def begin(self) -> None:
        if len(self._open) < 4:
            self._open.append(Attempt(self.random.choice(TRANSACTIONAL_KEYS)))

    def enlist(self) -> None:
        """Send in a transaction, or settle something that somebody holds."""
        attempt = self._draw(self._open)
        if attempt is None:
            return
        try:
            if self.random.random() < 0.5:
                self._send_in(attempt)
            else:
                self._settle_in(attempt)
        except MessagingError:
            pass  # refused, and so no part of it

    def discharge(self) -> None:
        attempt = self._draw(self._open)
        if attempt is None:
            return
        self._open.remove(attempt)
        if self.random.random() < 0.3:
            attempt.transaction.rollback()
            return

        def answered(error: MessagingError | None) -> None:
            attempt.is_answered, attempt.error = True, error
            if attempt in self._committing:
                self._record(attempt)

        attempt.transaction.commit(self.sim.now, answered)
        if attempt.error is not None:
            return  # refused at once: nothing of it may ever be seen
        # Its place in the order of a session is that of the commit.
        session_id = attempt.key if self.queue.main.requires_session else None
        for name in attempt.names:
            self.auditor.sent(name, session_id, is_pinned=True)
        for name in attempt.transferred:
            self.auditor.sent(name, None, is_pinned=False)  # a transfer happens at least once
        self.auditor.committed_together([*attempt.names, *attempt.transferred], attempt.completed_numbers)
        self._committing.append(attempt)
        if attempt.is_answered:
            self._record(attempt)

    def crash(self) -> None:
        before = self.sim.brokers[0]
        super().crash()
        if self.sim.brokers[0] is not before:
            self._open = []
            for attempt in self._committing:
                if not attempt.is_answered:
                    self._forget(attempt)

    # Watching

    def delivered(self, receiver: AuditedReceiver, delivery: TakenMessage) -> None:
        self._seen.add(message_id_of(delivery.message.content))
        super().delivered(receiver, delivery)

    def check(self) -> None:
        rows = list(self._rows())
        super().check()
        self._check_all_or_nothing(rows)

    def _check_all_or_nothing(self, rows: Sequence[tuple[StoredMessage, FragmentKey]]) -> None:
        seen = self._seen | {message_id_of(row.content) for row, _ in rows}
        main = {fragment.key for fragment in self.queue.main.fragments}
        self.auditor.check_together(seen, {row.sequence_number for row, key in rows if key in main})

    def _new_names(self) -> list[str]:
        first = self._name_count + 1
        self._name_count += self.random.randint(1, 3)
        return [f"t{number}" for number in range(first, self._name_count + 1)]

    def _send_in(self, attempt: Attempt) -> None:
        is_session = self.queue.main.requires_session
        names = self._new_names()
        messages = [
            make_message(
                name,
                session_id=attempt.key if is_session else None,
                partition_key=None if is_session else attempt.key,
            )
            for name in names
        ]
        attempt.transaction.send(self.queue.placement, messages, self.sim.now, self.home)
        attempt.names += names

    def _settle_in(self, attempt: Attempt) -> None:
        holder = self._draw([receiver for receiver in self.receivers if receiver.held])
        if holder is None:
            return
        token, delivery = self.random.choice(list(holder.held.items()))
        message = read_content(delivery.message.content)
        if self.queue.main.settings.is_partitioned and attempt.key not in (message.session_id, message.partition_key):
            return
        outcome = self.random.choice(self.outcomes)
        attempt.transaction.settle(self.queue.main, [token], outcome, self.sim.now, self.home)
        del holder.held[token]
        self.excused.add(message.message_id)
        attempt.settled.append((delivery.message, outcome))

    def _record(self, attempt: Attempt) -> None:
        if attempt.error is not None:
            self._forget(attempt)
            return
        self.commit_count += 1
        for name in (*attempt.names, *attempt.transferred):
            self.auditor.accepted(name)
        for message, outcome in attempt.settled:
            if outcome == COMPLETE:
                self.auditor.completed(message_id_of(message.content), message.sequence_number)
            elif isinstance(outcome, Defer):
                self.deferred.append(message.sequence_number)

    def _forget(self, attempt: Attempt) -> None:
        """Nobody knows whether it was committed."""
        for name in (*attempt.names, *attempt.transferred):
            self.auditor.refused(name)
        for message, outcome in attempt.settled:
            if outcome == COMPLETE:
                self.auditor.completion_failed(message_id_of(message.content))

    def _draw(self, options: Sequence[T]) -> T | None:
        return self.random.choice(options) if options else None


class CrossEntityTurmoil(TransactionalTurmoil):
    """The queue is the home of its transactions, which also send to another queue and to a topic."""

    outcomes: ClassVar[list[Outcome]] = [COMPLETE]

    def __init__(self, seed: int, description: QueueDescription, store_count: int = 16) -> None:
        super().__init__(seed, description, store_count)
        self.auditor.limits_copies = False  # a transfer happens at least once
        self.sim.queue(QueueDescription("other", enable_partitioning=description.enable_partitioning))
        self.sim.topic(TopicDescription("news"))
        self.sim.subscription(SubscriptionDescription("news", "reader"))
        # Most transactions both settle and send, and many meet a fault.
        self._commands += [(self.enlist, 80), (self.discharge, 20), (self.raise_credit, 40), (self.mend, 25)]

    @property
    def home(self) -> Transfers | None:
        return self.queue.transfers

    def _send_in(self, attempt: Attempt) -> None:
        if self.random.random() < 0.3:
            super()._send_in(attempt)
            return
        names = self._new_names()
        messages = [make_message(name, partition_key=name, via_partition_key=attempt.key) for name in names]
        target = self.sim.entities.find(self.random.choice(("other", "news")))
        assert target is not None
        attempt.transaction.send(target.placement, messages, self.sim.now, self.home)
        attempt.transferred += names

    def heal(self) -> None:
        super().heal()
        self.sim.advance(5_000, 500)  # until transfers that failed have been tried again

    def check(self) -> None:
        waiting = [row for row, key in self._rows() if fragment_parts(key).sub_queue is SubQueue.TRANSFER]
        assert not waiting, f"{len(waiting)} messages were not transferred"
        super().check()
