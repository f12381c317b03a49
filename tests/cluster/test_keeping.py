"""What a node keeps of its own: nothing alone, nearly everything where all are busy, and the parts stay even."""

import random
from collections import Counter
from typing import Any

import pytest

from twinbus.broker.consumer import ReceiveMode
from twinbus.broker.outcomes import COMPLETE
from twinbus.broker.target import TargetName
from twinbus.cluster.fronts.receiver import FrontReceiver
from twinbus.cluster.fronts.target import FrontQueue
from twinbus.cluster.lines.talk import decode_deliver
from twinbus.cluster.ownership import Ownership
from twinbus.cluster.peers.keeping import FRESH_FOR, LEAD, ROOM_MAX, TOLD_EVERY, Keeping
from twinbus.cluster.peers.peer import Peer
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import EachReply, SimReceiver, Simulation

BURST = 256
NOW = 10_000


class Fixed(Ownership):
    """Node 0 of some."""

    def __init__(self, count: int, *, is_here: bool = True) -> None:
        self.node = 0
        self._nodes = list(range(0 if is_here else 1, count))

    @property
    def nodes(self) -> list[int]:
        return self._nodes


def keeping(count: int, *, is_here: bool = True) -> tuple[Keeping, list[tuple[int, int]]]:
    said: list[tuple[int, int]] = []
    return Keeping(Fixed(count, is_here=is_here), lambda node, done: said.append((node, done))), said


def test_a_node_may_keep_as_much_as_the_one_that_does_least_and_be_ahead_of_it_by_a_little() -> None:
    kept, _ = keeping(3)
    kept.told(1, 500, NOW)
    assert kept.room(NOW) == 0
    kept.told(2, 300, NOW)
    assert kept.room(NOW) == LEAD + 300
    kept.keep(100)
    assert kept.room(NOW) == LEAD + 200


def test_what_was_kept_and_not_used_may_be_kept_again() -> None:
    kept, _ = keeping(2)
    kept.told(1, 300, NOW)
    kept.keep(200)
    kept.unkeep(150)
    assert kept.room(NOW) == LEAD + 250
    kept.unkeep(ROOM_MAX)
    assert kept.room(NOW) == ROOM_MAX


def test_what_was_done_a_while_ago_does_not_count() -> None:
    kept, _ = keeping(2)
    kept.told(1, 500, NOW)
    assert kept.room(NOW + FRESH_FOR) == LEAD + 500
    assert kept.room(NOW + FRESH_FOR + 1) == 0
    kept.told(1, 10, NOW + FRESH_FOR + 1)
    assert kept.room(NOW + FRESH_FOR + 1) == LEAD + 10


@pytest.mark.parametrize("by", [3_600_000, -3_600_000], ids=["forward", "back"])
def test_what_was_just_done_still_was_when_the_clock_was_set(by: int) -> None:
    kept, _ = keeping(2)
    kept.told(1, 300, NOW)
    kept.clock_stepped(by)
    assert kept.room(NOW + by + FRESH_FOR) == LEAD + 300
    assert kept.room(NOW + by + FRESH_FOR + 1) == 0


def test_a_node_gets_ahead_of_a_slow_one_once_and_not_each_time_that_it_hears_of_it() -> None:
    kept, _ = keeping(2)
    now, total = NOW, 0
    for _ in range(10):
        kept.told(1, 300, now)
        total += kept.room(now)
        kept.keep(kept.room(now))
        now += FRESH_FOR + 1
    assert total == LEAD + 10 * 300


def test_a_node_that_had_no_part_for_a_while_has_nothing_to_catch_up_with() -> None:
    """Its stores were at other nodes while it was started again, and the others went on to keep their own."""
    owned = Fixed(3)
    kept = Keeping(owned, lambda node, done: None)
    for node in (1, 2):
        kept.told(node, 300, NOW)
    owned.nodes.remove(2)
    for _ in range(100):
        kept.told(1, 300, NOW)
        kept.keep(300)
    owned.nodes.append(2)
    for node in (1, 2):
        kept.told(node, 300, NOW)
    assert kept.room(NOW) == 300


def test_parts_never_drift_further_apart_than_the_limit() -> None:
    kept, _ = keeping(2)
    for _ in range(100):
        kept.told(1, 1_000, NOW)
    assert kept.room(NOW) == ROOM_MAX


def test_others_are_told_now_and_then() -> None:
    kept, said = keeping(3)
    kept.done_here(TOLD_EVERY - 1)
    assert said == []
    kept.done_here(3)
    assert said == [(1, TOLD_EVERY + 2), (2, TOLD_EVERY + 2)]


