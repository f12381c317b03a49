"""A store moves to another node while clients hold locks and message sessions in it: nobody who asks notices."""

from collections.abc import Sequence

import pytest

from twinbus.broker.commands import GetSessionState, PeekRange, ReceiveDeferred, SetSessionState
from twinbus.broker.consumer import ReceiveMode, SessionLock, SessionRequest, TakenMessage
from twinbus.broker.outcomes import COMPLETE, Abandon, DeadLetter, Defer
from twinbus.cluster.moves import moves
from twinbus.cluster.moves.moves import HELD_MAX
from twinbus.errors import (
    FragmentUnavailable,
    MessageLockLost,
    OutcomeUnknown,
    SessionCannotBeLocked,
    SessionLockLost,
)
from twinbus.model.descriptions import QueueDescription
from twinbus.model.partition_key import candidates
from twinbus.testing.cluster_nodes import Move
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, EachReply, SimReceiver, Simulation

LOCK = 60_000
PLAIN = QueueDescription("q", lock_duration=LOCK)
PARTITIONED = QueueDescription("q", enable_partitioning=True, lock_duration=LOCK)
SESSIONS = QueueDescription("q", requires_session=True, lock_duration=LOCK)
WAYS = [(0, 1), (1, 0), (1, 2), (0, 0)]
"""From and to; requests are made at node 0. The last: it finds no other owner, and the first takes it again."""


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    monkeypatch.setattr(Simulation, "node_count", 3)
    monkeypatch.setattr(ClusterSimulation, "has_moves", True)
    made = Simulation(4)
    assert isinstance(made, ClusterSimulation)
    return made


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}to{way[1]}")
def way(request: pytest.FixtureRequest) -> tuple[int, int]:
    found: tuple[int, int] = request.param
    return found


def store_of(queue: object) -> int:
    return int(queue.main.fragments[0].broker.index)  # type: ignore[attr-defined]


def begin(sim: ClusterSimulation, queue: object, way: tuple[int, int]) -> int:
    """Its store is at the first node."""
    store = store_of(queue)
    if sim.owners[store] != way[0]:
        sim.move(store, way[0])
    return store


def move(sim: ClusterSimulation, store: int, to: int) -> None:
    """Also to where it is."""
    if sim.owners[store] != to:
        sim.move(store, to)
        return
    begun = Move(sim, store, (to + 1) % 3)
    for _ in range(2):
        sim.run()
        assert begun.step()
    begun.to = to
    while not begun.is_over:
        sim.run()
        assert begun.step()
    sim.run()


def ids(taken: Sequence[TakenMessage]) -> list[str]:
    return [message_id_of(each.message.content) for each in taken]


def test_a_lock_from_before_is_settled_renewed_and_kept_from_others(
    sim: ClusterSimulation, way: tuple[int, int]
) -> None:
    queue = sim.queue(PLAIN)
    store = begin(sim, queue, way)
    sim.send(queue, *(make_message(name) for name in "abcde"))
    receiver = sim.receiver(queue.main, 4)
    taken = receiver.take()
    move(sim, store, way[1])
    other = sim.receiver(queue.main, 1)
    assert ids(other.take()) == ["e"]
    sim.advance(10, 10)
    assert not any(
        node.fronts.mover._arrivals for node in sim.nodes
    )  # nobody keeps locks that were loaded, or never will be
    assert sim.settle(queue.main, taken[:1]).good == {0}
    assert sim.settle(queue.main, taken[1:2], Abandon()).good == {0}
    assert sim.settle(queue.main, taken[2:3], DeadLetter("why")).good == {0}
    assert sim.settle(queue.main, taken[2:3]).errors.keys() == {0}
    renewed: Answer[list[int]] = Answer()
    queue.main.renew([taken[3].lock_token], sim.now, renewed)
    sim.run()
    assert renewed.value == [sim.now + LOCK]
    assert ids(sim.receiver(queue.dead_letter, 10).take()) == ["c"]
    assert receiver.lost is None
    receiver.credit += 5
    queue.main.pump(sim.now, receiver)
    sim.send(queue, make_message("f"))
    assert [each.message.delivery_count for each in receiver.deliveries] == [1, 0]
    assert ids(receiver.take()) == ["b", "f"]
    sim.advance(LOCK + 2_000, 1_000)
    # What nobody settles comes again, with a count that was raised once.
    assert {message_id_of(each.message.content): each.message.delivery_count for each in receiver.take()}["d"] == 1


