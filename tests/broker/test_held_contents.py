"""Contents of locked messages that are left to the store, and come back when they are needed."""

import pytest

from twinbus.broker import held_contents
from twinbus.broker.commands import Claim, Purge, ReceiveDeferred
from twinbus.broker.consumer import ReceiveMode, SessionLock, SessionRequest, TakenMessage
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.fragment import reading_again, settlement
from twinbus.broker.held_contents import ROW_BYTES, unread_content
from twinbus.broker.outcomes import COMPLETE, RELEASE, Abandon, DeadLetter, Defer, Outcome
from twinbus.errors import FragmentUnavailable, MessagingError
from twinbus.model.content import application_properties
from twinbus.model.descriptions import QueueDescription
from twinbus.store.reads import ReadNumbers
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, EachReply, SimReceiver, Simulation

LOCK = 30_000
NAMES = [str(number) for number in range(5)]


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q", lock_duration=LOCK, max_delivery_count=3))


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_contents, "HELD_BYTES_MAX", 0)


def ids(deliveries: list[TakenMessage]) -> list[str]:
    return [message_id_of(delivery.message.content) for delivery in deliveries]


def send_and_take(sim: Simulation, queue: QueueEntity) -> list[TakenMessage]:
    sim.send(queue, *[make_message(name) for name in NAMES])
    receiver = sim.receiver(queue.main, len(NAMES))
    taken = receiver.take()
    queue.main.detach(receiver, sim.now)
    return taken


def unread_count(queue: QueueEntity) -> int:
    held = queue.main.fragments[0].locks.held.values()
    return sum(unread_content(message) is not None for message, _ in held)


def test_a_receiver_that_takes_everything_and_settles_nothing_keeps_the_last_contents_in_memory_alone(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_contents, "HELD_BYTES_MAX", 10 * (1_100 + ROW_BYTES))
    for number in range(100):
        sim.send(queue, make_message(str(number), body=bytes(1_000)))
    taken = [delivery for _ in range(100) for delivery in sim.receiver(queue.main, 1).take()]
    assert len(queue.main.fragments[0].locks.held) == len(set(ids(taken))) == 100
    assert 90 <= unread_count(queue) < 100


def test_whoever_got_a_message_has_its_content_all_the_same(sim: Simulation, queue: QueueEntity) -> None:
    assert ids(send_and_take(sim, queue)) == NAMES
    assert unread_count(queue) == len(NAMES)


