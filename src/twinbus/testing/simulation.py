"""A whole namespace below the gateway in one thread: stores, brokers and entities under a clock that a test moves.

Nothing happens by itself. `run` lets every store finish what waits, `advance` moves the clock and ticks the brokers;
a test that wants an interleaving steps the ports by hand.
"""

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import ClassVar, Generic, TypeVar

from twinbus.broker.commands import Command
from twinbus.broker.consumer import ReceiveMode, SessionLock, SessionRequest, TakenMessage
from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.outcomes import COMPLETE, Outcome
from twinbus.broker.replies import Reply
from twinbus.broker.target import WayIn
from twinbus.broker.transaction import OwnTransaction, Transaction
from twinbus.broker.wakeups import LongWork
from twinbus.broker.wide_lanes import WideLanes
from twinbus.clock import Millis
from twinbus.errors import MessagingError, StoreUnavailable
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message
from twinbus.store.memory import MemoryStore
from twinbus.store.messaging_store import MessagingStore
from twinbus.testing.messages import message_id_of
from twinbus.testing.sim_clock import SimClock
from twinbus.testing.stepped_port import SteppedPort

T = TypeVar("T")

DEFAULT_RULES = (RuleDescription("$Default"),)


before_looking: list[Callable[[], object]] = []
"""Called before a test looks at what came: for simulations in which it may be on its way between nodes."""


def look() -> None:
    for call in before_looking:
        call()


class Answer(Generic[T]):
    """The one answer to a request, once it has come."""

    def __init__(self) -> None:
        self._values: list[T | MessagingError] = []

    def __call__(self, value: T | MessagingError) -> None:
        assert not self._values, "answered twice"
        self._values.append(value)

    @property
    def has_come(self) -> bool:
        look()
        return bool(self._values)

    @property
    def value(self) -> T:
        """What came; raises it if it is an error."""
        look()
        assert self._values, "no answer has come"
        value = self._values[0]
        if isinstance(value, MessagingError):
            raise value
        return value

    @property
    def error(self) -> MessagingError | None:
        look()
        return value if self._values and isinstance(value := self._values[0], MessagingError) else None


class EachReply:
    """Answers by index to messages sent or settled together."""

    def __init__(self) -> None:
        self._good: set[int] = set()
        self._errors: dict[int, MessagingError] = {}

    @property
    def good(self) -> set[int]:
        look()
        return self._good

    @property
    def errors(self) -> dict[int, MessagingError]:
        look()
        return self._errors

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        self.settled(indexes, now)

    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        for index in indexes:
            self._check_open(index)
            self._good.add(index)

    def refused(self, index: int, error: MessagingError, now: Millis) -> None:
        self._check_open(index)
        self._errors[index] = error

    failed = refused

    def _check_open(self, index: int) -> None:
        assert index not in self._good, "answered twice"
        assert index not in self._errors, "answered twice"


class SimReceiver:
    """Keeps what it is handed."""

    def __init__(
        self, credit: int, mode: ReceiveMode = ReceiveMode.PEEK_LOCK, session: SessionLock | None = None
    ) -> None:
        self.credit = credit
        self.mode = mode
        self.session = session
        self._deliveries: list[TakenMessage] = []
        self._lost: MessagingError | None = None

    @property
    def deliveries(self) -> list[TakenMessage]:
        look()
        return self._deliveries

    @property
    def lost(self) -> MessagingError | None:
        look()
        return self._lost

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        self._deliveries += deliveries

    def credit_returned(self, now: Millis) -> None:
        """It may be given elsewhere."""

    def session_lost(self, error: MessagingError) -> None:
        self._lost = error

    def take(self) -> list[TakenMessage]:
        """What came since the last time."""
        look()
        taken, self._deliveries = self._deliveries, []
        return taken

    def ids(self) -> list[str]:
        """Message ids of what came since the last time."""
        return [message_id_of(delivery.message.content) for delivery in self.take()]