def test_a_lock_ends_when_it_would_have_ended(sim: ClusterSimulation, way: tuple[int, int]) -> None:
    queue = sim.queue(PLAIN)
    store = begin(sim, queue, way)
    sim.send(queue, make_message("a"))
    (taken,) = sim.receiver(queue.main, 1).take()
    sim.advance(LOCK // 2)
    move(sim, store, way[1])
    other = sim.receiver(queue.main, 1)
    sim.advance(LOCK // 2 - 1_000)
    assert other.take() == []
    sim.advance(2_000)
    assert ids(other.take()) == ["a"]
    assert isinstance(sim.settle(queue.main, [taken]).errors[0], MessageLockLost)


def test_a_deferred_message_that_is_locked_stays_so(sim: ClusterSimulation, way: tuple[int, int]) -> None:
    queue = sim.queue(PLAIN)
    store = begin(sim, queue, way)
    sim.send(queue, make_message("a"))
    (taken,) = sim.receiver(queue.main, 1).take()
    sim.settle(queue.main, [taken], Defer())
    number = taken.message.sequence_number
    (locked,) = sim.ask(queue.main, ReceiveDeferred([number], ReceiveMode.PEEK_LOCK)).value
    move(sim, store, way[1])
    assert sim.ask(queue.main, ReceiveDeferred([number], ReceiveMode.PEEK_LOCK)).error is not None
    assert sim.settle(queue.main, [locked]).good == {0}
    assert queue.main.counts().deferred == 0


def test_a_message_session_is_held_on_and_its_receiver_goes_on_in_order(
    sim: ClusterSimulation, way: tuple[int, int]
) -> None:
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, way)
    sim.send(queue, *(make_message(f"a{number}", session_id="A") for number in range(6)))
    sim.send(queue, make_message("b", session_id="B"))
    lock = sim.accept(queue.main, "A").value
    receiver = sim.receiver(queue.main, 3, session=lock)
    first = receiver.take()
    assert ids(first) == ["a0", "a1", "a2"]
    sim.ask(queue.main, SetSessionState("A", b"half"))
    sim.settle(queue.main, first[:1])
    move(sim, store, way[1])
    assert lock.is_held
    assert receiver.lost is None
    assert queue.main.session_lock("A", sim.now) is lock
    assert isinstance(sim.accept(queue.main, "A").error, SessionCannotBeLocked)
    assert sim.accept(queue.main, None).value.session_id == "B"
    receiver.credit += 10
    queue.main.pump(sim.now, receiver)
    sim.run()
    rest = receiver.take()
    assert ids(rest) == ["a3", "a4", "a5"]
    settled: EachReply = EachReply()
    queue.main.settle_each([each.lock_token for each in [*first[1:], *rest]], COMPLETE, sim.now, settled, lock)
    sim.run()
    assert settled.good == {*range(5)}
    sim.advance(LOCK // 2)
    renewed: Answer[int] = Answer()
    queue.main.renew_session("A", sim.now, renewed)
    sim.run()
    assert renewed.value == lock.locked_until == sim.now + LOCK
    assert sim.ask(queue.main, GetSessionState("A")).value == b"half"
    sim.send(queue, make_message("a6", session_id="A"))
    assert ids(receiver.take()) == ["a6"]
    queue.main.detach(receiver, sim.now)
    sim.run()
    again = sim.accept(queue.main, "A").value
    assert ids(sim.receiver(queue.main, 9, session=again).take()) == ["a6"]


def test_a_message_session_ends_when_it_would_have_ended(sim: ClusterSimulation, way: tuple[int, int]) -> None:
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, way)
    sim.send(queue, make_message("a", session_id="A"))
    lock = sim.accept(queue.main, "A").value
    receiver = sim.receiver(queue.main, 3, session=lock)
    assert ids(receiver.take()) == ["a"]
    move(sim, store, way[1])
    sim.advance(LOCK + 5_000, 1_000)
    assert not lock.is_held
    assert isinstance(receiver.lost, SessionLockLost)
    taken = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "A").value).take()
    assert taken[0].message.delivery_count == 1


