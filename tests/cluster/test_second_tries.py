"""The second try is named: where its answer is lost too, the same fragment is asked again, and no message is there three times (A4.6)."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from twinbus.broker.fragment import names
from twinbus.broker.fragment.names import NAMES_KEPT, SecondTry
from twinbus.broker.target import TargetName
from twinbus.clock import Millis
from twinbus.cluster.fronts.search import ASKED_EVERY, CHOOSY_MAX, WAIT_MAX
from twinbus.cluster.lines.line import Answer as LineAnswer
from twinbus.cluster.lines.line import Line
from twinbus.cluster.lines.talk import Topic, decode_send_again, encode_send_again
from twinbus.errors import EntityNotFound, MessagingError, OutcomeUnknown
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply, Simulation

STORES = 6


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    """Three nodes with two stores each, whose owners may change; requests are made at node 0."""
    monkeypatch.setattr(Simulation, "node_count", 3)
    monkeypatch.setattr(ClusterSimulation, "has_moves", True)
    made = Simulation(STORES)
    assert isinstance(made, ClusterSimulation)
    return made


@pytest.fixture(autouse=True, params=["queue", "topic", "via"])
def kind(sim: ClusterSimulation, request: pytest.FixtureRequest) -> str:
    if request.param == "topic":
        sim.topic(TopicDescription("e", enable_partitioning=True))
        sim.subscription(SubscriptionDescription("e", "s"))
    else:
        sim.queue(QueueDescription("e", enable_partitioning=True, max_size_mb=1))
        sim.queue(QueueDescription("destination", enable_partitioning=True))
    return str(request.param)


@pytest.fixture(params=[False, True], ids=["each", "together"])
def send(sim: ClusterSimulation, kind: str, request: pytest.FixtureRequest) -> "Callable[..., Sent]":
    return lambda *ids, **named: Sent(sim, kind, [make_message(each, **named) for each in ids or ["m"]], request.param)


class Sent:
    """Messages without a key, each by itself or all together."""

    def __init__(self, sim: ClusterSimulation, kind: str, messages: Sequence[Message], is_batch: bool) -> None:
        target = sim.entities.topic("e") if kind == "topic" else sim.entities.queue("e")
        self._target = target.via("destination") if kind == "via" else target
        self._is_batch, self._count = is_batch, len(messages)
        self.each, self.batch = NumbersReply(), Answer[list[int]]()
        if is_batch:
            self._target.send_batch(messages, sim.now, self.batch)
        else:
            self._target.send_each(messages, sim.now, self.each)

    @property
    def is_accepted(self) -> bool:
        if self._is_batch:
            return self.batch.has_come and self.batch.error is None
        return len(self.each.good) == self._count

    @property
    def numbers(self) -> list[int]:
        return self.batch.value if self._is_batch else [self.each.numbers[index] for index in range(self._count)]

    @property
    def error(self) -> MessagingError | None:
        return self.batch.error if self._is_batch else self.each.errors.get(0)

    @property
    def waits(self) -> bool:
        return not self.is_accepted and self.error is None


class NumbersReply(EachReply):
    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[int, int] = {}

    def accepted(self, indexes: Sequence[int], numbers: Sequence[int], now: Millis) -> None:
        super().accepted(indexes, numbers, now)
        self.numbers.update(zip(indexes, numbers, strict=True))


Send = Callable[..., Sent]


def give_faults(sim: ClusterSimulation, fault: Fault | None) -> None:
    for port in sim.ports:
        port.next_fault = fault


def bring_back(sim: ClusterSimulation) -> None:
    give_faults(sim, None)
    for store, port in enumerate(sim.ports):
        if port.is_down or not sim.brokers[store].is_available:
            sim.return_store(store)


def down(sim: ClusterSimulation) -> list[int]:
    return [store for store, port in enumerate(sim.ports) if port.is_down]


def ids(sim: ClusterSimulation, kind: str) -> list[str]:
    """Of whatever arrived, copies of the same message included."""
    bring_back(sim)
    sim.connect()
    sim.advance(40_000, 500)
    if kind == "topic":
        main = sim.entities.subscription("e", "s").main
    else:
        main = sim.entities.queue("destination" if kind == "via" else "e").main
    return sorted(sim.receiver(main, 100).ids())


def take_over(sim: ClusterSimulation, store: int, to: int) -> None:
    sim.change_owner(store, to)
    broker = sim.brokers[store]
    broker.is_foreign = False
    broker.store_returned()
    sim.run()


def lose_both(sim: ClusterSimulation, send: Send, fault: Fault = Fault.LOSE_REPLY, **named: Any) -> tuple[Sent, int]:
    """The store that is asked first writes and loses its answer. The next one has the fault; returns which one that is."""
    sim.run()
    before, firsts = set(down(sim)), list[int]()

    def wrote(store: int) -> None:
        firsts.append(store)
        give_faults(sim, fault)

    give_faults(sim, Fault.LOSE_REPLY)
    when_written(sim, wrote)
    sent = send(**named)
    sim.run()
    (second,) = set(down(sim)) - {firsts[0]} - before
    when_written(sim, lambda _: None)
    give_faults(sim, None)
    assert sent.waits
    return sent, second


def when_written(sim: ClusterSimulation, call: Callable[[int], None]) -> None:
    for store, port in enumerate(sim.ports):
        port.wrote = partial(call, store)  # type: ignore[attr-defined]


@pytest.mark.rule("A4.6")
def test_what_both_stores_have_is_acknowledged_when_the_second_one_is_back_and_is_there_twice(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    sent, second = lose_both(sim, send)
    sim.advance(6_000, 100)
    assert sent.waits
    sim.return_store(second)
    sim.advance(1_000, 100)
    assert sent.is_accepted
    assert ids(sim, kind) == ["m", "m"]


@pytest.mark.rule("A4.6")
def test_what_the_second_store_did_not_write_is_stored_there_when_it_is_back(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    sent, second = lose_both(sim, send, Fault.FAIL_BEFORE)
    sim.return_store(second)
    sim.advance(1_000, 100)
    assert sent.is_accepted
    assert ids(sim, kind) == ["m", "m"]


@pytest.mark.rule("A4.6")
@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.FAIL_BEFORE])
@pytest.mark.parametrize("to", [0, 1, 2])
def test_the_node_that_takes_the_second_store_over_is_asked(
    sim: ClusterSimulation, kind: str, send: Send, fault: Fault, to: int
) -> None:
    sent, second = lose_both(sim, send, fault)
    sim.ports[second].reopen()
    take_over(sim, second, to)
    sim.advance(1_000, 100)
    assert sent.is_accepted
    assert ids(sim, kind) == ["m", "m"]


@pytest.mark.rule("A4.6")
def test_it_stays_with_its_fragment_though_other_stores_take_messages(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    sent, _ = lose_both(sim, send)
    others = send("other")
    sim.run()
    assert others.is_accepted
    sim.advance(5_000, 100)
    assert sent.waits
    assert ids(sim, kind) == ["m", "m", "other"]
    assert sent.is_accepted


def test_where_nobody_comes_the_error_comes_after_a_while_and_not_before(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    sent, _ = lose_both(sim, send)
    sim.advance(WAIT_MAX - 200, 100)
    assert sent.waits
    sim.advance(400, 100)
    assert isinstance(sent.error, OutcomeUnknown)
    assert ids(sim, kind) == ["m", "m"]


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_it_is_waited_for_as_long_as_ever_when_the_clock_was_set(
    sim: ClusterSimulation, kind: str, send: Send, by: int
) -> None:
    sent, second = lose_both(sim, send)
    sim.set_clock(by)
    sim.advance(WAIT_MAX - 2 * ASKED_EVERY, 100)
    assert sent.waits
    sim.return_store(second)
    sim.advance(ASKED_EVERY, 100)
    assert sent.is_accepted


def test_an_entity_that_is_deleted_meanwhile_is_not_waited_for(sim: ClusterSimulation, kind: str, send: Send) -> None:
    sent, link = second_line(sim, send)
    link.cut(sim.now)
    sim.has_stepped_lines = False
    for store in stores_of(sim, 0):
        sim.return_store(store)
    deleted: Answer[None] = Answer()
    sim.entities.delete("e", sim.now, deleted)
    sim.run()
    assert deleted.value is None
    sim.connect()
    sim.run()
    assert isinstance(sent.error, EntityNotFound)


# Lines


def second_line(sim: ClusterSimulation, send: Send) -> tuple[Sent, Any]:
    """A message whose first try was on a line that broke, and whose second try is being written on another one, which is returned."""
    for store in stores_of(sim, 0):
        sim.lose_store(store)
    sim.has_stepped_lines = True
    sent = send()
    (first,) = [link for link in sim.links if 0 in link.nodes and link.one.take_output()]
    first.cut(sim.now)
    (second,) = [link for link in sim.links if 0 in link.nodes and not link.is_broken]
    for is_back in (False, True):
        second.step(sim.now, is_back=is_back)  # it lives
    assert sent.waits
    return sent, second


def stores_of(sim: ClusterSimulation, node: int) -> list[int]:
    return [store for store, owner in enumerate(sim.owners) if owner == node]


@pytest.mark.rule("A4.6")
@pytest.mark.parametrize("has_arrived", [False, True])
def test_what_was_on_two_lines_that_broke_is_sent_again_to_the_same_fragment_over_a_new_one(
    sim: ClusterSimulation, kind: str, send: Send, has_arrived: bool
) -> None:
    sent, second = second_line(sim, send)
    if has_arrived:
        second.step(sim.now, is_back=False)
    for port in sim.ports:
        port.run()
    second.cut(sim.now)
    assert sent.waits
    sim.has_stepped_lines = False
    sim.connect()
    sim.run()
    assert sent.is_accepted
    assert ids(sim, kind) == ["m"]


@pytest.mark.rule("A4.6")
def test_what_is_sent_again_after_the_clock_was_set_is_not_stored_again(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    sent, second = second_line(sim, send)
    second.step(sim.now, is_back=False)
    for port in sim.ports:
        port.run()
    second.cut(sim.now)
    sim.set_clock(2 * NAMES_KEPT)
    sim.advance(1_000, 100)
    assert sent.waits
    sim.has_stepped_lines = False
    sim.connect()
    sim.run()
    assert sent.is_accepted
    assert ids(sim, kind) == ["m"]


@pytest.mark.rule("A4.6")
def test_it_may_be_lost_any_number_of_times(sim: ClusterSimulation, kind: str, send: Send) -> None:
    sent, link = second_line(sim, send)
    for _ in range(5):
        link.step(sim.now, is_back=False)
        for port in sim.ports:
            port.run()
        link.cut(sim.now)
        sim.connect()
        link = next(each for each in sim.links if each.nodes == link.nodes)
        for is_back in (False, True):
            link.step(sim.now, is_back=is_back)
        assert sent.waits
    sim.has_stepped_lines = False
    sim.carry()
    sim.run()
    assert sent.is_accepted
    assert ids(sim, kind) == ["m"]


def test_a_node_that_cannot_say_is_not_asked_with_each_tick(sim: ClusterSimulation, kind: str, send: Send) -> None:
    lose_own_stores(sim)
    sent, second = lose_both(sim, send)
    node = sim.nodes[sim.owners[second]]
    asked: list[int] = []
    handle = node.topics.asks[Topic.SEND_AGAIN]

    def count(line: Line, payload: bytes, now: Millis, answer: LineAnswer) -> None:
        asked.append(now)
        handle(line, payload, now, answer)

    node.topics.asks[Topic.SEND_AGAIN] = count
    sim.advance(10 * ASKED_EVERY, 100)
    assert sent.waits
    assert 8 <= len(asked) <= 11


@pytest.mark.parametrize("to", [0, 1], ids=["here", "elsewhere"])
def test_a_node_that_is_too_busy_to_say_is_asked_again_a_little_later(
    sim: ClusterSimulation, kind: str, send: Send, to: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, second = lose_both(sim, send, Fault.FAIL_BEFORE)
    monkeypatch.setattr(names, "KEYS_MAX", 0)
    sim.ports[second].reopen()
    take_over(sim, second, to)
    sim.advance(2 * ASKED_EVERY, 100)
    assert sent.waits
    monkeypatch.undo()
    sim.advance(ASKED_EVERY + 100, 100)
    assert sent.is_accepted


def test_a_node_that_is_slow_to_say_that_it_does_not_know_is_not_asked_for_ever(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    lose_own_stores(sim)
    sent, _ = lose_both(sim, send)
    asked: list[LineAnswer] = []
    for node in (1, 2):
        topics = sim.nodes[node].topics
        topics.asks[Topic.SEND_AGAIN] = lambda line, payload, now, answer: asked.append(answer)
    for _ in range(WAIT_MAX // (2 * ASKED_EVERY)):
        sim.advance(2 * ASKED_EVERY, 100)
        assert sent.waits
        asked.pop()(OutcomeUnknown("It may have been done."))
    sim.advance(2 * ASKED_EVERY, 100)
    assert isinstance(sent.error, OutcomeUnknown)
    assert not asked


def test_a_node_that_is_reached_while_another_store_is_asked_gets_its_turn(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    """It was passed by, and so was every other store."""
    for link in [link for link in sim.links if 0 in link.nodes]:
        link.cut(sim.now)
    sim.has_stepped_lines = True
    first, second = stores_of(sim, 0)
    for port, other in ((sim.ports[first], sim.ports[second]), (sim.ports[second], sim.ports[first])):
        port.next_fault = Fault.LOSE_REPLY
        port.wrote = partial(setattr, other, "is_down", True)  # type: ignore[attr-defined]
    sent = send()
    while not any(sim.ports[store].is_down for store in (first, second)):
        assert sim.ports[first].step() or sim.ports[second].step()
    assert sent.waits
    sim.has_stepped_lines = False
    sim.connect()
    for store in (first, second):
        sim.ports[store].run()
    sim.run()
    assert sent.is_accepted


def test_when_nothing_is_heard_on_any_line_for_a_while_one_of_them_is_tried(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    """A line that is not known to be broken may break with it: then it is asked again."""
    lose_own_stores(sim)
    sim.has_stepped_lines = True
    sent = send()
    (first,) = [link for link in sim.links if 0 in link.nodes and link.one.take_output()]
    first.cut(sim.now)
    (second,) = [link for link in sim.links if 0 in link.nodes and not link.is_broken]
    sim.advance(CHOOSY_MAX + 200, 100)
    assert sent.waits
    second.step(sim.now, is_back=False)
    for port in sim.ports:
        port.run()
    second.step(sim.now, is_back=True)
    assert sent.is_accepted
    sim.has_stepped_lines = False
    assert ids(sim, kind) == ["m"]


# Nodes of an earlier release


def forget_names(sim: ClusterSimulation, nodes: Sequence[int]) -> None:
    for node in nodes:
        del sim.nodes[node].topics.asks[Topic.SEND_AGAIN]


def lose_own_stores(sim: ClusterSimulation) -> None:
    for store in stores_of(sim, 0):
        sim.lose_store(store)


def test_a_node_that_knows_no_names_gets_the_second_try_without_them(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    lose_own_stores(sim)
    forget_names(sim, [1, 2])
    give_faults(sim, Fault.LOSE_REPLY)
    when_written(sim, lambda _: give_faults(sim, None))
    sent = send()
    sim.run()
    assert sent.is_accepted
    assert ids(sim, kind) == ["m", "m"]


def test_a_second_try_without_names_is_the_last_one(sim: ClusterSimulation, kind: str, send: Send) -> None:
    lose_own_stores(sim)
    forget_names(sim, [1, 2])
    give_faults(sim, Fault.LOSE_REPLY)
    sent = send()
    sim.run()
    assert isinstance(sent.error, OutcomeUnknown)
    assert ids(sim, kind) == ["m", "m"]


def test_a_node_that_knows_no_names_is_not_sent_what_its_store_may_have_as_a_second_try(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    sent, second = lose_both(sim, send)
    forget_names(sim, [1])
    sim.ports[second].reopen()
    take_over(sim, second, to=1)
    sim.advance(WAIT_MAX - 1_000, 100)
    assert sent.waits
    sim.advance(2_000, 100)
    assert isinstance(sent.error, OutcomeUnknown)
    assert ids(sim, kind) == ["m", "m"]


# Fragments that certainly do not have it


@pytest.mark.rule("A4.6")
def test_a_second_try_that_was_certainly_not_done_goes_on(sim: ClusterSimulation, kind: str, send: Send) -> None:
    """Every store but the first one and another one refuses to write."""
    for _ in range(STORES):
        give_faults(sim, Fault.LOSE_REPLY)

        def wrote(first: int) -> None:
            give_faults(sim, Fault.REFUSE)
            sim.ports[(first + 3) % STORES].next_fault = None

        when_written(sim, wrote)
        sent = send()
        sim.run()
        assert sent.is_accepted
        when_written(sim, lambda _: None)
        bring_back(sim)
    assert ids(sim, kind) == ["m"] * 2 * STORES


@pytest.mark.parametrize("kind", ["queue"], indirect=True)
def test_where_the_fragment_of_the_second_try_has_no_room_for_it_by_then_it_is_not_there_and_goes_on(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    sent, second = lose_both(sim, send, Fault.FAIL_BEFORE, body=bytes(600_000))
    sim.return_store(second)
    placement = sim.nodes[sim.owners[second]].entities.queue("e").placement
    own = [fragment.index for fragment in placement.fragments if fragment.broker.index == second]
    filling = [make_message("filling", body=bytes(600_000))]
    for index in own:
        placement.send_each_again(filling, SecondTry(index, ["filling"]), sim.now, EachReply())
    sim.advance(2_000, 100)
    assert sent.is_accepted
    assert ids(sim, kind).count("m") == 2


# Several messages


def test_messages_of_one_run_are_answered_once_each_whatever_becomes_of_them(
    sim: ClusterSimulation, kind: str, send: Send
) -> None:
    many = [str(number) for number in range(20)]
    sent, second = lose_both(sim, lambda: send(*many))
    sim.return_store(second)
    sim.advance(1_000, 100)
    assert sent.is_accepted
    assert ids(sim, kind) == sorted(2 * many)


@pytest.mark.parametrize("kind", ["queue", "topic"], indirect=True)
def test_who_scheduled_gets_the_numbers_to_cancel_with(sim: ClusterSimulation, kind: str, send: Send) -> None:
    sent, second = lose_both(sim, send, scheduled_at=sim.now + 3_600_000)
    sim.return_store(second)
    sim.advance(1_000, 100)
    entity = sim.entities.topic("e") if kind == "topic" else sim.entities.queue("e")
    cancelled: Answer[None] = Answer()
    entity.cancel_scheduled(sent.numbers, sim.now, cancelled)
    sim.run()
    assert cancelled.value is None


def test_a_first_try_has_no_names(sim: ClusterSimulation, send: Send) -> None:
    """So it costs what it did."""
    for store in range(3):
        sim.lose_store(store)
    sent = [send(str(number)) for number in range(20)]
    sim.run()
    assert all(each.is_accepted for each in sent)
    entities = [node.entities.at("e") for node in sim.nodes]
    assert all(fragment._names is None for entity in entities for fragment in entity.fragments)


def test_a_frame_of_a_second_try_is_read_as_it_was_written() -> None:
    messages = [make_message("a"), make_message("b")]
    second = SecondTry(7, ["n.0", "n.3"])
    name = TargetName("q", "d")
    frame = decode_send_again(encode_send_again(9, name, messages, second, [1, 2], is_together=False))
    assert frame == (9, name, False, second, messages, [1, 2])
