"""A message with a key waits while the node of its fragment cannot be reached: for a line to it, or for another node that takes over."""

import pytest

from tests.cluster.sent_messages import Sent
from twinbus.cluster.moves import moves
from twinbus.cluster.ownership import TAKEN_MAX
from twinbus.cluster.peers.held_sends import HELD_BYTES_MAX, HELD_MAX
from twinbus.errors import FragmentUnavailable, OutcomeUnknown
from twinbus.model.descriptions import QueueDescription
from twinbus.pairing.deciding.partitioning import Partitioning
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import EachReply, Simulation

PARTITIONED = QueueDescription("q", enable_partitioning=True)
GONE, LEFT = 1, 2
"""Nodes. Requests are made at node 0."""


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    """Three nodes with two stores each, whose owners may change."""
    monkeypatch.setattr(Simulation, "node_count", 3)
    monkeypatch.setattr(ClusterSimulation, "has_moves", True)
    made = Simulation(6)
    assert isinstance(made, ClusterSimulation)
    made.queue(PARTITIONED)
    return made


def key_at(sim: ClusterSimulation, node: int) -> tuple[str, int]:
    """A key of a fragment that this node has, and the store."""
    fragments = sim.entities.queue("q").main.fragments
    index, fragment = next(each for each in enumerate(fragments) if sim.owners[each[1].broker.index] == node)
    return Partitioning(len(fragments)).key_in(index), fragment.broker.index


def lose_sight(sim: ClusterSimulation) -> None:
    """Of the node that is gone, at the one where requests are made."""
    for link in [link for link in sim.links if {*link.nodes} == {0, GONE}]:
        link.cut(sim.now)


def take_over(sim: ClusterSimulation, store: int) -> None:
    sim.change_owner(store, LEFT)
    broker = sim.brokers[store]
    broker.is_foreign = False
    broker.store_returned()
    sim.ports[store].run()


