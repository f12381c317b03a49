"""How operations of several steps are run: generators that yield what is to be done and are resumed with the answer."""

import inspect
import pickle
from typing import Any

import pytest

from twinbus.broker import commands
from twinbus.broker.commands import Claim, Command, CountShares, ListFragments, Peek, PeekMerged, PeekRange, Purge
from twinbus.broker.consumer import ReceiveMode
from twinbus.broker.entity.message_queue import OPERATIONS
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.operations import peek
from twinbus.broker.operations.steps import ReadOne, Steps, read_each, read_one, run
from twinbus.errors import FragmentUnavailable, MessagingError, NotAllowed, StoreUnavailable
from twinbus.model.descriptions import QueueDescription, SqlAction, SqlFilter
from twinbus.model.wire_names import MessageState
from twinbus.store.reads import Rows, Scan
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, Simulation

COMMANDS = [each for _, each in inspect.getmembers(commands, inspect.isclass) if issubclass(each, Command)]
EXAMPLES: list[Command[Any]] = [
    commands.Peek(1, 2, "session"),
    commands.PeekMerged({0: 3}, 2),
    commands.PeekRange(1, 2, 3),
    commands.PeekPacked(1, 2, 3),
    commands.ReceiveDeferred([1, 2], ReceiveMode.PEEK_LOCK, "session"),
    commands.CancelScheduled([1, 2]),
    commands.Purge(1, 2),
    commands.Claim(1, "owner", 2, 3),
    commands.DeleteDeferred([(1, 2)]),
    commands.Undefer([(1, 2)]),
    commands.UndeferAll(1),
    commands.Repair(1, 9, filter=SqlFilter("a = 1"), action=SqlAction("SET b = 2")),
    commands.PreviewRepair(commands.Repair(1, 9, removes=True), 10),
    commands.GetSessionState("session"),
    commands.SetSessionState("session", b"state"),
    commands.ListSessions(None, 0, 1),
    commands.CountSessions(0, 10),
    commands.ListFragments(),
    commands.FindTimes([1, 2]),
    commands.CountShares(0, 1),
]

pytestmark = pytest.mark.one_node("operations are what a node does with its own fragments")


@pytest.fixture
def sim() -> Simulation:
    return Simulation(4)


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(32):
        sim.send(queue, make_message(str(number)))
    return queue


def first_ids(queue: QueueEntity) -> Steps[list[str]]:
    """Of every fragment, one after the other."""
    found = []
    for fragment in queue.main.fragments:
        rows = yield from read_one(fragment, Scan(fragment.key, 0, 1, 1))
        found += [message_id_of(row.content) for row in rows]
    return found


def test_every_command_has_an_operation() -> None:
    assert set(OPERATIONS) == set(COMMANDS) - {Command}
    assert [type(example) for example in EXAMPLES] == list(OPERATIONS)


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: type(command).__name__)
def test_a_command_is_a_value_that_can_travel(command: Command[Any]) -> None:
    assert pickle.loads(pickle.dumps(command)) == command


def test_whatever_is_asked_of_a_queue_counts_as_its_use(sim: Simulation, queue: QueueEntity) -> None:
    for command in EXAMPLES:
        sim.clock.advance(1_000)
        assert queue.settings.last_used_at < sim.now
        queue.main.ask(command, sim.now, Answer())
        assert queue.settings.last_used_at == sim.now
    queue.main.counts()
    sim.clock.advance(1_000)
    assert queue.is_idle(sim.now, 1_000)


def test_an_operation_decides_with_what_it_is_sent() -> None:
    """Goal: it needs no store to be tested. Method: its steps are answered by hand."""
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("a", time_to_live=1), make_message("b"))
    rows = sim.ports[0].store.scan(queue.main.fragments[0].key, 0, 2, 1_000, tuple(MessageState))
    steps = peek.peek(queue.main, Peek(0, 1), sim.now + 10)
    step = next(steps)
    assert step == ReadOne(queue.main.fragments[0], Scan(queue.main.fragments[0].key, -1, 1, peek.PEEK_BYTES_MAX))
    step = steps.send((rows[:1], sim.now + 10))  # has expired
    assert isinstance(step, ReadOne)
    assert step.read == Scan(queue.main.fragments[0].key, 1, 1, peek.PEEK_BYTES_MAX)
    with pytest.raises(StopIteration) as end:
        steps.send((rows[1:], sim.now + 10))
    assert [message_id_of(row.content) for row in end.value.value] == ["b"]