def test_a_shared_hold_is_taken_over_by_its_token_where_it_is_now(sim: ClusterSimulation, way: tuple[int, int]) -> None:
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, way)
    sim.send(queue, make_message("a", session_id="A"))
    lock = sim.accept(queue.main, "A", is_exclusive=False).value
    receiver = sim.receiver(queue.main, 3, session=lock)
    (taken,) = receiver.take()
    move(sim, store, way[1])
    second = sim.accept(queue.main, "A", is_exclusive=False, token=lock.token).value
    sim.tick()
    assert receiver.lost is not None
    settled: EachReply = EachReply()
    queue.main.settle_each([taken.lock_token], COMPLETE, sim.now, settled, second)
    sim.run()
    assert settled.good == {0}


def test_who_waits_for_any_message_session_gets_one_that_comes_where_the_store_is_now(
    sim: ClusterSimulation, way: tuple[int, int]
) -> None:
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, way)
    waiting = sim.accept(queue.main, None, wait=60_000)
    move(sim, store, way[1])
    assert not waiting.has_come
    sim.send(queue, make_message("a", session_id="A"))
    assert waiting.value.session_id == "A"


def test_what_is_asked_during_a_move_waits_and_is_done_in_its_order(
    sim: ClusterSimulation, way: tuple[int, int]
) -> None:
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, way)
    sim.send(queue, make_message("first", session_id="A"))
    lock = sim.accept(queue.main, "A").value
    receiver = sim.receiver(queue.main, 1, session=lock)
    (taken,) = receiver.take()
    to = way[1] if way[1] != way[0] else 2
    begun = Move(sim, store, to)
    sim.run()
    assert begun.step()
    sends = [EachReply() for _ in range(3)]
    for number, reply in enumerate(sends):
        queue.send_each([make_message(f"m{number}", session_id="A")], sim.now, reply)
    settled, renewed, state = EachReply(), Answer[int](), Answer[None]()
    queue.main.settle_each([taken.lock_token], COMPLETE, sim.now, settled, lock)
    queue.main.renew_session("A", sim.now, renewed)
    queue.main.ask(SetSessionState("A", b"s"), sim.now, state)
    accepted = Answer[object]()
    queue.main.accept_session(SessionRequest("B"), sim.now, sim.now, accepted)
    sim.run()
    assert not any(reply.good or reply.errors for reply in [*sends, settled])
    assert not renewed.has_come
    while not begun.is_over:
        sim.run()
        assert begun.step()
    sim.run()
    assert all(reply.good == {0} for reply in [*sends, settled])
    assert (renewed.error, state.error, accepted.error) == (None, None, None)
    receiver.credit += 5
    queue.main.pump(sim.now, receiver)
    sim.run()
    assert ids(receiver.take()) == ["m0", "m1", "m2"]


def test_messages_without_a_key_do_not_wait_while_another_fragment_stays(sim: ClusterSimulation) -> None:
    queue = sim.queue(PARTITIONED)
    store = store_of(queue)
    begun = Move(sim, store, (sim.owners[store] + 1) % 3)
    sim.run()
    assert begun.step()
    reply = sim.send(queue, *(make_message(str(number)) for number in range(64)))
    assert reply.good == {*range(64)}
    while not begun.is_over:
        sim.run()
        assert begun.step()
    assert len(sim.receiver(queue.main, 100).take()) == 64


