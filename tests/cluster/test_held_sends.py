"""Messages without a key go on while a node with a store lives, though lines and databases fail together."""

import pytest

from tests.cluster.sent_messages import Sent
from twinbus.cluster.fronts.search import CHOOSY_MAX, WAIT_MAX
from twinbus.cluster.peers.held_sends import CALL_BYTES, HELD_BYTES_MAX, HELD_MAX, HeldSends
from twinbus.errors import FragmentUnavailable, OutcomeUnknown
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.cluster_simulation import ClusterSimulation, Link
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation

PARTITIONED = QueueDescription("q", enable_partitioning=True)


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    """Three nodes with two stores each; requests are made at node 0, whose own stores are lost."""
    monkeypatch.setattr(Simulation, "node_count", 3)
    made = Simulation(6)
    assert isinstance(made, ClusterSimulation)
    made.queue(PARTITIONED)
    for store in stores_of(made, 0):
        made.lose_store(store)
    return made


def stores_of(sim: ClusterSimulation, node: int) -> list[int]:
    return [store for store, owner in enumerate(sim.owners) if owner == node]


def cut_from_others(sim: ClusterSimulation) -> None:
    """Node 0 learns of one line after the other."""
    for link in [link for link in sim.links if 0 in link.nodes]:
        link.cut(sim.now)


def copies(sim: ClusterSimulation) -> int:
    for store in stores_of(sim, 0):
        sim.return_store(store)
    return sim.receiver(sim.entities.queue("q").main, 100).ids().count("m")


