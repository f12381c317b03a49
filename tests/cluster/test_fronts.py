"""What fronts and parts owe each other, one rule at a time."""

from collections.abc import Callable, Sequence
from gc import collect
from itertools import count
from typing import Any
from weakref import ref

import pytest

from twinbus.broker.commands import Claim, Command, DeleteDeferred, Undefer
from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.outcomes import COMPLETE
from twinbus.broker.source import Source
from twinbus.clock import Millis
from twinbus.cluster.fronts.source import FrontSource
from twinbus.cluster.fronts.target import FrontQueue
from twinbus.cluster.lines.talk import Topic
from twinbus.errors import FragmentUnavailable, InternalError
from twinbus.http.messaging.single_receive import SingleReceive
from twinbus.model.descriptions import QueueDescription
from twinbus.model.partition_key import candidates
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, EachReply, SimReceiver, Simulation

STORES = 4
KEYS = [str(number) for number in range(100)]
PARTITIONED = QueueDescription("q", enable_partitioning=True)


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    monkeypatch.setattr(Simulation, "node_count", 2)
    made = Simulation(STORES)
    assert isinstance(made, ClusterSimulation)
    return made


class NumberedReply(EachReply):
    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[int, int] = {}

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        super().accepted(indexes, numbers, now)
        self.numbers |= zip(indexes, numbers, strict=True)


def keys_at(sim: ClusterSimulation, node: int) -> tuple[str, str]:
    """Of fragments in two stores that this node has."""
    queue = sim.entities.queue("q")
    stores = [queue.main.fragments[fragment_of(queue, key)].broker.index for key in KEYS]
    first, second = {store: key for store, key in zip(stores, KEYS, strict=True) if sim.owners[store] == node}.values()
    return first, second


def fragment_of(queue: Any, key: str) -> int:
    return candidates(key, len(queue.main.fragments), 0)[0]