def test_a_move_that_nobody_ends_is_given_up_and_everybody_is_told(sim: ClusterSimulation) -> None:
    queue = sim.queue(SESSIONS)
    sim.send(queue, make_message("a", session_id="A"))
    lock = sim.accept(queue.main, "A").value
    receiver = sim.receiver(queue.main, 1, session=lock)
    begun = Move(sim, store_of(queue), 2 if sim.owners[store_of(queue)] != 2 else 1)
    for _ in range(2):
        sim.run()
        assert begun.step()
    waiting = EachReply()
    queue.send_each([make_message("b", session_id="B")], sim.now, waiting)
    sim.advance(HELD_MAX + 200, 100)
    assert isinstance(waiting.errors[0], FragmentUnavailable)
    assert isinstance(receiver.lost, SessionLockLost)
    assert not lock.is_held


def test_more_than_the_limit_does_not_wait(sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "HELD_BYTES_MAX", 4_000)
    queue = sim.queue(PLAIN)
    begun = Move(sim, store_of(queue), 2 if sim.owners[store_of(queue)] != 2 else 1)
    for _ in range(2):
        sim.run()
        assert begun.step()
    replies = [EachReply() for _ in range(4)]
    for reply in replies:
        queue.send_each([make_message("a", body=bytes(1_000))], sim.now, reply)
    sim.run()
    assert [bool(reply.errors) for reply in replies] == [False, False, True, True]
    assert isinstance(replies[3].errors[0], FragmentUnavailable)


def test_a_node_that_does_not_hold_keeps_no_message_session(sim: ClusterSimulation) -> None:
    """As one of a release before, which knows nothing of moves."""
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, (1, 2))
    sim.nodes[0].topics.asks = {topic: call for topic, call in sim.nodes[0].topics.asks.items() if topic != 23}
    sim.send(queue, make_message("a", session_id="A"))
    lock = sim.accept(queue.main, "A").value
    receiver = sim.receiver(queue.main, 1, session=lock)
    sim.move(store, 2)
    sim.tick()
    assert isinstance(receiver.lost, SessionLockLost)
    assert sim.accept(queue.main, "A").value.session_id == "A"


def test_a_message_session_that_moves_to_where_its_holder_is_not_reached_is_free_there(sim: ClusterSimulation) -> None:
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, (1, 2))
    sim.send(queue, make_message("a", session_id="A"))
    receiver = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "A").value)
    (place,) = [place for place, link in enumerate(sim.links) if link.nodes == (0, 2)]
    sim.cut(place)
    sim.move(store, 2)
    sim.connect()
    sim.tick()
    assert isinstance(receiver.lost, SessionLockLost)
    again = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "A").value)
    assert ids(again.take()) == ["a"]


def test_a_receiver_attaches_while_its_only_part_moves(sim: ClusterSimulation, way: tuple[int, int]) -> None:
    queue = sim.queue(PLAIN)
    store = begin(sim, queue, way)
    to = way[1] if way[1] != way[0] else 2
    sim.send(queue, make_message("a"))
    begun = Move(sim, store, to)
    for _ in range(2):
        sim.run()
        assert begun.step()
    receiver = SimReceiver(5)
    queue.main.attach(receiver, sim.now)
    peeked = Answer[object]()
    queue.main.ask(PeekRange(0, 10, 10), sim.now, peeked)
    sim.tick()
    assert receiver.lost is None
    while not begun.is_over:
        sim.run()
        assert begun.step()
    sim.tick()
    assert ids(receiver.take()) == ["a"]
    assert peeked.has_come