@pytest.mark.parametrize(("count", "is_here"), [(1, True), (3, False)])
def test_who_has_no_part_or_all_of_them_keeps_nothing(count: int, is_here: bool) -> None:
    kept, _ = keeping(count, is_here=is_here)
    for node in range(1, count):
        kept.told(node, 500, NOW)
    assert kept.room(NOW) == 0


# Over two nodes


class Crossing:
    """Counts what crosses lines, by what is asked of peers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = self.delivered = 0
        send, deliver = Peer.send_each, Peer.delivered

        def send_each(peer: Peer, name: Any, messages: Any, *rest: Any) -> None:
            self.sent += len(messages)
            send(peer, name, messages, *rest)

        def delivered(peer: Peer, payload: bytes) -> None:
            self.delivered += len(decode_deliver(payload)[1])
            deliver(peer, payload)

        monkeypatch.setattr(Peer, "send_each", send_each)
        monkeypatch.setattr(Peer, "delivered", delivered)


@pytest.fixture
def nodes() -> int:
    return 2


@pytest.fixture
def sim(nodes: int, monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    monkeypatch.setattr(Simulation, "node_count", nodes)
    made = Simulation(4)
    assert isinstance(made, ClusterSimulation)
    made.queue(QueueDescription("q", enable_partitioning=True))
    return made


def front(sim: ClusterSimulation, node: int) -> FrontQueue:
    found = sim.nodes[node].fronts.find("q")
    assert isinstance(found, FrontQueue)
    return found


def send(sim: ClusterSimulation, node: int, count: int = BURST) -> None:
    reply = EachReply()
    front(sim, node).send_each([make_message(f"{node}") for _ in range(count)], sim.now, reply)
    sim.run()
    assert len(reply.good) == count


def by_fragment(sim: ClusterSimulation) -> Counter[int]:
    fragments = sim.entities.queue("q").main.fragments
    return Counter({fragment.index: fragment.tally.active_count for fragment in fragments})


def by_node(sim: ClusterSimulation) -> list[int]:
    fragments, held = sim.entities.queue("q").main.fragments, by_fragment(sim)
    return [
        sum(held[each.index] for each in fragments if sim.owners[each.broker.index] == node)
        for node in range(len(sim.nodes))
    ]


def test_where_both_nodes_send_much_most_of_it_crosses_no_line_and_the_parts_are_even(
    sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing = Crossing(monkeypatch)
    for _ in range(20):
        send(sim, 0)
        send(sim, 1)
    first, second = by_node(sim)
    assert first + second == 40 * BURST
    assert abs(first - second) <= ROOM_MAX / 4
    assert crossing.sent < 0.2 * 40 * BURST


@pytest.mark.parametrize("nodes", [4])
def test_nodes_that_are_busy_alike_but_not_at_the_same_moment_keep_most_of_their_own(
    sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, crossing = random.Random(1), Crossing(monkeypatch)
    for _ in range(100):
        send(sim, turns.randrange(4))
    held = by_node(sim)
    assert sum(held) == 100 * BURST
    assert max(held) - min(held) <= ROOM_MAX / 2
    assert crossing.sent < 0.25 * sum(held)


def test_what_one_node_sends_more_is_shared_out(sim: ClusterSimulation) -> None:
    for _ in range(20):
        for _ in range(3):
            send(sim, 0)
        send(sim, 1)
    first, second = by_node(sim)
    assert abs(first - second) <= ROOM_MAX / 4


def test_messages_that_are_sent_one_after_the_other_go_round_whatever_others_do(sim: ClusterSimulation) -> None:
    for _ in range(4):
        send(sim, 0)
        send(sim, 1)
    send(sim, 0, 1)  # the last that joins the load before it
    before = by_fragment(sim)
    for _ in range(len(before)):
        send(sim, 0, 1)
    grown = by_fragment(sim)
    grown.subtract(before)
    assert set(grown.values()) == {1}


def test_where_both_nodes_have_receivers_most_messages_cross_no_line_and_all_come(
    sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        send(sim, 0)
        send(sim, 1)
    total, crossing, got = 20 * BURST, Crossing(monkeypatch), [0, 0]
    receivers = [SimReceiver(0, ReceiveMode.PEEK_LOCK) for _ in sim.nodes]
    for node, receiver in enumerate(receivers):
        front(sim, node).main.attach(receiver, sim.now)
    rounds = 0
    while sum(got) < total:
        for node, receiver in enumerate(receivers):
            receiver.credit += 100
            front(sim, node).main.pump(sim.now, receiver)
            sim.run()
            taken = receiver.take()
            got[node] += len(taken)
            tokens, reply = [each.lock_token for each in taken], EachReply()
            front(sim, node).main.settle_each(tokens, COMPLETE, sim.now, reply)
            sim.run()
            assert len(reply.good) == len(tokens)
        rounds += 1
        assert rounds < 2 * total / 100, got
    assert sum(by_fragment(sim).values()) == 0
    assert crossing.delivered < 0.2 * total


# Credit while both nodes are busy


@pytest.fixture
def busy(sim: ClusterSimulation) -> ClusterSimulation:
    """Receivers of every node have taken much of late, so each may keep as much."""
    for node in range(len(sim.nodes)):
        for other in range(len(sim.nodes)):
            front(sim, node).main._keeping.told(other, 1_000, sim.now)
    return sim


def receiver_at(sim: ClusterSimulation, node: int, credit: int) -> tuple[SimReceiver, FrontReceiver]:
    receiver, source = SimReceiver(0, ReceiveMode.PEEK_LOCK), front(sim, node).main
    source.attach(receiver, sim.now)
    receiver.credit += credit
    source.pump(sim.now, receiver)
    sim.run()
    return receiver, source._receivers[receiver]


def put_at(sim: ClusterSimulation, node: int, count: int) -> None:
    """Messages that come to the part of this node."""
    part, reply = sim.nodes[node].fronts.part.way_in(TargetName("q")), EachReply()
    part.placement.send_each([make_message(str(each)) for each in range(count)], sim.now, reply)
    sim.run()
    assert len(reply.good) == count


def demand_of(front: FrontReceiver) -> dict[int, int]:
    return {share.node: share.outstanding for share in front.shares}


def test_while_all_are_busy_another_part_gets_as_much_demand_as_it_says_it_has(busy: ClusterSimulation) -> None:
    receiver, at_front = receiver_at(busy, 0, 100)
    assert demand_of(at_front) == {0: 100, 1: 0}
    put_at(busy, 1, 7)
    assert len(receiver.take()) == 7
    assert demand_of(at_front) == {0: 93, 1: 0}


def test_credit_that_comes_back_unused_takes_nothing_from_what_a_node_may_keep(busy: ClusterSimulation) -> None:
    keeping = front(busy, 0).main._keeping
    receiver, _ = receiver_at(busy, 0, 100)
    assert keeping.room(busy.now) == LEAD + 900
    put_at(busy, 1, 7)
    assert keeping.room(busy.now) == LEAD + 907
    front(busy, 0).main.recall(receiver, busy.now)
    busy.run()
    assert receiver.credit == 93
    assert keeping.room(busy.now) == LEAD + 1_000


def test_while_the_part_of_a_node_has_messages_its_credit_stays_there(busy: ClusterSimulation) -> None:
    put_at(busy, 0, 300)
    put_at(busy, 1, 7)
    receiver, at_front = receiver_at(busy, 0, 100)
    assert len(receiver.take()) == 100
    receiver.credit += 100
    front(busy, 0).main.pump(busy.now, receiver)
    assert len(receiver.take()) == 100
    assert demand_of(at_front) == {0: 0, 1: 0}


def test_a_queue_without_receivers_tells_what_is_left_over(sim: ClusterSimulation) -> None:
    told: list[int] = []
    front(sim, 0).main.local.tell_left_over(lambda ready: told.append(ready()))
    put_at(sim, 0, 3)
    assert told[-1:] == [3]


def test_only_as_many_receivers_as_are_needed_hear_what_is_left_over(busy: ClusterSimulation) -> None:
    first, _ = receiver_at(busy, 0, 100)
    second, at_second = receiver_at(busy, 0, 100)
    put_at(busy, 1, 7)
    assert [len(first.take()), len(second.take())] == [7, 0]
    assert demand_of(at_second) == {0: 100, 1: 0}


@pytest.mark.parametrize("nodes", [4])
def test_of_what_is_left_over_every_node_gives_demand_for_its_share(busy: ClusterSimulation) -> None:
    fronts = [receiver_at(busy, node, 100)[1] for node in (1, 2, 3)]
    put_at(busy, 0, 30)
    demand = [demand_of(front) for front in fronts]
    assert sum(sum(each.values()) for each in demand) == 3 * 100 - 30
    assert sum(each[0] for each in demand) < 30
