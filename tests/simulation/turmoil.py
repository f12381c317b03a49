"""Random commands against one queue over 16 fragments while its stores fail, hang and come back; drawn from a seed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random

from twinbus.broker.commands import Purge, ReceiveDeferred
from twinbus.broker.consumer import ReceiveMode, SessionLock, SessionRequest, TakenMessage
from twinbus.broker.outcomes import COMPLETE, RELEASE, Abandon, DeadLetter, Defer, Outcome, Release
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable, MessagingError, QuotaExceeded, StoreUnavailable
from twinbus.model.descriptions import QueueDescription
from twinbus.model.message import Message
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import FragmentKey, StoredMessage, fragment_parts
from twinbus.store.memory import MemoryStore
from twinbus.store.messaging_store import FragmentSummary, MessagingStore
from twinbus.store.reads import ACTIVE_ONLY
from twinbus.testing.auditor import Auditor
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, SimReceiver, Simulation

KEYS = [None, None, None, "a", "b", "c", "d"]
LOCK_DURATION = 5_000
ROW_GROWTH = 200
"""Bytes that settling may add to a message: why it was dead-lettered."""
OUTCOMES: list[Outcome] = [COMPLETE, COMPLETE, COMPLETE, Abandon(), RELEASE, Defer(), DeadLetter("why")]


class AuditedReceiver(SimReceiver):
    def __init__(self, turmoil: "Turmoil", credit: int, session: SessionLock | None) -> None:
        super().__init__(credit, ReceiveMode.PEEK_LOCK, session)
        self._turmoil = turmoil
        self.held: dict[bytes, TakenMessage] = {}

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        for delivery in deliveries:
            self._turmoil.delivered(self, delivery)


class SettleAudit:
    """Tells the auditor how settling went, and keeps who is excused from coming in order.

    While its settlement is under way nobody knows where a message is; if it fails nobody ever knows for sure; and
    one that was deferred or dead-lettered has left the queue.
    """

    def __init__(self, turmoil: "Turmoil", deliveries: Sequence[TakenMessage], outcome: Outcome) -> None:
        self._turmoil = turmoil
        self._messages = [delivery.message for delivery in deliveries]
        self._names = [message_id_of(message.content) for message in self._messages]
        self._outcome = outcome
        self._open = set(range(len(deliveries)))
        turmoil.excused.update(self._names)
        turmoil.settling.append(self)

    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        for index in indexes:
            self._open.remove(index)
            name, number = self._names[index], self._messages[index].sequence_number
            if self._outcome == COMPLETE:
                self._turmoil.auditor.completed(name, number)
            elif isinstance(self._outcome, Defer):
                self._turmoil.deferred.append(number)
            elif isinstance(self._outcome, Abandon | Release):
                self._turmoil.excused.discard(name)

    def failed(self, index: int, error: MessagingError, now: Millis) -> None:
        self._open.remove(index)
        if self._outcome == COMPLETE:
            self._turmoil.auditor.completion_failed(self._names[index])

    def crashed(self) -> None:
        for index in list(self._open):
            self.failed(index, StoreUnavailable("the process ended"), self._turmoil.sim.now)


class SendAudit:
    """Tells the auditor how sending messages together but independently went."""

    def __init__(self, turmoil: "Turmoil", messages: Sequence[Message]) -> None:
        self._turmoil = turmoil
        self._messages = messages

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        self._turmoil.accepted([self._messages[index] for index in indexes])

    def refused(self, index: int, error: MessagingError, now: Millis) -> None:
        self._turmoil.refused([self._messages[index]], error)


class Turmoil:
    def __init__(
        self,
        seed: int,
        description: QueueDescription,
        store_count: int = 16,
        body_bytes: int = 0,
        make_store: Callable[[], MessagingStore] = MemoryStore,
    ) -> None:
        self.random = Random(seed)
        self.sim = Simulation(store_count, seed=seed, make_store=make_store)
        self.queue = self.sim.queue(description)
        self.auditor = Auditor(
            detects_duplicates=description.requires_duplicate_detection,
            limits_copies=not description.requires_duplicate_detection,
        )
        self.full_count = 0
        self._body = bytes(body_bytes)
        self.receivers: list[AuditedReceiver] = []
        self.excused: set[str] = set()
        self.settling: list[SettleAudit] = []
        self.deferred: list[int] = []
        self._unanswered: dict[str, int] = {}  # with their sizes
        self._sent_count = 0
        self._commands: list[tuple[Callable[[], None], int]] = [
            (self.send, 30),
            (self.attach, 8),
            (self.detach, 4),
            (self.raise_credit, 20),
            (self.settle, 40),
            (self.renew, 3),
            (self.receive_deferred, 4),
            (self.step, 120),
            (self.turn, 40),
            (self.pass_time, 8),
            (self.fail_next, 3),
            (self.lose, 1),
            (self.hang, 1),
            (self.mend, 5),
            (self.crash, 1),
        ]

    def run(self, count: int) -> None:
        actions, weights = zip(*self._commands, strict=True)
        for action in self.random.choices(actions, weights, k=count):
            action()

    # Commands

    def send(self) -> None:
        key = self.random.choice(KEYS)
        is_session = self.queue.main.requires_session
        names = [self._next_name(key, is_session=is_session) for _ in range(self.random.randint(1, 4))]
        due_at = self.sim.now + self.random.randint(1, 4_000) if not is_session and self.random.random() < 0.1 else None
        messages = [
            make_message(
                name,
                session_id=self._in_some_case(key or "none") if is_session else None,
                partition_key=None if is_session else key,
                scheduled_at=due_at,
                body=self._body,
            )
            for name in names
        ]
        self._unanswered.update({message.message_id: len(message.content) for message in messages})
        if any(port.is_hung for port in self.sim.ports):
            self._in_doubt()

        if self.random.random() < 0.5:
            self.queue.send_each(messages, self.sim.now, SendAudit(self, messages))
            return

        def answered(answer: list[int] | MessagingError) -> None:
            if isinstance(answer, MessagingError):
                self.refused(messages, answer)
            else:
                self.accepted(messages)

        self.queue.send_batch(messages, self.sim.now, answered)

    def _in_some_case(self, session_id: str | None) -> str:
        """The id as another sender or receiver might write it: it is the same message session."""
        assert session_id is not None
        return self.random.choice((session_id, session_id.upper()))

    def accepted(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._unanswered.pop(message.message_id, None)
            self.auditor.accepted(message.message_id)

    def refused(self, messages: Sequence[Message], error: MessagingError) -> None:
        if isinstance(error, QuotaExceeded):
            self.full_count += 1
            names = [message.message_id for message in messages]
            self.auditor.refused_as_full(names, has_room=self._has_room(messages))
        for message in messages:
            self._unanswered.pop(message.message_id, None)
            self.auditor.refused(message.message_id)

    def _has_room(self, messages: Sequence[Message]) -> bool:
        """By what the stores hold, and as if everything that is under way went to the same fragment."""
        sizes: dict[int, int] = dict.fromkeys(range(len(self.queue.main.fragments)), 0)
        for row, fragment in self._rows():
            sizes[fragment_parts(fragment).index] += len(row.content) + ROW_GROWTH
        coming = sum(self._unanswered.values())  # with these messages
        return min(sizes.values()) + coming <= self.queue.settings.size_max_bytes

    def _in_doubt(self) -> None:
        """A store failed or is silent: what is under way may be there and go elsewhere too."""
        for name in self._unanswered:
            self.auditor.answer_lost(name)

    def attach(self) -> None:
        if len(self.receivers) > 6:
            self.receivers = [receiver for receiver in self.receivers if receiver.lost is None]
            return
        session, former = None, None
        if self.queue.main.requires_session:
            answer: Answer[SessionLock] = Answer()
            former, request = self._wanted_session()
            self.queue.main.accept_session(request, self.sim.now, self.sim.now, answer)
            if not answer.has_come or answer.error is not None:
                return
            session = answer.value
        receiver = AuditedReceiver(self, self.random.randint(0, 10), session)
        if former is not None:
            receiver.held, former.held = former.held, {}
        with suppress(FragmentUnavailable):
            self.queue.main.attach(receiver, self.sim.now)
            self.receivers.append(receiver)

    def _wanted_session(self) -> tuple["AuditedReceiver | None", SessionRequest]:
        """A session to accept, or one to take over and who has it."""
        held = [(each, each.session) for each in self.receivers if each.session is not None and each.session.is_held]
        shared = [(former, lock) for former, lock in held if lock.token is not None]
        if shared and self.random.random() < 0.4:
            former, lock = self.random.choice(shared)
            same = self._in_some_case(lock.session_id)
            return former, SessionRequest(same, is_exclusive=False, token=lock.token)
        name = self.random.choice([*map(self._in_some_case, KEYS[3:]), None])
        return None, SessionRequest(name, is_exclusive=self.random.random() < 0.5)

    def detach(self) -> None:
        if self.receivers:
            receiver = self.receivers.pop(self.random.randrange(len(self.receivers)))
            self.queue.main.detach(receiver, self.sim.now)

    def raise_credit(self) -> None:
        if self.receivers:
            receiver = self.random.choice(self.receivers)
            receiver.credit += self.random.randint(1, 10)
            self.queue.main.pump(self.sim.now, receiver)

    def settle(self) -> None:
        holders = [receiver for receiver in self.receivers if receiver.held]
        if not holders:
            return
        receiver = self.random.choice(holders)
        tokens = self.random.sample(list(receiver.held), self.random.randint(1, len(receiver.held)))
        deliveries = [receiver.held.pop(token) for token in tokens]
        outcome = self.random.choice(OUTCOMES)
        audit = SettleAudit(self, deliveries, outcome)
        self.queue.main.settle_each(tokens, outcome, self.sim.now, audit)

    def renew(self) -> None:
        receiver = self.random.choice(self.receivers) if self.receivers else None
        if receiver is not None and receiver.session is not None:
            self.queue.main.renew_session(receiver.session.session_id, self.sim.now, Answer[int]())
        elif receiver is not None:
            self.queue.main.renew(list(receiver.held), self.sim.now, Answer[list[int]]())

    def receive_deferred(self) -> None:
        receiver = self.random.choice(self.receivers) if self.receivers else None
        if receiver is None or receiver.session is not None or not self.deferred:
            return

        def answered(answer: list[TakenMessage] | MessagingError) -> None:
            if isinstance(answer, list):
                receiver.deliver(answer)

        number = self.random.choice(self.deferred)
        self.queue.main.ask(ReceiveDeferred([number], ReceiveMode.PEEK_LOCK), self.sim.now, answered)

    def step(self) -> None:
        busy = [port for port in self.sim.ports if len(port)]
        if busy:
            port = self.random.choice(busy)
            before, under_way = port.failure_count, list(self._unanswered)
            port.step(self.random.randint(1, 4))
            if port.failure_count > before:
                for name in under_way:
                    self.auditor.answer_lost(name)

    def turn(self) -> None:
        """What takes several steps takes the next one."""
        self.sim.turn()

    def pass_time(self) -> None:
        self.sim.clock.advance(self.random.choice([10, 100, 1_000, 2_000]))
        for broker in self.sim.brokers:
            broker.tick(self.sim.now)

    def fail_next(self) -> None:
        self.random.choice(self.sim.ports).next_fault = self.random.choice(list(Fault))

    def lose(self) -> None:
        self.sim.ports[self.random.randrange(len(self.sim.ports))].is_down = True

    def hang(self) -> None:
        self.random.choice(self.sim.ports).is_hung = True
        self._in_doubt()

    def mend(self) -> None:
        index = self.random.randrange(len(self.sim.ports))
        self.mend_one(index)

    def mend_one(self, index: int) -> None:
        port, broker = self.sim.ports[index], self.sim.brokers[index]
        port.is_hung = False
        if port.is_down and broker.is_available:
            self._in_doubt()
            broker.store_lost(StoreUnavailable("down"))  # it has to know before the store is opened anew
        if not broker.is_available:
            port.reopen()
            broker.store_returned()

    def crash(self) -> None:
        """The process ends with everything it had not written, and starts again on the same stores."""
        if self.random.random() > 0.3:
            return
        for audit in self.settling:
            audit.crashed()
        for name in self._unanswered:
            self.auditor.refused(name)
        self.settling, self._unanswered, self.receivers = [], {}, []
        self.sim.restart()
        self.queue = self.sim.entities.queue(self.queue.description.name)

    # Watching

    def delivered(self, receiver: AuditedReceiver, delivery: TakenMessage) -> None:
        name = message_id_of(delivery.message.content)
        self.auditor.delivered(name, delivery.message.sequence_number)
        if receiver.session is not None:
            held = {message_id_of(each.message.content) for each in receiver.held.values()}
            self.auditor.delivered_in_session(name, held | self.excused)
        receiver.held[delivery.lock_token] = delivery

    def _rows(self) -> Iterator[tuple[StoredMessage, FragmentKey]]:
        for port in self.sim.ports:
            for summary in port.store.summaries():
                for row in port.store.scan(summary.fragment, 0, 10_000, 2**40, list(MessageState)):
                    yield row, summary.fragment

    # The end

    def heal(self) -> None:
        for index, port in enumerate(self.sim.ports):
            port.next_fault = None
            self.mend_one(index)
        self.sim.run()
        for index in range(len(self.sim.ports)):
            self.mend_one(index)
        self.sim.run()
        assert not self.queue.main.counts().is_limited

    def check(self) -> None:
        """At rest: counts add up, and everything that is active can be received."""
        for receiver in self.receivers:
            self.queue.main.detach(receiver, self.sim.now)
        self.sim.run()
        self.auditor.check_rest(message_id_of(row.content) for row, _ in self._rows())
        self._check_counts()
        self.sim.advance(2 * LOCK_DURATION, 1_000)
        self._check_counts()
        left = self._drain()
        assert left == 0, f"{left} active messages cannot be received"

    def _check_counts(self) -> None:
        summaries: dict[int, FragmentSummary] = {}
        for port in self.sim.ports:
            summaries |= {summary.fragment: summary for summary in port.store.summaries()}
        for fragment in self.queue.fragments:
            summary = summaries[fragment.key]
            assert fragment.tally.active_count == summary.active_count
            assert fragment.tally.deferred_count == summary.deferred_count
            assert fragment.tally.scheduled_count == summary.scheduled_count
            assert fragment.tally.size_bytes == summary.size_bytes
            assert fragment.tally.last_number & (1 << 48) - 1 == summary.last_sequence_number & (1 << 48) - 1

    def _drain(self) -> int:
        while self.queue.main.counts().active:
            session = self.sim.accept(self.queue.main).value if self.queue.main.requires_session else None
            receiver = self.sim.receiver(self.queue.main, 10_000, session=session)
            deliveries = receiver.take()
            if not deliveries:
                return self.queue.main.counts().active
            self.sim.settle(self.queue.main, deliveries)
            self.queue.main.detach(receiver, self.sim.now)
        return 0

    def _next_name(self, key: str | None, *, is_session: bool) -> str:
        self._sent_count += 1
        name = f"m{self._sent_count}"
        session_id = (key or "none") if is_session else None
        self.auditor.sent(name, session_id, is_pinned=is_session or key is not None)
        return name


class DeletingTurmoil(Turmoil):
    """Somebody deletes messages of one message session, who may or may not hold it."""

    def __init__(self, seed: int, description: QueueDescription, store_count: int = 16) -> None:
        super().__init__(seed, description, store_count)
        self.deleted_count = 0
        self._commands.append((self.delete_in_session, 12))

    def delete_in_session(self) -> None:
        holder = self.random.choice(self.receivers) if self.receivers else None
        if holder is not None and holder.session is not None and holder.session.is_held and self.random.random() < 0.7:
            session_id, is_by_holder = holder.session.session_id, True
        else:
            session_id, is_by_holder = self.random.choice((*KEYS[3:], "none")) or "none", False
        self.auditor.deletes_in_session(session_id.lower())

        def answered(answer: list[int] | MessagingError) -> None:
            if isinstance(answer, list):
                self.deleted_count += len(answer)

        # Whatever is sent from now on stays.
        command = Purge(self.random.randint(1, 8), self.sim.now - 1, ACTIVE_ONLY, session_id, is_by_holder)
        self.queue.main.ask(command, self.sim.now, answered)