def test_of_a_transaction_whose_store_moves_all_or_nothing_happens(
    sim: ClusterSimulation, way: tuple[int, int]
) -> None:
    queue = sim.queue(PLAIN)
    store = begin(sim, queue, way)
    sim.send(queue, make_message("a"))
    receiver = sim.receiver(queue.main, 1)
    (taken,) = receiver.take()
    transaction = sim.transaction()
    transaction.settle(queue.main, [taken.lock_token], COMPLETE, sim.now)
    transaction.send(queue, [make_message("b")], sim.now)
    move(sim, store, way[1])
    committed: Answer[None] = Answer()
    transaction.commit(sim.now, committed)
    sim.run()
    if committed.error is None:
        assert way == (0, 0)
        assert ids(sim.receiver(queue.main, 9).take()) == ["b"]
    else:
        assert queue.main.counts().active == 1
        assert sim.settle(queue.main, [taken]).good == {0}  # the lock has moved


# Requests name no epoch


def take_over(sim: ClusterSimulation, store: int, to: int) -> None:
    """As of a node that is taken for dead: nothing moves with the store."""
    sim.change_owner(store, to)
    broker = sim.nodes[to].brokers[store]
    broker.is_foreign = False
    broker.store_returned()
    sim.ports[store].run()


def deliver(sim: ClusterSimulation, *nodes: int) -> None:
    """What the line between these two has, both ways, and what that causes."""
    (link,) = [link for link in sim.links if link.nodes == nodes]
    for _ in range(4):
        for is_back in (False, True):
            link.step(sim.now, is_back=is_back)
        for port in sim.ports:
            port.run()


def test_a_request_that_comes_to_a_former_owner_is_certainly_not_done(sim: ClusterSimulation) -> None:
    queue = sim.queue(PLAIN)
    store = begin(sim, queue, (1, 2))
    sim.send(queue, make_message("a"))
    (taken,) = sim.receiver(queue.main, 1).take()
    sim.has_stepped_lines = True
    sent, settled = EachReply(), EachReply()
    queue.send_each([make_message("b")], sim.now, sent)
    queue.main.settle_each([taken.lock_token], COMPLETE, sim.now, settled)
    take_over(sim, store, 2)
    deliver(sim, 0, 1)
    for error in (sent.errors[0], settled.errors[0]):
        assert not isinstance(error, OutcomeUnknown)
    assert isinstance(sent.errors[0], FragmentUnavailable)
    summary = sim.nodes[2].fronts.part.queue(queue.main.key).counts()
    assert summary.active == 1


@pytest.mark.parametrize(
    "is_far", [False, True], ids=["the move is heard of first", "the next owner is heard of first"]
)
def test_who_settles_or_renews_too_late_at_a_node_that_has_given_its_store_away_does_so_at_the_next_one(
    sim: ClusterSimulation, is_far: bool
) -> None:
    """Nobody has waited for the node that asks: it was asked to wait with this, and did not answer in time."""
    queue = sim.queue(PLAIN)
    store = begin(sim, queue, (1, 2))
    sim.send(queue, *(make_message(name) for name in "abcd"))
    one, both, kept, other = sim.receiver(queue.main, 4).take()
    sim.has_stepped_lines = True
    settled, all_settled, renewed, given_back = EachReply(), Answer[None](), Answer[list[int]](), EachReply()
    queue.main.settle_each([one.lock_token], COMPLETE, sim.now, settled)
    queue.main.settle([both.lock_token], COMPLETE, sim.now, all_settled)
    queue.main.renew([kept.lock_token], sim.now, renewed)
    queue.main.settle_each([other.lock_token], Abandon(), sim.now, given_back)
    moving = Move(sim, store, 2)
    moving._held()
    while not moving.is_over:
        deliver(sim, 1, 2)
        assert moving.step()
    for _ in range(2):
        if is_far:
            deliver(sim, 0, 2)
        deliver(sim, 0, 1)
        deliver(sim, 0, 2)
    assert settled.good == given_back.good == {0}
    assert all_settled.error is renewed.error is None
    left = sim.nodes[2].fronts.part.queue(queue.main.key)
    assert left.counts().active == 2
    held = left.fragments[0].locks.held
    assert {token for token, (_, until) in held.items() if until == renewed.value[0]} == {kept.lock_token}