@pytest.mark.parametrize("outcome", [COMPLETE, RELEASE, Abandon(), Defer()], ids=lambda outcome: type(outcome).__name__)
def test_what_needs_no_content_reads_none(
    sim: Simulation, queue: QueueEntity, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = send_and_take(sim, queue)
    monkeypatch.setattr(ReadNumbers, "run", None)
    assert sim.settle(queue.main, taken, outcome).good == set(range(len(NAMES)))


@pytest.mark.parametrize(
    "outcome", [RELEASE, Abandon(), Abandon({"seen": 1})], ids=["release", "abandon", "properties"]
)
def test_what_is_free_again_comes_in_order_with_its_content(
    sim: Simulation, queue: QueueEntity, outcome: Outcome
) -> None:
    taken = send_and_take(sim, queue)
    # From the last one on, and with messages behind them that are ready.
    sim.send(queue, make_message("new"))
    for delivery in reversed(taken):
        assert sim.settle(queue.main, [delivery], outcome).good == {0}
    again = sim.receiver(queue.main, 10).take()
    assert ids(again) == [*NAMES, "new"]
    if isinstance(outcome, Abandon) and outcome.properties:
        assert [application_properties(each.message.content) for each in again] == [*[{"seen": 1}] * len(NAMES), {}]


def test_one_that_is_free_again_between_others_that_are_not_takes_its_place(
    sim: Simulation, queue: QueueEntity
) -> None:
    taken = send_and_take(sim, queue)
    sim.settle(queue.main, taken[3:4], RELEASE)
    sim.settle(queue.main, taken[1:2], RELEASE)
    assert ids(sim.receiver(queue.main, 10).take()) == ["1", "3"]
    assert queue.main.counts().active == len(NAMES)


def test_one_that_comes_back_while_the_store_is_asked_for_more_is_found_afterwards(
    sim: Simulation, queue: QueueEntity
) -> None:
    taken = send_and_take(sim, queue)
    lane = queue.main.fragments[0].lane
    lane.beyond += 1  # as far as the lane knows
    receiver = SimReceiver(10)
    queue.main.attach(receiver, sim.now)
    assert lane.is_filling
    queue.main.settle_each([delivery.lock_token for delivery in taken[1:3]], RELEASE, sim.now, EachReply())
    sim.run()
    assert ids(receiver.take()) == ["1", "2"]


@pytest.mark.parametrize("at_once", [1, 2, 1_000])
def test_dead_letters_have_their_content_and_the_reason(
    sim: Simulation, queue: QueueEntity, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many contents an answer of the store holds."""
    size = len(make_message("0").content)
    monkeypatch.setattr(reading_again, "ROWS_BYTES_MAX", at_once * size)
    taken = send_and_take(sim, queue)
    assert sim.settle(queue.main, taken, DeadLetter("why")).good == set(range(len(NAMES)))
    dead = sim.receiver(queue.dead_letter, 10).take()
    assert ids(dead) == NAMES
    assert {application_properties(each.message.content)["DeadLetterReason"] for each in dead} == {"why"}


def test_one_that_comes_back_while_somebody_claims_what_lies_behind_it_is_found_afterwards(
    sim: Simulation, queue: QueueEntity
) -> None:
    taken = send_and_take(sim, queue)
    sim.send(queue, make_message("new"))
    claimed = Answer[list[int]]()
    queue.main.ask(Claim(10), sim.now, claimed)
    queue.main.settle_each([taken[3].lock_token], RELEASE, sim.now, EachReply())
    sim.run()
    assert claimed.value == [taken[-1].message.sequence_number + 1]
    assert sim.receiver(queue.main, 9).ids() == [NAMES[3]]


def test_locks_that_end_too_often_dead_letter_messages_with_their_content(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, *[make_message(name) for name in NAMES])
    receiver = sim.receiver(queue.main, 3 * len(NAMES))
    for _ in range(3):
        sim.advance(LOCK)
    assert ids(receiver.take()) == 3 * NAMES
    assert ids(sim.receiver(queue.dead_letter, 10).take()) == NAMES


def test_many_locks_that_end_together_do_so_in_pieces_and_in_order(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "ENDED_COUNT_MAX", 2)
    send_and_take(sim, queue)
    sim.clock.advance(LOCK)
    assert queue.main.fragments[0].locks.next_expiry() == sim.now
    sim.brokers[0].tick(sim.now)
    assert len(queue.main.fragments[0].locks) == 3
    sim.tick()
    assert len(queue.main.fragments[0].locks) == 0
    again = sim.receiver(queue.main, 10).take()
    assert ids(again) == NAMES
    assert {each.message.delivery_count for each in again} == {1}


def test_a_deferred_message_has_its_content(sim: Simulation, queue: QueueEntity) -> None:
    taken = send_and_take(sim, queue)
    sim.settle(queue.main, taken[:1], Defer())
    sim.settle(queue.main, taken[1:2], Defer({"seen": 1}))
    answer = sim.ask(
        queue.main, ReceiveDeferred([each.message.sequence_number for each in taken[:2]], ReceiveMode.PEEK_LOCK)
    )
    assert ids(answer.value) == NAMES[:2]
    assert application_properties(answer.value[1].message.content) == {"seen": 1}


def test_all_or_none_is_settled_once_their_contents_are_here(sim: Simulation, queue: QueueEntity) -> None:
    taken = send_and_take(sim, queue)
    answer: Answer[None] = Answer()
    queue.main.settle([each.lock_token for each in taken], DeadLetter("why"), sim.now, answer)
    sim.run()
    assert answer.value is None
    assert ids(sim.receiver(queue.dead_letter, 10).take()) == NAMES


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_transaction_dead_letters_messages_with_their_content(is_partitioned: bool) -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q", enable_partitioning=is_partitioned))
    sim.send(queue, *[make_message(name, partition_key="k") for name in NAMES])
    taken = sim.receiver(queue.main, len(NAMES)).take()
    transaction = sim.transaction()
    transaction.settle(queue.main, [each.lock_token for each in taken[:2]], DeadLetter("why"), sim.now)
    transaction.settle(queue.main, [each.lock_token for each in taken[2:]], COMPLETE, sim.now)
    transaction.send(queue, [make_message("new", partition_key="k")], sim.now)
    answer: Answer[None] = Answer()
    transaction.commit(sim.now, answer)
    sim.run()
    assert answer.value is None
    assert ids(sim.receiver(queue.dead_letter, 10).take()) == NAMES[:2]
    assert ids(sim.receiver(queue.main, 10).take()) == ["new"]


def test_a_store_that_is_lost_while_contents_are_read_fails_the_settlement_and_everything_comes_again(
    sim: Simulation, queue: QueueEntity
) -> None:
    taken = send_and_take(sim, queue)
    reply = EachReply()
    queue.main.settle_each([each.lock_token for each in taken], DeadLetter("why"), sim.now, reply)
    sim.lose_store(0)
    assert [isinstance(error, FragmentUnavailable) for error in reply.errors.values()] == [True] * len(NAMES)
    sim.return_store(0)
    assert ids(sim.receiver(queue.main, 10).take()) == NAMES


def test_nobody_else_gets_hold_of_messages_whose_contents_are_being_read_for_their_settlement(
    sim: Simulation, queue: QueueEntity
) -> None:
    taken = send_and_take(sim, queue)
    reply, purged = EachReply(), Answer[list[int]]()
    queue.main.ask(Purge(10, sim.now + 1), sim.now, purged)  # finds them once they are no longer locked
    queue.main.settle_each([each.lock_token for each in taken], DeadLetter("why"), sim.now, reply)
    sim.run()
    assert purged.value == []
    assert len(reply.good) == len(NAMES)
    assert ids(sim.receiver(queue.dead_letter, 10).take()) == NAMES
    sim.send(queue, make_message("later"))
    assert len(sim.ask(queue.main, Purge(10, sim.now + 1)).value) == 1, "nothing is kept out for ever"


class TestMessageSessions:
    @pytest.fixture
    def queue(self, sim: Simulation) -> QueueEntity:
        return sim.queue(QueueDescription("q", requires_session=True, lock_duration=LOCK, max_delivery_count=2))

    def take(self, sim: Simulation, queue: QueueEntity) -> list[TakenMessage]:
        return sim.receiver(queue.main, 10, session=sim.accept(queue.main, "s").value).take()

    def test_messages_of_a_session_that_ends_come_again_and_become_dead_letters_with_their_content(
        self, sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(settlement, "ENDED_COUNT_MAX", 2)
        sim.send(queue, *[make_message(name, session_id="s") for name in NAMES])
        for _ in range(2):
            assert ids(self.take(sim, queue)) == NAMES
            sim.advance(LOCK)
        assert ids(sim.receiver(queue.dead_letter, 10).take()) == NAMES
        assert self.take(sim, queue) == []

    @pytest.mark.parametrize("dead", [["a"], ["a", "b", "c"]])
    def test_what_comes_back_beside_a_dead_letter_is_first_for_the_next_holder(
        self, sim: Simulation, queue: QueueEntity, dead: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the first step, or in a later one."""
        monkeypatch.setattr(settlement, "ENDED_COUNT_MAX", 2)
        sim.send(queue, *[make_message(name, session_id="s") for name in dead])
        assert ids(self.take(sim, queue)) == dead
        sim.advance(LOCK)
        sim.send(queue, *[make_message(name, session_id="s") for name in NAMES])
        former = sim.receiver(queue.main, len(dead) + 1, session=sim.accept(queue.main, "s").value)
        assert ids(former.take()) == [*dead, NAMES[0]]
        sim.clock.advance(LOCK)
        heir = SimReceiver(10)

        def attach(lock: SessionLock | MessagingError) -> None:
            assert not isinstance(lock, MessagingError)
            heir.session = lock
            queue.main.attach(heir, sim.now)

        queue.main.accept_session(SessionRequest("s"), sim.now, sim.now, attach)
        sim.run()
        assert ids(heir.take()) == NAMES
        assert ids(sim.receiver(queue.dead_letter, 10).take()) == dead

    def test_a_holder_waits_for_nothing_that_was_settled_after_it_came(
        self, sim: Simulation, queue: QueueEntity
    ) -> None:
        sim.send(queue, make_message("m", session_id="s"))
        (fragment,) = queue.main.fragments
        let_in = fragment.keep_out([101])
        receiver = sim.receiver(queue.main, 1, session=sim.accept(queue.main, "s").value)
        fragment.keep_out([102])
        assert receiver.take() == []
        let_in()
        sim.run()
        assert ids(receiver.take()) == ["m"]


def test_nothing_can_be_done_with_a_content_that_is_not_here_but_asking_for_its_size(
    sim: Simulation, queue: QueueEntity
) -> None:
    taken = send_and_take(sim, queue)
    ((message, _), *_) = queue.main.fragments[0].locks.held.values()
    assert len(message.content) == len(taken[0].message.content)
    with pytest.raises(TypeError):
        b"".join([message.content])


@pytest.mark.parametrize("outcome", [DeadLetter("why"), Abandon({"seen": 1})], ids=["dead letter", "properties"])
def test_what_is_deleted_with_its_queue_before_it_is_read_again_fails(
    sim: Simulation, queue: QueueEntity, outcome: Outcome
) -> None:
    taken = send_and_take(sim, queue)
    deleted: Answer[None] = Answer()
    sim.entities.delete("q", sim.now, deleted)
    reply = sim.settle(queue.main, taken, outcome)
    assert deleted.value is None
    assert {type(error) for error in reply.errors.values()} == {FragmentUnavailable}
    assert len(reply.errors) == len(NAMES)