class SimTransaction:
    """Operations are answered at once: they raise what is wrong with them. See `twinbus.broker.transaction.Transaction`."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.cancel_scheduled = transaction.cancel_scheduled
        self.rollback = transaction.rollback
        self.doom = transaction.doom

    @property
    def size_bytes(self) -> int:
        return self._transaction.size_bytes

    def commit(self, now: Millis, reply: Reply[None]) -> None:
        self._transaction.commit(now, reply)
        look()

    def send(
        self, target: WayIn, messages: Sequence[Message], now: Millis, home: QueueEntity | TopicEntity | None = None
    ) -> int:
        answer: Answer[int] = Answer()
        self._transaction.send(target, messages, now, answer, home)
        return answer.value

    def settle(
        self,
        queue: MessageQueue,
        tokens: Sequence[bytes],
        outcome: Outcome,
        now: Millis,
        home: QueueEntity | TopicEntity | None = None,
        session: SessionLock | None = None,
    ) -> None:
        answer: Answer[None] = Answer()
        self._transaction.settle(queue, tokens, outcome, now, answer, home, session)
        return answer.value

    def set_session_state(
        self,
        queue: MessageQueue,
        session_id: str,
        state: bytes | None,
        now: Millis,
        home: QueueEntity | TopicEntity | None = None,
    ) -> None:
        answer: Answer[None] = Answer()
        self._transaction.set_session_state(queue, session_id, state, now, answer, home)
        return answer.value


class Simulation:
    node_count: ClassVar[int] = 1
    """With more, each `Simulation` is a `twinbus.testing.cluster_simulation.ClusterSimulation` of that many nodes."""

    def __new__(cls, *arguments: object, **named: object) -> "Simulation":
        if cls is Simulation and Simulation.node_count > 1:
            from twinbus.testing.cluster_simulation import ClusterSimulation

            return super().__new__(ClusterSimulation)
        return super().__new__(cls)

    def __init__(
        self, store_count: int = 1, *, seed: int = 0, make_store: Callable[[], MessagingStore] = MemoryStore
    ) -> None:
        self.clock = SimClock()
        self.ports = [self._port(make_store()) for _ in range(store_count)]
        self._seed = seed
        self._last_id = 0
        self._start(None)

    def _start(self, former: Entities | None) -> None:
        self.later: deque[Callable[[], None]] = deque()
        long_work, wide_lanes = LongWork(self.later.append, self.clock), WideLanes()
        self.brokers = [
            MessageBroker(index, port, self.clock, Random(self._seed + index), long_work, wide_lanes)
            for index, port in enumerate(self.ports)
        ]
        self.entities = Entities(self.brokers)
        if former is not None:
            self._restore(former)
        for broker in self.brokers:
            broker.start()
        self.run()

    def _port(self, store: MessagingStore) -> SteppedPort:
        return SteppedPort(store)

    def _restore(self, former: Entities) -> None:
        for queue in former.queues():
            self.entities.restore_queue(queue.id, queue.description, self.now, queue.first_store)
        for topic in former.topics():
            self.entities.restore_topic(topic.id, topic.description, self.now, topic.first_store)
            for each in topic.subscriptions.values():
                self.entities.restore_subscription(each.id, each.description, list(each.rules.values()), self.now)

    @property
    def now(self) -> Millis:
        return self.clock.now()

    def run(self) -> None:
        """Let every store finish, and all long work."""
        while any(port.run() for port in self.ports) or self.later:
            self.turn()

    def turn(self) -> None:
        """One turn of the loop: the next step of long work, and nothing of the stores."""
        for _ in range(len(self.later)):
            self.later.popleft()()

    def advance(self, by: Millis, step: Millis | None = None) -> None:
        """Move the clock, ticking as the shell does: before, at the end of every step, and until nothing more is due."""
        end = self.clock.now() + by
        for broker in self.brokers:
            broker.tick(self.clock.now())
        while self.clock.now() < end:
            self.clock.advance(min(step or by, end - self.clock.now()))
            self.tick()

    def tick(self) -> None:
        for _ in range(3):
            for broker in self.brokers:
                broker.tick(self.clock.now())
            self.run()

    def set_clock(self, by: Millis) -> None:
        """The clock of the machine is set, and everybody is told, as the beat of a server does it."""
        self.clock.set(by)
        for broker in self.brokers:
            broker.clock_stepped(by)
        self.entities.clock_stepped(by)

    def restart(self) -> None:
        """End the process and start it again on the same stores, with the entities there were."""
        self._seed += 1_000
        former = self.entities
        for index, port in enumerate(self.ports):
            self.ports[index] = self._port(port.store)
        self._start(former)

    def lose_store(self, index: int) -> None:
        self.ports[index].is_down = True
        self.brokers[index].store_lost(StoreUnavailable("switched off"))
        self.run()

    def return_store(self, index: int) -> None:
        self.ports[index].reopen()
        self.brokers[index].store_returned()
        self.run()

    # Entities

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def queue(self, description: QueueDescription) -> QueueEntity:
        answer: Answer[QueueEntity] = Answer()
        self.entities.create_queue(self.next_id(), description, self.now, answer)
        self.run()
        return answer.value

    def topic(self, description: TopicDescription) -> TopicEntity:
        answer: Answer[TopicEntity] = Answer()
        self.entities.create_topic(self.next_id(), description, self.now, answer)
        self.run()
        return answer.value

    def subscription(
        self, description: SubscriptionDescription, rules: Sequence[RuleDescription] = DEFAULT_RULES
    ) -> SubscriptionEntity:
        answer: Answer[SubscriptionEntity] = Answer()
        self.entities.create_subscription(self.next_id(), description, rules, self.now, answer)
        self.run()
        return answer.value

    def transaction(self) -> SimTransaction:
        return SimTransaction(OwnTransaction())

    # Requests, each run to its end

    def send(self, entity: QueueEntity | TopicEntity, *messages: Message) -> EachReply:
        reply = EachReply()
        entity.send_each(list(messages), self.now, reply)
        self.run()
        return reply

    def receiver(
        self,
        queue: MessageQueue,
        credit: int,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        session: SessionLock | None = None,
    ) -> SimReceiver:
        receiver = SimReceiver(credit, mode, session)
        queue.attach(receiver, self.now)
        self.run()
        return receiver

    def settle(self, queue: MessageQueue, deliveries: Sequence[TakenMessage], outcome: Outcome = COMPLETE) -> EachReply:
        reply = EachReply()
        queue.settle_each([delivery.lock_token for delivery in deliveries], outcome, self.now, reply)
        self.run()
        return reply

    def ask(self, queue: MessageQueue, command: Command[T]) -> Answer[T]:
        answer: Answer[T] = Answer()
        queue.ask(command, self.now, answer)
        self.run()
        return answer

    def accept(
        self,
        queue: MessageQueue,
        session_id: str | None = None,
        wait: Millis = 0,
        *,
        is_exclusive: bool = True,
        token: bytes | None = None,
    ) -> Answer[SessionLock]:
        answer: Answer[SessionLock] = Answer()
        queue.accept_session(SessionRequest(session_id, is_exclusive, token), self.now + wait, self.now, answer)
        self.run()
        return answer