def test_a_request_for_an_owner_that_has_lost_the_store_and_has_it_again_is_done_or_refused_for_what_it_names(
    sim: ClusterSimulation,
) -> None:
    queue = sim.queue(PLAIN)
    store = begin(sim, queue, (1, 2))
    sim.send(queue, make_message("a"))
    (taken,) = sim.receiver(queue.main, 1).take()
    sim.has_stepped_lines = True
    sent, settled = EachReply(), EachReply()
    queue.send_each([make_message("b")], sim.now, sent)
    queue.main.settle_each([taken.lock_token], COMPLETE, sim.now, settled)
    take_over(sim, store, 2)
    take_over(sim, store, 1)
    deliver(sim, 0, 1)
    assert sent.good == {0}
    assert isinstance(settled.errors[0], MessageLockLost)
    assert sim.nodes[1].fronts.part.queue(queue.main.key).counts().active == 2


def test_messages_that_are_long_on_their_way_from_a_former_owner_are_not_handed_over(sim: ClusterSimulation) -> None:
    queue = sim.queue(PLAIN)
    store = begin(sim, queue, (1, 2))
    receiver = sim.receiver(queue.main, 5)
    sim.has_stepped_lines = True
    part = sim.nodes[1].fronts.part.queue(queue.main.key)
    local = sim.nodes[1].entities.queue("q")
    local.send_each([make_message("a")], sim.now, EachReply())
    sim.ports[store].run()
    assert part.counts().active == 1
    take_over(sim, store, 2)
    for node in (sim.nodes[0], sim.nodes[2]):
        node.heard_owner([store, 2, sim.epochs[store]], sim.now)
    deliver(sim, 0, 1)
    assert receiver.take() == []
    assert receiver.lost is None
    for _ in range(3):
        for links in ((0, 2), (0, 1)):
            deliver(sim, *links)
        sim.nodes[0].fronts.tick(sim.now)
    assert ids(receiver.take()) == ["a"]


def test_a_receiver_that_leaves_during_a_move_gives_its_message_session_back_afterwards(
    sim: ClusterSimulation, way: tuple[int, int]
) -> None:
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, way)
    sim.send(queue, make_message("a", session_id="A"))
    receiver = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "A").value)
    assert ids(receiver.take()) == ["a"]
    begun = Move(sim, store, way[1] if way[1] != way[0] else 2)
    sim.run()
    queue.main.detach(receiver, sim.now)
    while not begun.is_over:
        sim.run()
        assert begun.step()
    sim.run()
    assert receiver.lost is None
    again = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "A").value)
    assert [each.message.delivery_count for each in again.take()] == [0]


def test_a_hold_that_moves_before_its_receiver_has_heard_of_it_is_found_where_it_is(sim: ClusterSimulation) -> None:
    """The answer and the news that it has moved come on different lines."""
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, (1, 2))
    sim.send(queue, make_message("a", session_id="A"))
    sim.has_stepped_lines = True
    accepted = Answer[SessionLock]()
    queue.main.accept_session(SessionRequest("A"), sim.now, sim.now, accepted)
    (link,) = [link for link in sim.links if link.nodes == (0, 1)]
    begun = Move(sim, store, 2)
    link.step(sim.now, is_back=False)  # it is accepted at node 1, whose answer is on its way
    begun._is_held, begun._holding = True, {0, 1, 2}
    for _ in range(2):
        sim.ports[store].run()
        assert begun.step()
    deliver(sim, 1, 2)
    while not begun.is_over:
        deliver(sim, 1, 2)
        assert begun.step()
    deliver(sim, 0, 2)
    assert not accepted.has_come
    deliver(sim, 0, 1)
    sim.has_stepped_lines = False
    receiver = sim.receiver(queue.main, 1, session=accepted.value)
    assert ids(receiver.take()) == ["a"]
    assert receiver.lost is None