def test_messages_without_a_key_that_are_sent_one_by_one_go_to_the_nodes_in_turn(sim: ClusterSimulation) -> None:
    """A turn ends when all that was sent in it is answered."""
    queue = sim.queue(PARTITIONED)
    fragments, nodes = queue.main.fragments, []
    for number in range(len(fragments)):
        reply = NumberedReply()
        queue.send_each([make_message(str(number))], sim.now, reply)
        sim.run()
        nodes.append(sim.owners[fragments[reply.numbers[0] >> SEQUENCE_BITS].broker.index])
    assert [nodes.count(node) for node in (0, 1)] == [len(fragments) // 2] * 2


@pytest.mark.parametrize("node", [0, 1])
def test_an_answer_is_for_the_message_that_it_answers_where_keys_of_one_node_alternate(
    sim: ClusterSimulation, node: int
) -> None:
    queue = sim.queue(PARTITIONED)
    keys = keys_at(sim, node) * 3
    messages = [make_message(str(place), partition_key=key) for place, key in enumerate(keys)]
    reply = NumberedReply()
    queue.send_each(messages, sim.now, reply, [*range(len(messages))])
    sim.run()
    expected = {place: fragment_of(queue, key) for place, key in enumerate(keys)}
    assert {place: number >> SEQUENCE_BITS for place, number in reply.numbers.items()} == expected


@pytest.mark.parametrize("node", [0, 1])
def test_what_lies_in_a_store_that_has_not_answered_is_not_acknowledged(sim: ClusterSimulation, node: int) -> None:
    queue = sim.queue(PARTITIONED)
    keys = keys_at(sim, node) * 3
    messages = [make_message(str(place), partition_key=key) for place, key in enumerate(keys)]
    reply = EachReply()
    queue.send_each(messages, sim.now, reply)
    sim.ports[queue.main.fragments[fragment_of(queue, keys[0])].broker.index].run()
    assert reply.good == {0, 2, 4}


def test_numbers_on_a_line_do_not_end_with_32_bits(sim: ClusterSimulation) -> None:
    for node in sim.nodes:
        for peer in node.fronts.peers:
            peer._last = count(2**32)
    queue = sim.queue(QueueDescription("q"))
    reply = EachReply()
    queue.send_each([make_message("a"), make_message("b")], sim.now, reply)
    sim.run()
    receiver = SimReceiver(2)
    queue.main.attach(receiver, sim.now)
    sim.run()
    taken = receiver.take()
    settled = EachReply()
    queue.main.settle_each([each.lock_token for each in taken], COMPLETE, sim.now, settled)
    sim.run()
    queue.main.detach(receiver, sim.now)
    sim.carry()
    assert (reply.good, settled.good, queue.main.receiver_count) == ({0, 1}, {0, 1}, 0)


def test_of_a_deleted_queue_nothing_is_kept_for_those_who_received_from_it(sim: ClusterSimulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    receiver = SimReceiver(1)
    queue.main.attach(receiver, sim.now)
    sim.run()
    part = ref(sim.nodes[1].fronts.part.queue(queue.main.key))
    sim.entities.delete("q", sim.now, Answer[None]())
    sim.run()
    assert receiver.lost is not None
    queue.main.detach(receiver, sim.now)
    sim.advance(1_000)
    del queue
    collect()
    assert part() is None


def test_nothing_is_kept_for_a_receiver_that_left_while_the_stores_of_its_own_node_were_lost(
    sim: ClusterSimulation,
) -> None:
    queue = sim.queue(PARTITIONED)
    for store in [store for store, owner in enumerate(sim.owners) if owner == 0]:
        sim.lose_store(store)
    receiver = SimReceiver(1)
    queue.main.attach(receiver, sim.now)
    sim.advance(1_000, 100)
    queue.main.detach(receiver, sim.now)
    left = ref(receiver)
    del receiver
    collect()
    assert left() is None


@pytest.mark.parametrize("kind", [DeleteDeferred, Undefer])
def test_a_command_that_changed_nothing_fails_for_a_node_that_cannot_be_reached(
    sim: ClusterSimulation, kind: type[DeleteDeferred | Undefer]
) -> None:
    queue = sim.queue(PARTITIONED)
    numbers = [fragment_of(queue, keys_at(sim, node)[0]) << SEQUENCE_BITS | 1 for node in (0, 1)]
    command: Command[list[int]] = kind([(number, number) for number in numbers])
    assert sim.ask(queue.main, command).value == []
    sim.cut(0)
    assert isinstance(sim.ask(queue.main, command).error, FragmentUnavailable)


def test_what_was_claimed_before_a_node_failed_is_told(sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nobody would know that these messages are set aside."""
    queue = sim.queue(PARTITIONED)
    sim.send(queue, *[make_message(str(number), partition_key=keys_at(sim, number % 2)[0]) for number in range(20)])
    asked: list[int] = []
    front = sim.nodes[0].fronts.find(PARTITIONED.name)
    assert isinstance(front, FrontQueue)

    def fail(node: int, command: Command[list[int]], now: Millis, reply: Callable[[object], None]) -> None:
        asked.append(node)
        if len(asked) == 2:
            reply(InternalError("broken"))
        else:
            FrontSource.ask_node(front.main, node, command, now, reply)

    monkeypatch.setattr(front.main, "ask_node", fail)
    assert len(sim.ask(queue.main, Claim(20)).value) == 10
    assert len(asked) == 2


def test_a_recall_that_fails_can_be_repeated(sim: ClusterSimulation) -> None:
    """Or the credit that lies at the part would be of no use to anybody for as long as the receiver lives."""
    peer, given_back = sim.nodes[0].fronts.peers[1], list[int]()
    whole = sim.nodes[1].topics.asks[Topic.RECALL]

    def fail(*_: object) -> None:
        raise InternalError("broken")

    sim.nodes[1].topics.asks[Topic.RECALL] = fail
    peer.recall(1, given_back.append, waits=False)
    sim.carry()
    sim.nodes[1].topics.asks[Topic.RECALL] = whole
    peer.recall(1, given_back.append, waits=False)
    sim.cut(0)
    assert given_back == [0]


class Draining(SimReceiver):
    """Asks again whenever something has come back, as a link does that waits for the rest."""

    def __init__(self, source: Source, mode: ReceiveMode) -> None:
        super().__init__(1, mode)
        self._source = source

    def credit_returned(self, now: Millis) -> None:
        self._source.recall(self, now)


@pytest.mark.parametrize("turns_before", [0, 1])
def test_a_part_that_says_it_has_more_while_it_is_drained_is_asked_next(
    sim: ClusterSimulation, turns_before: int
) -> None:
    """It does not say so again: one credit would lie at the other part for as long as nothing new comes."""
    queue = sim.queue(PARTITIONED)
    receiver = sim.receiver(queue.main, 0)
    for _ in range(turns_before):
        receiver.credit = 1
        queue.main.pump(sim.now, receiver)
        queue.main.recall(receiver, sim.now)
    (key, _) = keys_at(sim, 1)
    assert len(sim.send(queue, *(make_message(str(each), partition_key=key) for each in range(3))).good) == 3
    sim.has_stepped_lines = True
    receiver.credit = 1
    queue.main.pump(sim.now, receiver)
    queue.main.recall(receiver, sim.now)
    sim.has_stepped_lines = False
    sim.tick()
    assert receiver.ids() == ["0"]
    receiver.credit = 1
    queue.main.pump(sim.now, receiver)
    sim.tick()
    assert receiver.ids() == ["1"]


def test_a_part_is_not_asked_all_the_time_for_what_it_is_removing(sim: ClusterSimulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("a"))
    recalls = list[int]()
    whole = sim.nodes[1].topics.asks[Topic.RECALL]

    def note(*arguments: Any) -> None:
        recalls.append(sim.now)
        if len(recalls) < 10:
            whole(*arguments)

    sim.nodes[1].topics.asks[Topic.RECALL] = note
    front = sim.nodes[0].fronts.find("q")
    assert isinstance(front, FrontQueue)
    receiver = Draining(front.main, ReceiveMode.RECEIVE_AND_DELETE)
    front.main.attach(receiver, sim.now)
    sim.carry()
    front.main.recall(receiver, sim.now)
    sim.carry()
    assert len(recalls) == 1
    sim.run()
    assert receiver.ids() == ["a"]


def test_a_removal_that_fails_while_somebody_drains_gives_its_credit_back(sim: ClusterSimulation) -> None:
    queue = sim.queue(PARTITIONED)
    sim.send(queue, make_message("a", partition_key=keys_at(sim, 1)[0]))
    front = sim.nodes[0].fronts.find("q")
    assert isinstance(front, FrontQueue)
    receiver = Draining(front.main, ReceiveMode.RECEIVE_AND_DELETE)
    receiver.credit = 2
    front.main.attach(receiver, sim.now)
    sim.carry()
    front.main.recall(receiver, sim.now)
    sim.carry()
    assert receiver.credit == 1
    for store in [store for store, owner in enumerate(sim.owners) if owner == 1 and len(sim.ports[store])]:
        sim.lose_store(store)
    sim.advance(200, 100)
    assert receiver.credit == 2


def test_a_receive_that_gives_up_waits_for_a_message_that_is_being_removed(sim: ClusterSimulation) -> None:
    """Nobody else will ever get it."""
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("a"))
    front, answer = sim.nodes[0].fronts.find("q"), Answer[TakenMessage | None]()
    assert isinstance(front, FrontQueue)
    receive = SingleReceive(front.main, ReceiveMode.RECEIVE_AND_DELETE, answer)
    receive.start(sim.now)
    sim.carry()
    receive.give_up(sim.now)
    sim.carry()
    assert not answer.has_come
    sim.run()
    assert answer.value is not None
    assert message_id_of(answer.value.message.content) == "a"
