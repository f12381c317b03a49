"""Transactions on entities whose fragment is at another node, or at this one."""

from itertools import pairwise
from typing import cast

import pytest

from twinbus.amqp.session import Session
from twinbus.broker.outcomes import COMPLETE
from twinbus.clock import Millis
from twinbus.cluster.fronts.target import FrontQueue
from twinbus.errors import MessageLockLost, MessagingError, NotAllowed, OutcomeUnknown, TransactionUnknown
from twinbus.gateway.nodes.coordinator import Transactions
from twinbus.gateway.nodes.transaction_homes import TransactionHomes
from twinbus.gateway.transaction_room import TransactionRoom
from twinbus.model.descriptions import QueueDescription
from twinbus.model.partition_key import candidates
from twinbus.testing.cluster_simulation import ClusterSimulation
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation


@pytest.fixture(params=[2, 4])
def sim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ClusterSimulation:
    monkeypatch.setattr(Simulation, "node_count", request.param)
    made = Simulation(16)
    assert isinstance(made, ClusterSimulation)
    return made


@pytest.mark.parametrize("key", ["a", "b", "c", "d"])
def test_what_is_sent_and_completed_together_happens_together(sim: ClusterSimulation, key: str) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    sim.send(queue, make_message("first", partition_key=key))
    (held,) = sim.receiver(queue.main, 1).take()
    transaction = sim.nodes[0].fronts.new_transaction()
    sent: Answer[int] = Answer()
    settled: Answer[None] = Answer()
    front = sim.nodes[0].fronts.find("q")
    assert front is not None
    transaction.send(front, [make_message("second", partition_key=key)], sim.now, sent)
    transaction.settle(queue.main, [held.lock_token], COMPLETE, sim.now, settled)
    assert sent.value == held.lock_token[0]
    assert settled.value is None
    assert queue.main.counts().active == 1
    done: Answer[None] = Answer()
    transaction.commit(sim.now, done)
    sim.run()
    assert done.value is None
    assert sim.receiver(queue.main, 5).ids() == ["second"]


@pytest.mark.parametrize("key", ["a", "b", "c", "d"])
def test_a_rollback_leaves_nothing(sim: ClusterSimulation, key: str) -> None:
    sim.queue(QueueDescription("q", enable_partitioning=True))
    front = sim.nodes[0].fronts.find("q")
    assert front is not None
    transaction = sim.nodes[0].fronts.new_transaction()
    sent: Answer[int] = Answer()
    transaction.send(front, [make_message("m", partition_key=key)], sim.now, sent)
    assert sent.error is None
    transaction.rollback()
    sim.run()
    assert sim.entities.queue("q").main.counts().active == 0


def test_keys_of_several_nodes_are_refused_and_the_rest_can_be_committed(sim: ClusterSimulation) -> None:
    sim.queue(QueueDescription("q", enable_partitioning=True))
    front = sim.nodes[0].fronts.find("q")
    assert front is not None
    transaction = sim.nodes[0].fronts.new_transaction()
    answers: list[Answer[int]] = []
    for key in "abcdefgh":
        answers.append(Answer())
        transaction.send(front, [make_message(key, partition_key=key)], sim.now, answers[-1])
    assert answers[0].error is None
    assert all(isinstance(answer.error, NotAllowed) for answer in answers[1:])
    done: Answer[None] = Answer()
    transaction.commit(sim.now, done)
    sim.run()
    assert done.value is None
    assert sim.entities.queue("q").main.counts().active == 1