def received(sim: ClusterSimulation) -> list[str]:
    return sim.receiver(sim.entities.queue("q").main, 100).ids()


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_message_with_a_key_waits_for_the_node_that_takes_its_fragment_over(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    key, store = key_at(sim, GONE)
    lose_sight(sim)
    sent = Sent(sim, key, is_batch=is_batch)
    sim.advance(3_000, 100)
    assert sent.waits
    take_over(sim, store)
    sim.run()
    assert sent.is_accepted
    assert received(sim) == ["m"]


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_message_with_a_key_waits_for_a_line_to_its_node(sim: ClusterSimulation, is_batch: bool) -> None:
    key, _ = key_at(sim, GONE)
    lose_sight(sim)
    sent = Sent(sim, key, is_batch=is_batch)
    sim.run()
    assert sent.waits
    sim.connect()
    sim.run()
    assert sent.is_accepted
    assert received(sim) == ["m"]


@pytest.mark.parametrize("is_batch", [False, True])
def test_it_is_refused_if_nobody_has_come_after_a_while(sim: ClusterSimulation, is_batch: bool) -> None:
    key, _ = key_at(sim, GONE)
    lose_sight(sim)
    sent = Sent(sim, key, is_batch=is_batch)
    sim.advance(HELD_MAX - 200, 100)
    assert sent.waits
    sim.advance(400, 100)
    assert type(sent.error) is FragmentUnavailable


@pytest.mark.parametrize("is_batch", [False, True])
def test_nobody_waits_for_a_node_that_has_been_away_for_longer_than_a_takeover_lasts(
    sim: ClusterSimulation, is_batch: bool
) -> None:
    key, _ = key_at(sim, GONE)
    lose_sight(sim)
    sim.advance(TAKEN_MAX - 100, 100)
    late = Sent(sim, key, is_batch=is_batch)
    assert late.waits
    sim.advance(100)
    too_late = Sent(sim, key, is_batch=is_batch)
    assert type(too_late.error) is FragmentUnavailable
    # A node that was there in between is gone anew.
    sim.connect()
    sim.run()
    assert late.is_accepted
    lose_sight(sim)
    assert Sent(sim, key, is_batch=is_batch).waits


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_a_clock_that_is_set_makes_nobody_wait_longer_or_shorter(sim: ClusterSimulation, by: int) -> None:
    key, _ = key_at(sim, GONE)
    lose_sight(sim)
    sim.advance(TAKEN_MAX - 1_000, 100)
    sim.set_clock(by)
    sent = Sent(sim, key, is_batch=False)
    assert sent.waits
    sim.advance(1_000, 100)
    assert sent.waits
    assert Sent(sim, key, is_batch=False).error is not None


@pytest.mark.parametrize("is_batch", [False, True])
def test_nobody_waits_for_a_store_that_is_switched_off(sim: ClusterSimulation, is_batch: bool) -> None:
    key, store = key_at(sim, GONE)
    lose_sight(sim)
    sim.nodes[0].owners.downs = {store}
    assert type(Sent(sim, key, is_batch=is_batch).error) is FragmentUnavailable


@pytest.mark.parametrize("is_batch", [False, True])
def test_what_a_node_may_have_done_is_not_sent_again(sim: ClusterSimulation, is_batch: bool) -> None:
    key, store = key_at(sim, GONE)
    sim.has_stepped_lines = True
    sent = Sent(sim, key, is_batch=is_batch)
    lose_sight(sim)
    assert type(sent.error) is OutcomeUnknown
    sim.has_stepped_lines = False
    take_over(sim, store)
    sim.run()
    assert received(sim) == []


def test_messages_with_one_key_stay_in_the_order_in_which_they_were_sent(sim: ClusterSimulation) -> None:
    key, _ = key_at(sim, GONE)
    lose_sight(sim)
    sent = [Sent(sim, key, is_batch=number % 3 == 0, name=str(number)) for number in range(6)]
    sim.connect()
    sent += [Sent(sim, key, is_batch=False, name=str(number)) for number in range(6, 9)]
    sim.run()
    assert all(each.is_accepted for each in sent)
    assert received(sim) == [str(number) for number in range(9)]


def test_messages_with_other_keys_are_not_kept_waiting(sim: ClusterSimulation) -> None:
    away, _ = key_at(sim, GONE)
    there, _ = key_at(sim, LEFT)
    lose_sight(sim)
    queue, reply = sim.entities.queue("q"), EachReply()
    queue.send_each([make_message("1", partition_key=away), make_message("2", partition_key=there)], sim.now, reply)
    sim.run()
    assert reply.good == {1}
    assert reply.errors == {}
    sim.connect()
    sim.run()
    assert reply.good == {0, 1}


def test_however_much_waits_with_a_key_there_is_room_for_messages_without_one(sim: ClusterSimulation) -> None:
    key, _ = key_at(sim, GONE)
    lose_sight(sim)
    body = bytes(HELD_BYTES_MAX // 20)
    sent = [Sent(sim, key, is_batch=False, body=body) for _ in range(20)]
    assert sum(each.waits for each in sent) < 20
    assert type(sent[-1].error) is FragmentUnavailable
    for store in [store for store, owner in enumerate(sim.owners) if owner != GONE]:
        sim.lose_store(store)
    assert Sent(sim, None, is_batch=False).waits


def test_what_finds_no_room_to_wait_for_a_move_overtakes_nothing_that_does(
    sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, store = key_at(sim, GONE)
    monkeypatch.setattr(moves, "HELD_BYTES_MAX", 10_000)
    sim.nodes[0].owners.moves.begin(store, sim.epochs.get(store, 0), sim.now)
    first = Sent(sim, key, is_batch=False, name="first")
    lose_sight(sim)
    second = Sent(sim, key, is_batch=False, name="second", body=bytes(10_000))
    assert first.waits
    assert type(second.error) is FragmentUnavailable
    take_over(sim, store)
    sim.run()
    assert first.is_accepted
    assert received(sim) == ["first"]