def test_what_an_operation_returns_is_the_reply(sim: Simulation, queue: QueueEntity) -> None:
    answer: Answer[list[str]] = Answer()
    run(first_ids(queue), sim.now, answer)
    assert not answer.has_come
    sim.run()
    assert answer.value == [str(number) for number in range(16)]


def test_an_operation_goes_on_inside_the_answer_of_the_store(sim: Simulation, queue: QueueEntity) -> None:
    """Nothing else is decided between an answer and what an operation makes of it."""
    answer: Answer[list[str]] = Answer()
    run(first_ids(queue), sim.now, answer)
    assert [len(port) for port in sim.ports] == [1, 0, 0, 0]
    assert sim.ports[0].step()
    assert [len(port) for port in sim.ports] == [0, 1, 0, 0]


def test_what_an_operation_raises_is_the_reply(sim: Simulation) -> None:
    def refused() -> Steps[None]:
        raise NotAllowed("no")
        yield

    answer: Answer[None] = Answer()
    run(refused(), sim.now, answer)
    assert isinstance(answer.error, NotAllowed)


def test_an_operation_may_go_on_without_a_fragment_that_is_lost_meanwhile(sim: Simulation, queue: QueueEntity) -> None:
    answer: Answer[list[str]] = Answer()

    def patient() -> Steps[list[str]]:
        found = []
        for fragment in queue.main.fragments[:3]:
            try:
                rows = yield from read_one(fragment, Scan(fragment.key, 0, 1, 1))
                found += [message_id_of(row.content) for row in rows]
            except FragmentUnavailable:
                found.append("lost")
        return found

    run(patient(), sim.now, answer)
    sim.ports[0].step()
    sim.brokers[1].store_lost(StoreUnavailable("switched off"))
    sim.run()
    assert answer.value == ["0", "lost", "2"]


def test_reads_side_by_side_are_answered_in_the_order_asked_with_what_was_lost_in_its_place(
    sim: Simulation, queue: QueueEntity
) -> None:
    answer: Answer[list[Rows | FragmentUnavailable]] = Answer()
    sim.lose_store(1)
    run(read_each([(each, Scan(each.key, 0, 1, 1)) for each in queue.main.fragments[:4]]), sim.now, answer)
    assert [len(port) for port in sim.ports] == [1, 0, 1, 1]
    for index in (3, 0, 2):
        assert not answer.has_come
        sim.ports[index].step()
    shown = [each if isinstance(each, MessagingError) else message_id_of(each[0].content) for each in answer.value]
    assert [type(each) for each in shown] == [str, FragmentUnavailable, str, str]
    assert (shown[0], shown[2], shown[3]) == ("0", "2", "3")


@pytest.mark.parametrize(
    "command", [Peek(0, 5), PeekMerged({}, 5), PeekRange(1, 5, 5), Purge(5, 2**60), Claim(5), CountShares(0, 5)]
)
def test_a_command_is_answered_when_every_store_is_lost_before_or_meanwhile(
    sim: Simulation, queue: QueueEntity, command: Command[Any]
) -> None:
    answer: Answer[Any] = Answer()
    queue.main.ask(command, sim.now, answer)
    for broker in sim.brokers:
        broker.store_lost(StoreUnavailable("switched off"))
    assert isinstance(answer.error, FragmentUnavailable)
    again: Answer[Any] = Answer()
    queue.main.ask(command, sim.now, again)
    assert isinstance(again.error, FragmentUnavailable)


def test_the_error_that_many_operations_are_given_keeps_nothing_of_them(sim: Simulation, queue: QueueEntity) -> None:
    answers = [Answer[Any]() for _ in range(50)]
    for answer in answers:
        queue.main.ask(PeekRange(1, 5, 5), sim.now, answer)
    sim.lose_store(0)
    errors = {answer.error for answer in answers}
    assert len(errors) == 1
    (error,) = errors
    depth, trace = 0, error.__traceback__ if error is not None else None
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 10


def test_a_fragment_that_is_lost_while_the_others_answer_shows_no_counts(sim: Simulation, queue: QueueEntity) -> None:
    answer: Answer[Any] = Answer()
    queue.main.ask(ListFragments(), sim.now, answer)
    sim.ports[0].run()
    sim.lose_store(0)
    found = answer.value
    assert [head.fragment for head in found if not head.is_available] == [0, 4, 8, 12]
    assert all(head.active == 2 for head in found if head.is_available)