@pytest.mark.rule("A4.6")
@pytest.mark.parametrize("is_batch", [False, True])
def test_what_was_on_one_of_several_lines_that_break_together_waits_for_a_line(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    sim.has_stepped_lines = True
    sent = Sent(sim, is_batch=is_batch)
    cut_from_others(sim)
    assert not sent.is_accepted
    assert sent.error is None
    sim.has_stepped_lines = False
    sim.connect()
    sim.run()
    assert sent.is_accepted
    assert copies(sim) == 1


@pytest.mark.parametrize("is_batch", [False, True])
def test_the_second_try_is_for_a_node_that_has_answered_since_the_line_of_the_first_one_broke(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    sim.has_stepped_lines = True
    sent = Sent(sim, is_batch=is_batch)
    first = next(link for link in sim.links if 0 in link.nodes and link.one.take_output())
    first.cut(sim.now)
    second = next(link for link in sim.links if 0 in link.nodes and not link.is_broken)
    for is_back in (False, True):
        second.step(sim.now, is_back=is_back)
    assert len(second.one.take_output()) > 0
    assert not sent.is_accepted
    sim.has_stepped_lines = False


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_node_is_asked_once_for_all_that_was_on_a_line_that_broke(sim: ClusterSimulation, is_batch: bool) -> None:
    """With each answer all that wait are looked at: thousands of answers would take minutes."""
    sim.has_stepped_lines = True
    first, second = [link for link in sim.links if 0 in link.nodes]
    sent = [Sent(sim, is_batch=is_batch) for _ in range(100)]
    second.one.take_output()
    first.cut(sim.now)
    assert len(b"".join(second.one.take_output())) < 100
    second.cut(sim.now)
    sim.has_stepped_lines = False
    sim.connect()
    sim.run()
    assert all(each.is_accepted for each in sent)


@pytest.mark.parametrize("is_batch", [False, True])
def test_what_a_line_brings_that_was_said_before_another_one_broke_is_no_sign_of_life(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    """A node that stood still reads what came meanwhile, also from a node that has given the line up."""
    sim.has_stepped_lines = True
    sent = Sent(sim, is_batch=is_batch)
    first = next(link for link in sim.links if 0 in link.nodes and link.one.take_output())
    second = next(link for link in sim.links if 0 in link.nodes and link is not first)
    second.other.tell(99, b"said long ago")
    first.cut(sim.now)
    second.step(sim.now, is_back=True)
    sim.nodes[0].fronts.peers.held_sends.look(sim.now, is_changed=False)
    second.cut(sim.now)
    assert sent.error is None
    sim.has_stepped_lines = False
    sim.connect()
    sim.run()
    assert sent.is_accepted
    assert copies(sim) == 1


@pytest.mark.parametrize("is_batch", [False, True])
def test_the_second_try_is_not_for_the_node_that_lost_the_first_one_while_another_is_reached(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    sim.has_stepped_lines = True
    sent = Sent(sim, is_batch=is_batch)
    first = next(link for link in sim.links if 0 in link.nodes and link.one.take_output())
    first.cut(sim.now)
    sim.connect()
    again = next(link for link in sim.links if link.nodes == first.nodes)
    for is_back in (False, True):
        again.step(sim.now, is_back=is_back)
    again.cut(sim.now)
    assert sent.error is None
    second = next(link for link in sim.links if 0 in link.nodes and not link.is_broken)
    second.other.tell(99, b"it lives")
    sim.has_stepped_lines = False
    sim.advance(200, 100)
    sim.run()
    assert sent.is_accepted


class RenewedLease:
    until = 1.0

    def is_held(self) -> bool:
        return True


def sent_elsewhere(sim: ClusterSimulation, lease: RenewedLease, *, is_batch: bool) -> tuple[Sent, Link]:
    """What node 0 has sent on a line that has not delivered it; its own stores, with this lease, have come meanwhile."""
    sim.has_stepped_lines = True
    sent = Sent(sim, is_batch=is_batch)
    (first,) = [link for link in sim.links if 0 in link.nodes and link.one.take_output()]
    for store in stores_of(sim, 0):
        sim.return_store(store)
        sim.brokers[store].lease = lease
    return sent, first


@pytest.mark.parametrize("is_batch", [False, True])
def test_the_second_try_is_for_own_stores_when_their_lease_was_renewed_since_the_line_broke(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    """It may be this node that was cut off, from its databases too."""
    lease = RenewedLease()
    sent, first = sent_elsewhere(sim, lease, is_batch=is_batch)
    first.cut(sim.now)
    sim.advance(200, 100)
    assert not sent.is_accepted
    assert sent.error is None
    lease.until = 2.0
    sim.advance(200, 100)
    assert sent.is_accepted


@pytest.mark.parametrize("is_batch", [False, True])
def test_the_second_try_is_not_for_the_node_that_lost_the_first_one_while_own_stores_may_be_renewed(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    """A node that was cut off and is reached again may not reach its databases yet."""
    lease = RenewedLease()
    sent, first = sent_elsewhere(sim, lease, is_batch=is_batch)
    cut_from_others(sim)
    sim.connect()
    again = next(link for link in sim.links if link.nodes == first.nodes)
    for is_back in (False, True):
        again.step(sim.now, is_back=is_back)
    lease.until = 2.0
    sim.advance(200, 100)
    assert sent.is_accepted


@pytest.mark.parametrize("is_batch", [False, True])
def test_who_chooses_no_more_waits_on_for_any_node(sim: ClusterSimulation, is_batch: bool) -> None:
    """A node that stood still may need that long to get a line, as over a network that is slow."""
    sim.has_stepped_lines = True
    sent = Sent(sim, is_batch=is_batch)
    cut_from_others(sim)
    sim.advance(WAIT_MAX - 200, 100)
    assert sent.error is None
    sim.has_stepped_lines = False
    sim.connect()
    sim.advance(100, 100)
    assert sent.is_accepted


@pytest.mark.parametrize("is_batch", [False, True])
def test_where_no_node_is_reached_the_error_comes_after_a_while(sim: ClusterSimulation, is_batch: bool) -> None:
    cut_from_others(sim)
    sent = Sent(sim, is_batch=is_batch)
    sim.advance(WAIT_MAX - 200, 100)
    assert sent.error is None
    sim.advance(400, 100)
    assert isinstance(sent.error, FragmentUnavailable)
    assert not isinstance(sent.error, OutcomeUnknown)


@pytest.mark.parametrize("is_batch", [False, True])
def test_where_all_nodes_say_that_their_stores_are_lost_that_is_the_answer(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    for store in stores_of(sim, 1) + stores_of(sim, 2):
        sim.lose_store(store)
    sent = Sent(sim, is_batch=is_batch)
    sim.run()
    assert isinstance(sent.error, FragmentUnavailable)


@pytest.mark.rule("A4.6")
@pytest.mark.parametrize("is_batch", [False, True])
def test_where_a_database_fails_the_second_try_is_for_a_store_of_another_one(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    """Store 3 alone is in the other database."""
    for node in sim.nodes:
        for broker in node.brokers:
            broker.database = int(broker.index == 3)
    for _ in range(12):
        for store, port in enumerate(sim.ports):
            port.next_fault = None if store == 3 else Fault.LOSE_REPLY
        sent = Sent(sim, is_batch=is_batch)
        sim.run()
        assert sent.is_accepted, sent.error
        for store in [store for store in range(6) if store not in (3, *stores_of(sim, 0))]:
            sim.return_store(store)


@pytest.fixture
def movable(monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    """Three nodes with two stores each, whose owners may change; every other store is in the second database."""
    monkeypatch.setattr(Simulation, "node_count", 3)
    monkeypatch.setattr(ClusterSimulation, "has_moves", True)
    made = Simulation(6)
    assert isinstance(made, ClusterSimulation)
    for node in made.nodes:
        for broker in node.brokers:
            broker.database = broker.index % 2
    made.queue(PARTITIONED)
    return made


def in_database(number: int) -> range:
    return range(number, 6, 2)


def take_over(sim: ClusterSimulation, store: int, to: int) -> None:
    sim.change_owner(store, to)
    broker = sim.brokers[store]
    broker.is_foreign = False
    broker.store_returned()
    sim.ports[store].run()


def sent_while_databases_fail(sim: ClusterSimulation, *, is_batch: bool) -> Sent:
    """The second one is lost, and then the first one: the store that takes it writes it and is lost, and each of the others would be."""
    for store in in_database(1):
        sim.lose_store(store)
    for store in in_database(0):
        sim.ports[store].next_fault = Fault.LOSE_REPLY
    sent = Sent(sim, is_batch=is_batch)
    sim.run()
    return sent


@pytest.mark.rule("A4.6")
@pytest.mark.parametrize("is_batch", [False, True])
def test_where_a_database_fails_before_the_other_one_is_back_the_second_try_waits_for_that(
    movable: ClusterSimulation, is_batch: bool
) -> None:
    sim, sent = movable, sent_while_databases_fail(movable, is_batch=is_batch)
    sim.advance(300, 100)
    assert not sent.is_accepted
    assert sent.error is None
    take_over(sim, 1, to=1)
    sim.run()
    assert sent.is_accepted


@pytest.mark.parametrize("is_batch", [False, True])
def test_where_the_other_database_stays_away_the_second_try_is_for_the_one_that_failed(
    movable: ClusterSimulation, is_batch: bool
) -> None:
    sim, sent = movable, sent_while_databases_fail(movable, is_batch=is_batch)
    for store in in_database(0):
        sim.ports[store].next_fault = None
        sim.return_store(store)
    sim.advance(CHOOSY_MAX - 200, 100)
    assert not sent.is_accepted
    sim.advance(400, 100)
    assert sent.is_accepted


@pytest.mark.parametrize("is_batch", [False, True])
def test_where_neither_database_returns_the_error_comes_after_a_while(
    movable: ClusterSimulation, is_batch: bool
) -> None:
    sim, sent = movable, sent_while_databases_fail(movable, is_batch=is_batch)
    for store in in_database(0):
        sim.lose_store(store)
    sim.advance(CHOOSY_MAX - 200, 100)
    assert sent.error is None
    sim.advance(400, 100)
    assert isinstance(sent.error, OutcomeUnknown)


def test_the_second_try_is_for_a_store_that_came_to_this_node_while_the_first_one_was_under_way(
    movable: ClusterSimulation,
) -> None:
    sim = movable
    for store in set(range(6)) - {2}:
        sim.lose_store(store)
    both = [Sent(sim, is_batch=False) for _ in range(2)]
    take_over(sim, 1, to=0)
    sim.lose_store(2)
    assert [sent.is_accepted for sent in both] == [True, True]


def test_a_batch_for_an_entity_with_one_fragment_has_no_second_try(sim: ClusterSimulation) -> None:
    """It would be for the same store, which may have it."""
    queues = [sim.queue(QueueDescription(name)) for name in ("a", "b", "c", "d", "e", "f")]
    queue = next(each for each in queues if sim.owners[each.main.fragments[0].broker.index] != 0)
    sim.has_stepped_lines = True
    answer = Answer[list[int]]()
    queue.send_batch([make_message("m")], sim.now, answer)
    cut_from_others(sim)
    assert isinstance(answer.error, OutcomeUnknown)


class Heavy:
    size_bytes = HELD_BYTES_MAX - CALL_BYTES
    held_since = 0
    held_max = HELD_MAX

    def clock_stepped(self, by: int) -> None:
        self.held_since += by

    def try_again(self, now: int, *, is_changed: bool) -> bool:
        return is_changed

    def give_up(self, now: int) -> None:
        raise AssertionError("it was not late")


def test_what_waits_is_bounded() -> None:
    sends = HeldSends()
    assert sends.hold(Heavy())
    assert not sends.hold(Heavy())
    sends.look(1, is_changed=False)
    assert not sends.hold(Heavy())
    sends.look(2, is_changed=True)
    assert sends.hold(Heavy())


class Broken(Heavy):
    size_bytes = 0

    def try_again(self, now: int, *, is_changed: bool) -> bool:
        raise RuntimeError("of whoever sent it")

    def give_up(self, now: int) -> None:
        raise RuntimeError("of whoever sent it")


class Patient(Heavy):
    size_bytes = HELD_BYTES_MAX - 3 * CALL_BYTES

    def __init__(self) -> None:
        self.is_on_its_way = False

    def try_again(self, now: int, *, is_changed: bool) -> bool:
        self.is_on_its_way = is_changed
        return is_changed


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("are_off", [False, True])
def test_a_send_waits_for_no_store_that_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, is_batch: bool, are_off: bool
) -> None:
    monkeypatch.setattr(Simulation, "node_count", 3)
    monkeypatch.setattr(ClusterSimulation, "has_moves", True)
    made = Simulation(6)
    assert isinstance(made, ClusterSimulation)
    made.queue(PARTITIONED)
    for node in (0, 2):
        for store in stores_of(made, node):
            made.lose_store(store)
    for link in [link for link in made.links if {*link.nodes} == {0, 1}]:
        link.cut(made.now)
    if are_off:
        made.nodes[0].owners.downs = {*stores_of(made, 1)}
    sent = Sent(made, is_batch=is_batch)
    made.run()
    assert not sent.is_accepted
    assert isinstance(sent.error, FragmentUnavailable) is are_off


@pytest.mark.parametrize("is_late", [False, True])
def test_a_send_that_breaks_costs_those_that_wait_with_it_neither_their_try_nor_their_room(
    is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sends, patient = HeldSends(), Patient()
    before, after = Broken(), Broken()
    if is_late:
        before.held_since = after.held_since = -HELD_MAX
    for send in (before, patient, after):
        assert sends.hold(send)
    sends.look(1, is_changed=False)
    assert not sends.hold(Heavy()), "it waits on"
    sends.look(2, is_changed=True)
    assert patient.is_on_its_way
    assert sends.hold(Heavy())
    caplog.clear()  # of what is meant to break here


def test_a_send_that_began_to_wait_during_a_tick_outlives_it() -> None:
    """The time of a tick is read before it finds a line broken."""
    sends, send = HeldSends(), Heavy()
    send.held_since = 1_001
    sends.hold(send)
    sends.look(1_000, is_changed=False)
    assert not sends.hold(Heavy())


@pytest.mark.parametrize(
    ("now", "is_over"), [(-HELD_MAX, True), (1 - HELD_MAX, False), (HELD_MAX - 1, False), (HELD_MAX, True)]
)
def test_a_send_waits_for_less_than_the_longest_time_by_either_clock(now: int, is_over: bool) -> None:
    sends, send = HeldSends(), Patient()
    given_up = list[int]()
    send.give_up = given_up.append  # type: ignore[assignment]
    sends.hold(send)
    sends.look(now, is_changed=False)
    assert given_up == [now] * is_over


def test_a_clock_that_is_set_back_keeps_nobody_waiting(sim: ClusterSimulation) -> None:
    cut_from_others(sim)
    sent = Sent(sim, is_batch=False)
    sim.nodes[0].fronts.peers.held_sends.look(sim.now - 2 * WAIT_MAX, is_changed=False)
    assert isinstance(sent.error, FragmentUnavailable)


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_send_waits_as_long_as_ever_when_the_clock_was_set(sim: ClusterSimulation, by: int, is_batch: bool) -> None:
    cut_from_others(sim)
    sent = Sent(sim, is_batch=is_batch)
    sim.set_clock(by)
    sim.advance(WAIT_MAX - 1)
    assert sent.error is None
    sim.advance(1)
    assert isinstance(sent.error, FragmentUnavailable)
