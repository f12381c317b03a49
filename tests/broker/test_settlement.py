"""What settling does to a message (contract A5, A15)."""

import time

import pytest

from twinbus.amqp.codec.types import Long, Timestamp
from twinbus.broker.commands import ReceiveDeferred
from twinbus.broker.consumer import ReceiveMode, TakenMessage
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.fragment import settlement
from twinbus.broker.fragment_transaction import FragmentTransaction
from twinbus.broker.outcomes import COMPLETE, Abandon, DeadLetter, Defer, Outcome, Release
from twinbus.broker.replies import UNAWAITED, SettleReply
from twinbus.errors import MessageLockLost, MessageTooLarge, NotAllowed
from twinbus.model.content import application_properties
from twinbus.model.descriptions import QueueDescription
from twinbus.model.message_limits import HEADER_SIZE_MAX
from twinbus.model.wire_names import MessageState
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, EachReply, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation()


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q", max_delivery_count=3))


def receive_one(sim: Simulation, queue: QueueEntity) -> TakenMessage:
    receiver = sim.receiver(queue.main, 1)
    (delivery,) = receiver.take()
    queue.main.detach(receiver, sim.now)
    return delivery


@pytest.mark.rule("A5.3")
def test_a_completed_message_is_gone_for_good(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    sim.settle(queue.main, [receive_one(sim, queue)])
    sim.restart()
    assert sim.receiver(sim.entities.queue("q").main, 1).take() == []
    assert sim.entities.queue("q").main.counts().active == 0


@pytest.mark.parametrize(
    "outcome", [COMPLETE, Abandon(), DeadLetter("why"), Release()], ids=lambda each: type(each).__name__
)
def test_very_many_are_settled_in_steps_and_each_is_answered_once(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    monkeypatch.setattr(settlement, "SETTLED_TOGETHER", 10)
    monkeypatch.setattr(settlement, "WRITTEN_TOGETHER", 10)
    names = [str(number) for number in range(35)]
    sim.send(queue, *[make_message(name) for name in names])
    receiver = sim.receiver(queue.main, len(names))
    tokens = [delivery.lock_token for delivery in receiver.take()]
    queue.main.detach(receiver, sim.now)
    reply = EachReply()
    queue.main.settle_each(tokens, outcome, sim.now, reply)
    locks = queue.main.fragments[0].locks
    assert len(locks) == 25
    sim.turn()
    assert len(locks) == 15
    sim.run()
    assert (len(locks), reply.good, reply.errors) == (0, set(range(35)), {})
    home = queue.dead_letter if isinstance(outcome, DeadLetter) else queue.main
    expected = [] if outcome is COMPLETE else names
    assert sim.receiver(home, 100).ids() == expected


@pytest.mark.one_node("another node is always waited for")
@pytest.mark.parametrize(
    ("outcome", "reply", "expected"),
    [(COMPLETE, UNAWAITED, 1), (COMPLETE, EachReply(), 0), (Abandon(), UNAWAITED, 0), (DeadLetter(), UNAWAITED, 0)],
    ids=["completed", "completed with an answer", "abandoned", "dead-lettered"],
)
def test_the_store_may_take_its_time_where_nobody_waits_for_the_answer_or_for_the_message(
    sim: Simulation, queue: QueueEntity, outcome: Outcome, reply: SettleReply, expected: int
) -> None:
    sim.send(queue, make_message("m"))
    queue.main.settle_each([receive_one(sim, queue).lock_token], outcome, sim.now, reply)
    sim.run()
    assert sim.ports[0].unawaited_count == expected


def test_a_store_that_is_lost_between_two_steps_fails_the_rest(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "SETTLED_TOGETHER", 1)
    sim.send(queue, *[make_message(name) for name in "abc"])
    held = sim.receiver(queue.main, 3).take()
    reply = EachReply()
    queue.main.settle_each([delivery.lock_token for delivery in held], COMPLETE, sim.now, reply)
    sim.lose_store(0)
    assert set(reply.errors) == {0, 1, 2}


@pytest.mark.parametrize("outcome", [Abandon, Defer, DeadLetter], ids=lambda each: each.__name__)
def test_many_properties_for_many_messages_are_encoded_once(
    sim: Simulation, queue: QueueEntity, outcome: type[Abandon | Defer | DeadLetter]
) -> None:
    """Goal: no client can stall a namespace with a request. To encode them for each message takes two seconds."""
    sim.send(queue, *[make_message(str(number)) for number in range(1_000)])
    tokens = [delivery.lock_token for delivery in sim.receiver(queue.main, 1_000).take()]
    new = {f"p{number}": number for number in range(5_000)}
    before = time.thread_time()
    queue.main.settle_each(tokens, outcome(properties=new), sim.now, EachReply())
    assert time.thread_time() - before < 0.7


NOTE = {"note": "x" * 1_000}


class TestManyLargeMessages:
    """Three messages, two of which can be written again in one commit."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(settlement, "REWRITTEN_BYTES_MAX", 2_500)
        monkeypatch.setattr(settlement, "WRITTEN_BYTES_TOGETHER", 2_500)

    @pytest.fixture
    def held(self, sim: Simulation, queue: QueueEntity) -> list[TakenMessage]:
        sim.send(queue, *[make_message(str(number), body=bytes(1_000)) for number in range(3)])
        return sim.receiver(queue.main, 3).take()

    @pytest.mark.parametrize(
        ("body", "outcome"),
        [
            (1_000, DeadLetter("why")),
            (0, DeadLetter("why", properties=NOTE)),
            (0, DeadLetter("x" * 1_000)),
            (0, Defer(NOTE)),
            (0, Abandon(NOTE)),
        ],
        ids=["large", "noted", "with a long reason", "deferred", "abandoned"],
    )
    def test_they_are_written_in_steps_by_what_they_and_new_properties_measure(
        self, sim: Simulation, queue: QueueEntity, body: int, outcome: Outcome
    ) -> None:
        sim.send(queue, *[make_message(str(number), body=bytes(body)) for number in range(3)])
        receiver = sim.receiver(queue.main, 3)
        tokens = [delivery.lock_token for delivery in receiver.take()]
        queue.main.detach(receiver, sim.now)
        reply, locks = EachReply(), queue.main.fragments[0].locks
        queue.main.settle_each(tokens, outcome, sim.now, reply)
        assert len(locks) == 1
        sim.run()
        assert (len(locks), reply.good, reply.errors) == (0, {0, 1, 2}, {})

    def test_of_a_message_session_those_that_fit_are_settled_and_the_others_stay_locked(self, sim: Simulation) -> None:
        queue = sim.queue(QueueDescription("s", requires_session=True))
        sim.send(queue, *[make_message(str(number), session_id="a", body=bytes(900)) for number in range(3)])
        lock = sim.accept(queue.main, "a").value
        held = sim.receiver(queue.main, 3, session=lock).take()
        reply = sim.settle(queue.main, held, DeadLetter("why"))
        assert (reply.good, {place: type(error) for place, error in reply.errors.items()}) == (
            {0, 1},
            {2: MessageTooLarge},
        )
        assert sim.settle(queue.main, held[2:], DeadLetter("why")).good == {0}
        assert sim.receiver(queue.dead_letter, 9).ids() == ["0", "1", "2"]

    def test_new_properties_count_where_all_or_none_are_settled(self, sim: Simulation, queue: QueueEntity) -> None:
        sim.send(queue, *[make_message(str(number)) for number in range(3)])
        tokens = [delivery.lock_token for delivery in sim.receiver(queue.main, 3).take()]
        for outcome in (DeadLetter("why", "", NOTE), Defer(NOTE), Abandon(NOTE)):
            answer: Answer[None] = Answer()
            queue.main.settle(tokens, outcome, sim.now, answer)
            assert isinstance(answer.error, MessageTooLarge)

    def test_a_transaction_counts_new_properties(self, sim: Simulation, queue: QueueEntity) -> None:
        sim.send(queue, *[make_message(str(number)) for number in range(3)])
        held = sim.receiver(queue.main, 3).take()
        transaction = FragmentTransaction()
        for delivery in held[:2]:
            transaction.settle(queue.main, [delivery.lock_token], Defer(NOTE), sim.now)
        assert 2_000 < transaction.size_bytes < 2_500
        with pytest.raises(MessageTooLarge, match="Settle fewer at once"):
            transaction.settle(queue.main, [held[2].lock_token], Defer(NOTE), sim.now)
        assert 2_000 < transaction.size_bytes < 2_500

    def test_they_are_completed_all_the_same(
        self, sim: Simulation, queue: QueueEntity, held: list[TakenMessage]
    ) -> None:
        assert sim.settle(queue.main, held).good == {0, 1, 2}

    def test_they_are_not_settled_together_unless_nothing_is_written_again(
        self, sim: Simulation, queue: QueueEntity, held: list[TakenMessage]
    ) -> None:
        tokens = [delivery.lock_token for delivery in held]
        for outcome in (DeadLetter("why"), Defer(), Abandon()):
            answer: Answer[None] = Answer()
            queue.main.settle(tokens, outcome, sim.now, answer)
            assert isinstance(answer.error, MessageTooLarge)
        together: Answer[None] = Answer()
        queue.main.settle(tokens, COMPLETE, sim.now, together)
        sim.run()
        assert together.error is None

    def test_a_transaction_refuses_what_it_could_not_commit(
        self, sim: Simulation, queue: QueueEntity, held: list[TakenMessage]
    ) -> None:
        transaction = FragmentTransaction()
        for delivery in held[:2]:
            transaction.settle(queue.main, [delivery.lock_token], DeadLetter("why"), sim.now)
        with pytest.raises(MessageTooLarge, match="Settle fewer at once"):
            transaction.settle(queue.main, [held[2].lock_token], Defer(), sim.now)
        transaction.settle(queue.main, [held[2].lock_token], COMPLETE, sim.now)


def test_completing_twice_fails_with_a_lost_lock(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    delivery = receive_one(sim, queue)
    assert sim.settle(queue.main, [delivery]).good == {0}
    assert isinstance(sim.settle(queue.main, [delivery]).errors[0], MessageLockLost)


@pytest.mark.rule("A5.3")
def test_an_abandoned_message_comes_again_with_a_higher_count(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    first = receive_one(sim, queue)
    assert first.message.delivery_count == 0
    sim.settle(queue.main, [first], Abandon({"note": "later"}))
    second = receive_one(sim, queue)
    assert second.message.sequence_number == first.message.sequence_number
    assert second.message.delivery_count == 1
    assert application_properties(second.message.content)["note"] == "later"


def test_the_size_follows_properties_that_were_modified(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    before = queue.main.counts().size_bytes
    sim.settle(queue.main, [receive_one(sim, queue)], Abandon({"note": "x" * 1_000}))
    (fragment,) = queue.main.fragments
    stored = {summary.fragment: summary.size_bytes for summary in sim.ports[0].store.summaries()}
    assert queue.main.counts().size_bytes == stored[fragment.key] > before + 1_000


def test_the_count_of_an_abandoned_message_survives_a_restart(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    sim.settle(queue.main, [receive_one(sim, queue)], Abandon())
    sim.restart()
    assert receive_one(sim, sim.entities.queue("q")).message.delivery_count == 1


@pytest.mark.rule("A15.2")
def test_a_message_delivered_too_often_is_dead_lettered(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    for _ in range(3):
        sim.settle(queue.main, [receive_one(sim, queue)], Abandon())
    assert queue.main.counts().active == 0
    (dead,) = sim.receiver(queue.dead_letter, 5).take()
    written = application_properties(dead.message.content)
    assert written["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert "3 times" in str(written["DeadLetterErrorDescription"])


def test_a_released_message_keeps_its_count_and_its_place(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, *[make_message(name) for name in "abc"])
    receiver = sim.receiver(queue.main, 2)
    first, second = receiver.take()
    queue.main.detach(receiver, sim.now)
    sim.settle(queue.main, [second, first], Release())
    again = sim.receiver(queue.main, 3)
    assert [delivery.message.delivery_count for delivery in again.deliveries] == [0, 0, 0]
    assert again.ids() == ["a", "b", "c"]


def test_an_abandoned_message_with_a_delay_hides_until_then_and_keeps_its_number(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.send(queue, make_message("m"))
    first = receive_one(sim, queue)
    sim.settle(queue.main, [first], Abandon(delay=10_000))
    receiver = sim.receiver(queue.main, 1)
    sim.advance(9_900)
    assert receiver.take() == []
    sim.advance(200)
    (again,) = receiver.take()
    assert again.message.sequence_number == first.message.sequence_number
    assert again.message.delivery_count == 1


@pytest.mark.rule("A15")
def test_a_dead_lettered_message_gets_a_new_number_and_remembers_the_old_one(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.send(queue, make_message("a"), make_message("b"))
    sim.settle(queue.main, [receive_one(sim, queue)])
    delivery = receive_one(sim, queue)
    sim.settle(queue.main, [delivery], DeadLetter("bad", "very bad", {"who": "me"}))
    (dead,) = sim.receiver(queue.dead_letter, 1).take()
    assert dead.message.sequence_number == 1
    assert dead.message.enqueued_sequence_number == delivery.message.sequence_number == 2
    assert application_properties(dead.message.content) == {
        "DeadLetterReason": "bad",
        "DeadLetterErrorDescription": "very bad",
        "who": "me",
    }
    assert queue.main.counts().active == 0
    assert queue.dead_letter.counts().active == 1


def test_what_is_dead_lettered_cannot_be_dead_lettered_again(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    sim.settle(queue.main, [receive_one(sim, queue)], DeadLetter())
    dead = sim.receiver(queue.dead_letter, 1).take()
    assert isinstance(sim.settle(queue.dead_letter, dead, DeadLetter()).errors[0], NotAllowed)
    assert sim.settle(queue.dead_letter, dead).good == {0}


def test_a_dead_letter_queue_neither_limits_nor_counts_deliveries(sim: Simulation, queue: QueueEntity) -> None:
    """The service's own count of a dead letter is that of its deliveries before, however often it is abandoned."""
    sim.send(queue, make_message("m"))
    sim.settle(queue.main, [receive_one(sim, queue)], Abandon())
    sim.settle(queue.main, [receive_one(sim, queue)], DeadLetter())
    receiver = sim.receiver(queue.dead_letter, 30)
    for _ in range(20):
        sim.settle(queue.dead_letter, receiver.take(), Abandon())
    assert [delivery.message.delivery_count for delivery in receiver.take()] == [1]
    sim.advance(queue.main.settings.lock_duration + 1)
    assert [delivery.message.delivery_count for delivery in receiver.take()] == [1]


def test_settling_works_from_a_receiver_that_is_gone(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    delivery = receive_one(sim, queue)
    answer: Answer[None] = Answer()
    queue.main.settle([delivery.lock_token], Defer(), sim.now, answer)
    sim.run()
    assert answer.value is None
    assert queue.main.counts().deferred == 1


def test_settling_together_is_all_or_nothing(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    delivery = receive_one(sim, queue)
    answer: Answer[None] = Answer()
    queue.main.settle([delivery.lock_token, b"\0" * 16], Defer(), sim.now, answer)
    sim.run()
    assert isinstance(answer.error, MessageLockLost)
    assert sim.settle(queue.main, [delivery]).good == {0}


@pytest.mark.rule("A8.3")
def test_tokens_of_several_fragments_cannot_be_settled_together() -> None:
    sim = Simulation(4)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for name in "ab":
        sim.send(queue, make_message(name))
    first, second = sim.receiver(queue.main, 2).take()
    answer: Answer[None] = Answer()
    queue.main.settle([first.lock_token, second.lock_token], Defer(), sim.now, answer)
    assert isinstance(answer.error, NotAllowed)
    assert sim.settle(queue.main, [first, second]).good == {0, 1}


def test_a_token_that_is_none_of_ours_fails_alone(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    delivery = receive_one(sim, queue)
    foreign = [b"", b"\xff" * 16, b"\0" * 16]
    reply = sim.settle(queue.main, [delivery, *[delivery._replace(lock_token=token) for token in foreign]])
    assert reply.good == {0}
    assert {type(error) for error in reply.errors.values()} == {MessageLockLost}
    assert set(reply.errors) == {1, 2, 3}


def test_received_and_deleted_means_removed_before_it_is_handed_over(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    sim.ports[0].is_hung = True
    receiver = sim.receiver(queue.main, 1, ReceiveMode.RECEIVE_AND_DELETE)
    assert receiver.deliveries == []
    sim.ports[0].is_hung = False
    sim.run()
    (delivery,) = receiver.take()
    assert delivery.lock_token == b""
    assert receiver.credit == 0
    sim.restart()
    assert sim.receiver(sim.entities.queue("q").main, 1).take() == []


def test_nothing_settled_is_answered_before_it_is_durable(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    delivery = receive_one(sim, queue)
    sim.ports[0].is_hung = True
    reply = sim.settle(queue.main, [delivery])
    assert reply.good == set()
    sim.ports[0].is_hung = False
    sim.run()
    assert reply.good == {0}


def test_a_deferred_message_has_its_state_in_the_store(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m"))
    delivery = receive_one(sim, queue)
    sim.settle(queue.main, [delivery], Defer())
    sim.restart()
    queue = sim.entities.queue("q")
    assert queue.main.counts().deferred == 1
    answer: Answer[list[TakenMessage]] = Answer()
    queue.main.ask(ReceiveDeferred([delivery.message.sequence_number], ReceiveMode.PEEK_LOCK), sim.now, answer)
    sim.run()
    assert answer.value[0].message.state is MessageState.DEFERRED


@pytest.mark.rule("A15")
def test_reason_and_description_of_a_dead_letter_keep_the_types_they_came_with(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.send(queue, make_message("m"))
    delivery = receive_one(sim, queue)
    sim.settle(queue.main, [delivery], DeadLetter(Timestamp(7), Long(8)))
    (dead,) = sim.receiver(queue.dead_letter, 1).take()
    properties = application_properties(dead.message.content)
    reason, description = properties["DeadLetterReason"], properties["DeadLetterErrorDescription"]
    assert (type(reason), reason, type(description), description) == (Timestamp, 7, Long, 8)


def test_two_messages_that_are_too_large_together_are_refused_and_one_never_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "REWRITTEN_BYTES_MAX", 10)
    assert settlement.check_size(1, 11) is None
    assert isinstance(settlement.check_size(2, 11), MessageTooLarge)
    assert settlement.check_size(2, 10) is None


@pytest.mark.parametrize("outcome", [Abandon, Defer])
def test_properties_that_make_a_message_too_large_make_it_a_dead_letter_as_it_was(
    outcome: type[Abandon | Defer],
) -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("plain"))
    sim.send(queue, make_message("m", application_properties={"colour": "red"}))
    held = sim.receiver(queue.main, 1).take()
    assert sim.settle(queue.main, held, outcome({"much": "x" * HEADER_SIZE_MAX})).good == {0}
    (dead,) = sim.receiver(queue.dead_letter, 9).take()
    found = application_properties(dead.message.content)
    assert (found["DeadLetterReason"], found["colour"], found.get("much")) == ("HeaderSizeExceeded", "red", None)
    # There it has nowhere else to go, and stays as it is.
    assert sim.settle(queue.dead_letter, [dead], outcome({"much": "x" * HEADER_SIZE_MAX})).good == {0}
    assert queue.holdings().dead_letter.active + queue.holdings().dead_letter.deferred == 1