@pytest.mark.parametrize("is_heard_first", [True, False])
@pytest.mark.parametrize("ends", ["the line", "the process"])
def test_a_hold_that_has_moved_is_not_taken_for_one_of_the_next_line(
    sim: ClusterSimulation, ends: str, is_heard_first: bool
) -> None:
    """Where it has moved to says so on another line, and so perhaps too late."""
    queue = sim.queue(SESSIONS)
    begin(sim, queue, (1, 2))
    sim.send(queue, make_message("a", session_id="A"))
    peers = sim.nodes[0].fronts.peers
    sim.accept(queue.main, "B")
    (former,) = peers[1].holds
    if is_heard_first:
        peers[1].holds.clear()
        peers.hold_moved(1, former, 2, 7, None)
    if ends == "the line":
        (place,) = [place for place, link in enumerate(sim.links) if link.nodes == (0, 1)]
        sim.cut(place)
    else:
        sim.clock.advance(1)
        sim.kill_node(1)
    sim.connect()
    sim.run()
    if not is_heard_first:
        peers.hold_moved(1, former, 2, 7, None)
    receiver = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "A").value)
    assert ids(receiver.take()) == ["a"]
    queue.main.detach(receiver, sim.now)
    sim.run()
    assert sim.accept(queue.main, "A").error is None


def test_a_hold_that_moves_twice_before_its_receiver_has_heard_of_it_is_found_where_it_is(
    sim: ClusterSimulation,
) -> None:
    queue = sim.queue(SESSIONS)
    begin(sim, queue, (1, 2))
    peers = sim.nodes[0].fronts.peers
    sim.accept(queue.main, "B")
    (before,) = peers[1].holds
    peers.hold_moved(1, before + 1, 2, 7, None)
    peers.hold_moved(2, 7, 1, 9, None)
    hold = sim.accept(queue.main, "A").value
    assert (hold.node, hold.number) == (1, 9)  # type: ignore[attr-defined]
    assert not peers[2].holds


def test_a_hold_is_over_if_the_line_to_where_it_moved_broke_before_its_receiver_heard_of_it(
    sim: ClusterSimulation,
) -> None:
    queue = sim.queue(SESSIONS)
    begin(sim, queue, (1, 2))
    sim.send(queue, make_message("a", session_id="A"))
    peers = sim.nodes[0].fronts.peers
    sim.accept(queue.main, "B")
    (before,) = peers[1].holds
    peers.hold_moved(1, before + 1, 2, 7, None)
    (place,) = [place for place, link in enumerate(sim.links) if link.nodes == (0, 2)]
    sim.cut(place)
    sim.connect()
    lock = sim.accept(queue.main, "A").value
    with pytest.raises(SessionLockLost):
        queue.main.attach(SimReceiver(1, ReceiveMode.PEEK_LOCK, lock), sim.now)


@pytest.mark.parametrize("to", [0, 2])
def test_who_waits_for_any_message_session_gets_the_messages_of_one_whose_store_was_taken_over(
    sim: ClusterSimulation, to: int
) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True, requires_session=True, lock_duration=LOCK))
    store = queue.main.fragments[candidates("s", len(queue.main.fragments), 0)[0]].broker.index
    if sim.owners[store] != 1:
        sim.move(store, 1)
    sim.send(queue, *(make_message(name, session_id="s") for name in "abc"))
    for place, link in enumerate(sim.links):
        if 1 in link.nodes:
            sim.cut(place)
    accepted: Answer[SessionLock] = Answer()
    queue.main.accept_session(SessionRequest(None), sim.now + LOCK, sim.now, accepted)
    take_over(sim, store, to)
    sim.run()
    receiver = SimReceiver(3, ReceiveMode.PEEK_LOCK, accepted.value)
    queue.main.attach(receiver, sim.now)
    sim.run()
    assert ids(receiver.take()) == ["a", "b", "c"]