def test_an_operation_that_is_refused_does_not_decide_where_the_transaction_is(sim: ClusterSimulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for key in "abcdefgh":
        transaction = sim.transaction()
        for index in range(4):  # of all nodes
            with pytest.raises(MessageLockLost):
                transaction.settle(queue.main, [bytes([index]) + bytes(15)], COMPLETE, sim.now)
        transaction.send(queue, [make_message(key, partition_key=key)], sim.now)
        done: Answer[None] = Answer()
        transaction.commit(sim.now, done)
        sim.run()
        assert done.value is None
    assert sorted(sim.receiver(queue.main, 20).ids()) == list("abcdefgh")


def test_a_transaction_moves_with_its_transfers_and_what_is_asked_meanwhile_waits(sim: ClusterSimulation) -> None:
    """Neither a settlement elsewhere that is refused nor one that is accepted loses a transfer."""
    home = sim.queue(QueueDescription("home", enable_partitioning=True))
    target = sim.queue(QueueDescription("target"))
    key, nodes = "k", [(index, sim.owners[index]) for index in range(16)]
    first = sim.owners[candidates(key, 16, 0)[0]]
    while True:
        sim.send(home, make_message("in", via_partition_key=key))
        (held,) = sim.receiver(home.main, 1).take()
        if sim.owners[held.lock_token[0]] != first:
            break
    lost = next(index for index, node in nodes if node != first)
    fronts = sim.nodes[0].fronts
    transaction, home_front, target_front = fronts.new_transaction(), fronts.find("home"), fronts.find("target")
    assert isinstance(home_front, FrontQueue)
    assert target_front is not None
    sent: Answer[int] = Answer()
    transaction.send(target_front, [make_message("0", via_partition_key=key)], sim.now, sent, home_front)
    assert sent.error is None
    refused: Answer[None] = Answer()
    transaction.settle(home_front.main, [bytes([lost]) + bytes(15)], COMPLETE, sim.now, refused, home_front)
    assert isinstance(refused.error, MessageLockLost)
    settled, later, done = Answer[None](), Answer[int](), Answer[None]()
    transaction.settle(home_front.main, [held.lock_token], COMPLETE, sim.now, settled, home_front)
    transaction.send(target_front, [make_message("1", via_partition_key=key)], sim.now, later, home_front)
    transaction.commit(sim.now, done)
    sim.run()
    assert (settled.error, later.error, done.error) == (None, None, None)
    sim.tick()
    assert sim.receiver(target.main, 5).ids() == ["0", "1"]
    assert held.message.sequence_number not in [
        row.sequence_number for fragment in home.main.fragments for row in fragment.lane.ready
    ]


def test_what_is_asked_while_a_transaction_moves_is_placed_when_it_has(sim: ClusterSimulation) -> None:
    """Two settlements in one fragment, of which the second does not wait for the answer to the first; a third lies elsewhere."""
    home, target = sim.queue(QueueDescription("home", enable_partitioning=True)), sim.queue(QueueDescription("target"))
    first = sim.owners[candidates("k", 16, 0)[0]]
    for number in range(32):
        sim.send(home, make_message(str(number), via_partition_key="k"))
    tokens = sorted(each.lock_token for each in sim.receiver(home.main, 32).take())
    place = next(
        place for place, (one, two) in enumerate(pairwise(tokens)) if one[0] == two[0] and sim.owners[one[0]] != first
    )
    third = next(token for token in tokens if sim.owners[token[0]] == first)
    tokens = [tokens[place], tokens[place + 1], third]
    fronts = sim.nodes[0].fronts
    transaction, home_front, target_front = fronts.new_transaction(), fronts.find("home"), fronts.find("target")
    assert isinstance(home_front, FrontQueue)
    assert target_front is not None
    sent, done = Answer[int](), Answer[None]()
    transaction.send(target_front, [make_message("0", via_partition_key="k")], sim.now, sent, home_front)
    assert sent.error is None
    answers = [Answer[None]() for _ in tokens]
    for token, answer in zip(tokens, answers, strict=True):
        transaction.settle(home_front.main, [token], COMPLETE, sim.now, answer, home_front)
    transaction.commit(sim.now, done)
    sim.run()
    assert [answer.error for answer in answers[:2]] == [None, None]
    assert isinstance(answers[2].error, NotAllowed)
    assert done.error is None
    sim.tick()
    assert sim.receiver(target.main, 5).ids() == ["0"]
    assert home.main.counts().active == 30


def test_a_line_that_breaks_rolls_the_transaction_back(sim: ClusterSimulation) -> None:
    sim.queue(QueueDescription("q", enable_partitioning=True))
    front = sim.nodes[0].fronts.find("q")
    assert front is not None
    for key in "abcdefgh":
        transaction = sim.nodes[0].fronts.new_transaction()
        sent: Answer[int] = Answer()
        transaction.send(front, [make_message(key, partition_key=key)], sim.now, sent)
        is_here = sim.owners[sent.value] == 0
        for place in range(len(sim.links)):
            sim.cut(place)
        sim.connect()
        done: Answer[None] = Answer()
        transaction.commit(sim.now, done)
        sim.run()
        assert is_here == (done.error is None)
        assert is_here or isinstance(done.error, TransactionUnknown | OutcomeUnknown)


@pytest.mark.parametrize("key", ["a", "b", "c", "d"])
def test_an_operation_that_is_refused_after_the_commit_was_asked_for_can_still_doom_it(
    sim: ClusterSimulation, key: str
) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    front = sim.nodes[0].fronts.find("q")
    assert isinstance(front, FrontQueue)
    transaction = sim.nodes[0].fronts.new_transaction()
    order: list[str] = []

    def sent(_: int | MessagingError) -> None:
        order.append("sent")

    def settled(error: MessagingError | None) -> None:
        order.append("settled")
        assert error is not None
        transaction.doom(error)

    def committed(error: MessagingError | None) -> None:
        order.append("committed" if error is None else "failed")

    transaction.send(front, [make_message("m", partition_key=key)], sim.now, sent)
    token = bytes([candidates(key, len(queue.main.fragments), 0)[0]]) + bytes(15)
    transaction.settle(front.main, [token], COMPLETE, sim.now, settled)
    transaction.commit(sim.now, committed)
    sim.run()
    assert order == ["sent", "settled", "failed"]
    assert queue.main.counts().active == 0


def declared(sim: ClusterSimulation) -> tuple[Transactions, bytes, FrontQueue]:
    """The transactions of a client of the first node, one that it declared, and a partitioned queue."""
    sim.queue(QueueDescription("q", enable_partitioning=True))
    fronts = sim.nodes[0].fronts
    front = fronts.find("q")
    assert isinstance(front, FrontQueue)
    transactions = Transactions(TransactionHomes(fronts), fronts.new_transaction, TransactionRoom())
    return transactions, transactions.declare(cast(Session, object())), front


@pytest.mark.parametrize("key", ["a", "b", "c", "d"])
def test_what_is_to_be_done_after_a_commit_is_done_though_the_operation_was_answered_late(
    sim: ClusterSimulation, key: str
) -> None:
    transactions, txn_id, front = declared(sim)
    billed: list[str] = []

    def sent(_: int | MessagingError) -> None:
        transactions.after_commit(txn_id, lambda: billed.append(key))

    transactions.find(txn_id).send(front, [make_message("m", partition_key=key)], sim.now, sent)
    done: Answer[None] = Answer()
    transactions.commit(txn_id, sim.now, done)
    sim.run()
    assert (done.value, billed) == (None, [key])


@pytest.mark.parametrize("key", ["a", "b", "c", "d"])
def test_what_is_to_be_done_after_a_rollback_is_done_though_the_operation_was_answered_late(
    sim: ClusterSimulation, key: str
) -> None:
    transactions, txn_id, front = declared(sim)
    given_back: list[Millis] = []

    def sent(_: int | MessagingError) -> None:
        transactions.after_rollback(txn_id, given_back.append, sim.now)

    transactions.find(txn_id).send(front, [make_message("m", partition_key=key)], sim.now, sent)
    transactions.rollback(txn_id, sim.now)
    sim.run()
    assert given_back == [sim.now]
