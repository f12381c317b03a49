"""Random commands against several entities that hang together, while their stores fail and come back; from a seed.

Messages go in at *mouths* and come out at *outlets*, which are queues and subscriptions. A mouth knows which outlets
a message has to reach; every outlet has an auditor of its own, so what was sent elsewhere "was never sent" there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random

from tests.simulation.outlets import Mouth, Outlet, OutletReceiver, OutletSettling
from twinbus.broker.commands import Claim, Undefer, UndeferAll, ranges_of
from twinbus.broker.consumer import ReceiveMode, SessionLock, SessionRequest
from twinbus.broker.entity.sub_queues import SubQueues
from twinbus.broker.operations.bulk import Numbers
from twinbus.broker.outcomes import COMPLETE, RELEASE, Abandon, DeadLetter, Outcome
from twinbus.clock import NEVER, Millis
from twinbus.errors import FragmentUnavailable, MessagingError, StoreUnavailable
from twinbus.model.message import Message
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import fragment_parts
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, Simulation

LOCK_DURATION: Millis = 5_000
KEYS = (None, None, "a", "b", "c")
COLORS = ("red", "green")
OWNERS = (None, "query", "spark-00000000000000ff")
OUTCOMES: tuple[Outcome, ...] = (
    COMPLETE,
    COMPLETE,
    COMPLETE,
    Abandon(),
    Abandon(delay=700),
    RELEASE,
    DeadLetter("why"),
)


class Landscape:
    def __init__(
        self,
        seed: int,
        build: Callable[[Simulation], None],
        mouths: Sequence[Mouth],
        outlets: Sequence[Outlet],
        faults: Sequence[Fault] = tuple(Fault),
    ) -> None:
        self.random = Random(seed)
        self.sim = Simulation(16, seed=seed)
        build(self.sim)
        self.mouths = mouths
        self.outlets = outlets
        self._faults = faults
        self._sent: list[tuple[Mouth, Message, str]] = []
        self._unanswered: dict[str, Sequence[Outlet]] = {}
        self._claimed: list[tuple[Outlet, Numbers]] = []
        self._commands: list[tuple[Callable[[], None], int]] = [
            (self.send, 30),
            (self.send_again, 8),
            (self.attach, 10),
            (self.detach, 4),
            (self.raise_credit, 20),
            (self.settle, 40),
            (self.claim, 3),
            (self.end_claim, 3),
            (self.step, 120),
            (self.turn, 40),
            (self.pass_time, 10),
            (self.fail_next, 3),
            (self.lose, 1),
            (self.mend, 6),
            (self.crash, 1),
        ]
        if Fault.LOSE_REPLY in faults:
            self._commands.append((self.hang, 1))

    def run(self, count: int) -> None:
        actions, weights = zip(*self._commands, strict=True)
        for action in self.random.choices(actions, weights, k=count):
            action()

    def entity(self, outlet: Outlet) -> SubQueues:
        topic, _, subscription = outlet.path.partition("/")
        entities = self.sim.entities
        return entities.subscription(topic, subscription) if subscription else entities.queue(topic)

    # Commands

    def send(self) -> None:
        mouth, now = self.random.choice(self.mouths), self.sim.now
        key, color = self.random.choice(KEYS), self.random.choice(COLORS)
        due_at = now + self.random.randint(1, 4_000) if mouth.is_scheduling and self.random.random() < 0.3 else None
        mortal = mouth.time_to_live is not None and due_at is None and self.random.random() < 0.5
        time_to_live = mouth.time_to_live if mortal else None
        name = f"m{len(self._sent)}"
        message = make_message(
            name,
            session_id=key if mouth.has_sessions else None,
            partition_key=None if mouth.has_sessions else key,
            scheduled_at=due_at,
            time_to_live=time_to_live,
            application_properties={"color": color},
        )
        self._sent.append((mouth, message, color))
        for outlet in self._reached(mouth, color):
            outlet.auditor.sent(
                name,
                # A message for later takes its place in the session only then.
                message.session_id if due_at is None else None,
                is_pinned=key is not None and not outlet.path.startswith("end"),
                due_at=due_at or 0,
                time_to_live=NEVER if time_to_live is None else time_to_live,
                now=now,
            )
        self._put(mouth, message, color, is_again=False)

    def send_again(self) -> None:
        """As a sender does that had no answer, or not the one it wanted."""
        mouth, message, color = self.random.choice(self._sent) if self._sent else (None, None, "")
        if mouth is not None and message is not None and mouth.is_unique:
            self._put(mouth, message, color, is_again=True)

    def _put(self, mouth: Mouth, message: Message, color: str, *, is_again: bool) -> None:
        entity = self.sim.entities.find(mouth.path)
        assert entity is not None
        name, outlets = message.message_id, self._reached(mouth, color)
        if not is_again:
            self._unanswered[name] = outlets

        def answered(answer: list[int] | MessagingError) -> None:
            if not is_again:
                self._unanswered.pop(name, None)
            for outlet in outlets:
                if isinstance(answer, MessagingError):
                    outlet.auditor.refused(name)
                elif is_again:
                    outlet.auditor.accepted_again(name)
                else:
                    outlet.auditor.accepted(name, self.sim.now)

        entity.send_batch([message], self.sim.now, answered)

    def _reached(self, mouth: Mouth, color: str) -> list[Outlet]:
        wanted = mouth.outlets(color)
        return [outlet for outlet in self.outlets if outlet.path in wanted]

    def attach(self) -> None:
        outlet = self.random.choice(self.outlets)
        queue = self.entity(outlet).main
        if len(outlet.receivers) > 4:
            outlet.receivers = [receiver for receiver in outlet.receivers if receiver.lost is None]
            return
        session = None
        if queue.requires_session:
            answer: Answer[SessionLock] = Answer()
            queue.accept_session(
                SessionRequest(self.random.choice([*KEYS[2:], None])), self.sim.now, self.sim.now, answer
            )
            if not answer.has_come or answer.error is not None:
                return
            session = answer.value
        receiver = OutletReceiver(outlet, self.sim, self.random.randint(0, 10), session)
        with suppress(FragmentUnavailable):
            queue.attach(receiver, self.sim.now)
            outlet.receivers.append(receiver)

    def detach(self) -> None:
        outlet = self.random.choice(self.outlets)
        if outlet.receivers:
            receiver = outlet.receivers.pop(self.random.randrange(len(outlet.receivers)))
            self.entity(outlet).main.detach(receiver, self.sim.now)

    def raise_credit(self) -> None:
        outlet = self.random.choice(self.outlets)
        if outlet.receivers:
            receiver = self.random.choice(outlet.receivers)
            receiver.credit += self.random.randint(1, 10)
            self.entity(outlet).main.pump(self.sim.now, receiver)

    def settle(self) -> None:
        outlet = self.random.choice(self.outlets)
        holders = [receiver for receiver in outlet.receivers if receiver.held]
        if not holders:
            return
        receiver = self.random.choice(holders)
        tokens = self.random.sample(list(receiver.held), self.random.randint(1, len(receiver.held)))
        deliveries = [receiver.held.pop(token) for token in tokens]
        outcome = self.random.choice(OUTCOMES)
        settling = OutletSettling(outlet, deliveries, outcome)
        self.entity(outlet).main.settle_each(tokens, outcome, self.sim.now, settling)

    def claim(self) -> None:
        outlet = self.random.choice(self.outlets)
        if not outlet.is_claimed_from:
            return

        def claimed(numbers: Numbers | MessagingError) -> None:
            if isinstance(numbers, list) and numbers:
                self._claimed.append((outlet, numbers))

        self.entity(outlet).main.ask(
            Claim(self.random.randint(1, 20), self.random.choice(OWNERS)), self.sim.now, claimed
        )

    def end_claim(self) -> None:
        """Claims are given back, all of one or a part of it, or everything that is deferred."""
        outlet = self.random.choice(self.outlets)
        queue, now, ignored = self.entity(outlet).main, self.sim.now, Answer[Numbers]()
        if outlet.is_claimed_from and self.random.random() < 0.3:
            queue.ask(UndeferAll(100), now, ignored)
        elif self._claimed:
            outlet, numbers = self._claimed.pop()
            self.entity(outlet).main.ask(Undefer(ranges_of(numbers[:10])), now, ignored)

    def step(self) -> None:
        busy = [port for port in self.sim.ports if len(port)]
        if busy:
            self.random.choice(busy).step(self.random.randint(1, 4))

    def turn(self) -> None:
        """What takes several steps takes the next one."""
        self.sim.turn()

    def pass_time(self) -> None:
        self.sim.clock.advance(self.random.choice([10, 100, 1_000, 2_000]))
        for broker in self.sim.brokers:
            broker.tick(self.sim.now)

    def fail_next(self) -> None:
        self.random.choice(self.sim.ports).next_fault = self.random.choice(self._faults)

    def lose(self) -> None:
        self.random.choice(self.sim.ports).is_down = True

    def hang(self) -> None:
        self.random.choice(self.sim.ports).is_hung = True

    def mend(self) -> None:
        self._mend(self.random.randrange(len(self.sim.ports)))

    def _mend(self, index: int) -> None:
        port, broker = self.sim.ports[index], self.sim.brokers[index]
        port.is_hung = False
        if port.is_down and broker.is_available:
            broker.store_lost(StoreUnavailable("down"))  # it has to know before the store is opened anew
        if not broker.is_available:
            port.reopen()
            broker.store_returned()

    def crash(self) -> None:
        if self.random.random() > 0.3:
            return
        for outlet in self.outlets:
            for settling in outlet.settling:
                settling.crashed()
            outlet.settling, outlet.receivers = [], []
        for name, outlets in self._unanswered.items():
            for outlet in outlets:
                outlet.auditor.refused(name)
        self._unanswered = {}
        self.sim.restart()

    # The end

    def heal(self) -> None:
        """Everything works again, nobody receives, and time passes until nothing more happens by itself."""
        for _ in range(2):
            for index, port in enumerate(self.sim.ports):
                port.next_fault = None
                self._mend(index)
            self.sim.run()
        for outlet in self.outlets:
            for receiver in outlet.receivers:
                self.entity(outlet).main.detach(receiver, self.sim.now)
            outlet.receivers = []
        self.sim.run()
        self.sim.advance(3 * LOCK_DURATION, 1_000)

    def check(self) -> None:
        for outlet in self.outlets:
            outlet.auditor.check_rest(self.names_in(self.entity(outlet).id), self.sim.now)
        self.check_counts()
        for outlet in self.outlets:
            self._drain(outlet)

    def names_in(self, entity_id: int) -> Iterator[str]:
        """Ids of all messages of an entity, its dead letters too."""
        for port in self.sim.ports:
            for summary in port.store.summaries():
                if fragment_parts(summary.fragment).entity_id == entity_id:
                    for row in port.store.scan(summary.fragment, 0, 10_000, 2**40, list(MessageState)):
                        yield message_id_of(row.content)

    def check_counts(self) -> None:
        summaries = {each.fragment: each for port in self.sim.ports for each in port.store.summaries()}
        entities = self.sim.entities
        fragments = [part for queue in entities.queues() for part in queue.fragments]
        for topic in entities.topics():
            fragments += topic.fragments
            fragments += [part for each in topic.subscriptions.values() for part in each.fragments]
        for fragment in fragments:
            summary = summaries[fragment.key]
            memory = (
                fragment.tally.active_count,
                fragment.tally.deferred_count,
                fragment.tally.scheduled_count,
                fragment.tally.size_bytes,
            )
            store = summary.active_count, summary.deferred_count, summary.scheduled_count, summary.size_bytes
            assert memory == store

    def _drain(self, outlet: Outlet) -> None:
        """Whatever is active can be received, to the last message."""
        queue = self.entity(outlet).main
        while queue.counts().active:
            session = self.sim.accept(queue).value if queue.requires_session else None
            receiver = OutletReceiver(outlet, self.sim, 10_000, session)
            queue.attach(receiver, self.sim.now)
            self.sim.run()
            if outlet.mode is ReceiveMode.PEEK_LOCK:
                assert receiver.held, f"{queue.counts().active} active messages cannot be received"
                assert not self.sim.settle(queue, list(receiver.held.values())).errors
            queue.detach(receiver, self.sim.now)