def test_what_is_on_its_way_to_another_entity_when_its_store_moves_is_forwarded_from_where_it_is_then(
    sim: ClusterSimulation,
) -> None:
    """Whoever had begun to forward it does not find it any more, and a lock for that would never end."""
    target = sim.queue(QueueDescription("target"))
    source = sim.queue(QueueDescription("source", forward_to="target"))
    store, there = store_of(source), store_of(target)
    assert store != there
    sim.ports[there].is_hung = True
    sim.send(source, make_message("a"), make_message("b"))
    sim.move(store, (sim.owners[store] + 1) % 3)
    sim.ports[there].is_hung = False
    sim.advance(5_000, 100)
    assert source.main.counts().active == 0
    receiver = sim.receiver(target.main, 10)
    assert set(receiver.ids()) == {"a", "b"}


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_message_with_a_key_that_finds_no_room_to_wait_does_not_overtake_those_that_do(
    sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch, is_batch: bool
) -> None:
    """Its owner still serves the store, for as long as somebody is in the middle of something there."""
    monkeypatch.setattr(moves, "HELD_BYTES_MAX", 10_000)
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, (1, 2))
    begun = Move(sim, store, 2)
    sim.run()
    first, second, answer = EachReply(), EachReply(), Answer[list[int]]()
    queue.send_each([make_message("first", session_id="A")], sim.now, first)
    large = make_message("second", session_id="A", body=bytes(10_000))
    if is_batch:
        queue.send_batch([large], sim.now, answer)
    else:
        queue.send_each([large], sim.now, second)
    sim.run()
    assert not first.good
    assert isinstance(answer.error if is_batch else second.errors[0], FragmentUnavailable)
    while not begun.is_over:
        sim.run()
        assert begun.step()
    sim.run()
    assert first.good == {0}
    assert ids(sim.receiver(queue.main, 5, session=sim.accept(queue.main, "A").value).take()) == ["first"]


@pytest.mark.parametrize("to", [0, 2])
def test_a_transaction_that_finds_no_room_to_wait_for_a_move_overtakes_nothing_that_waits(
    sim: ClusterSimulation, monkeypatch: pytest.MonkeyPatch, to: int
) -> None:
    monkeypatch.setattr(moves, "HELD_BYTES_MAX", 10_000)
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, (1, to))
    begun = Move(sim, store, to)
    sim.run()
    first, refused, again = EachReply(), Answer[int](), Answer[int]()
    queue.send_each([make_message("first", session_id="A")], sim.now, first)
    transaction = sim.nodes[0].fronts.new_transaction()
    transaction.send(queue, [make_message("second", session_id="A", body=bytes(10_000))], sim.now, refused)
    sim.run()
    assert not first.good
    assert isinstance(refused.error, FragmentUnavailable)
    while not begun.is_over:
        sim.run()
        assert begun.step()
    sim.run()
    transaction.send(queue, [make_message("second", session_id="A")], sim.now, again)
    committed: Answer[None] = Answer()
    transaction.commit(sim.now, committed)
    sim.run()
    assert (again.error, committed.error) == (None, None)
    assert ids(sim.receiver(queue.main, 5, session=sim.accept(queue.main, "A").value).take()) == ["first", "second"]


def test_a_message_session_that_was_given_up_during_a_move_is_free_when_that_ends(
    sim: ClusterSimulation, way: tuple[int, int]
) -> None:
    queue = sim.queue(SESSIONS)
    store = begin(sim, queue, way)
    sim.send(queue, make_message("a", session_id="A"))
    receiver = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "A").value)
    begun = Move(sim, store, way[1] if way[1] != way[0] else 2)
    for _ in range(2):
        sim.run()
        assert begun.step()
    begun.to = way[1]
    sim.advance(HELD_MAX + 200, 100)
    assert isinstance(receiver.lost, SessionLockLost)
    while not begun.is_over:
        sim.run()
        assert begun.step()
    sim.run()
    sim.tick()
    again = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "A").value)
    assert ids(again.take()) == ["a"]
    assert not any(peer.holds for peer in sim.nodes[0].fronts.peers if peer.node != way[1])
