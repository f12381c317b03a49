"""Message sessions (contract A9)."""

from dataclasses import replace

import pytest

from tests.broker.measured_store import MeasuredStore
from twinbus.broker.commands import (
    CountSessions,
    GetSessionState,
    ListSessions,
    Peek,
    Purge,
    ReceiveDeferred,
    SetSessionState,
)
from twinbus.broker.consumer import ReceiveMode, SessionLock, SessionRequest, TakenMessage
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.session_desk import DETACH_SLACK
from twinbus.broker.fragment import lane, settlement
from twinbus.broker.fragment.message_sessions import STALE_ENTRIES_MAX, MessageSessions
from twinbus.broker.moved_locks import MovedLocks, MovedSession
from twinbus.broker.outcomes import COMPLETE, RELEASE, Abandon, Defer
from twinbus.broker.wakeups import STALE_COUNT_MAX
from twinbus.clock import Millis
from twinbus.errors import (
    FragmentUnavailable,
    MessageLockLost,
    MessageNotFound,
    MessagingError,
    NotAllowed,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
)
from twinbus.model.descriptions import EntityStatus, QueueDescription
from twinbus.model.partition_key import candidates
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import Load
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, EachReply, SimReceiver, Simulation

LOCK = 30_000
SIZE = 100_000


@pytest.fixture(params=[False, True], ids=["ordinary", "partitioned"])
def is_partitioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


@pytest.fixture
def queue(sim: Simulation, is_partitioned: bool) -> QueueEntity:
    return sim.queue(
        QueueDescription("s", requires_session=True, lock_duration=LOCK, enable_partitioning=is_partitioned)
    )


def send(sim: Simulation, queue: QueueEntity, session_id: str, *names: str) -> None:
    assert not sim.send(queue, *[make_message(name, session_id=session_id) for name in names]).errors


def session_receiver(sim: Simulation, queue: QueueEntity, session_id: str | None, credit: int = 100) -> SimReceiver:
    lock = sim.accept(queue.main, session_id).value
    return sim.receiver(queue.main, credit, session=lock)


def test_a_message_without_a_session_id_is_refused(sim: Simulation, queue: QueueEntity) -> None:
    assert isinstance(sim.send(queue, make_message("m")).errors[0], NotAllowed)


def test_a_receiver_without_a_session_is_refused(sim: Simulation, queue: QueueEntity) -> None:
    with pytest.raises(NotAllowed):
        sim.receiver(queue.main, 1)


def test_a_session_on_a_queue_without_sessions_is_refused(sim: Simulation) -> None:
    plain = sim.queue(QueueDescription("plain"))
    assert isinstance(sim.accept(plain.main, "x").error, NotAllowed)


@pytest.mark.rule("A9.2")
def test_a_receiver_gets_the_messages_of_its_session_alone_and_in_order(sim: Simulation, queue: QueueEntity) -> None:
    for number in range(20):
        send(sim, queue, f"session-{number % 2}", str(number))
    receiver = session_receiver(sim, queue, "session-1")
    assert receiver.ids() == [str(number) for number in range(1, 20, 2)]
    send(sim, queue, "session-1", "more")
    assert receiver.ids() == ["more"]


@pytest.mark.rule("A9.3")
def test_a_named_session_can_be_locked_without_messages(sim: Simulation, queue: QueueEntity) -> None:
    receiver = session_receiver(sim, queue, "empty")
    assert receiver.session is not None
    assert receiver.session.locked_until == sim.now + LOCK
    send(sim, queue, "empty", "first")
    assert receiver.ids() == ["first"]


@pytest.mark.one_node("the control plane tells the other nodes")
def test_a_receiver_that_holds_a_session_gets_its_messages_once_its_queue_may_be_received_from_again(
    sim: Simulation, queue: QueueEntity
) -> None:
    receivers = [session_receiver(sim, queue, session_id) for session_id in ("x", "y")]
    description = queue.description
    sim.entities.update(replace(description, status=EntityStatus.RECEIVE_DISABLED), sim.now, Answer[None]())
    send(sim, queue, "x", "m")
    send(sim, queue, "y", "n")
    assert [receiver.ids() for receiver in receivers] == [[], []]
    sim.entities.update(description, sim.now, Answer[None]())
    sim.run()
    assert [receiver.ids() for receiver in receivers] == [["m"], ["n"]]


@pytest.mark.rule("A9.1")
def test_a_held_session_cannot_be_locked_by_another(sim: Simulation, queue: QueueEntity) -> None:
    session_receiver(sim, queue, "x")
    assert isinstance(sim.accept(queue.main, "x").error, SessionCannotBeLocked)


@pytest.mark.rule("A9.3")
def test_the_next_free_session_is_the_one_with_the_oldest_message(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("one", requires_session=True))
    send(sim, queue, "held", "0")
    send(sim, queue, "older", "1")
    send(sim, queue, "newer", "2")
    session_receiver(sim, queue, "held")
    assert [sim.accept(queue.main).value.session_id for _ in range(2)] == ["older", "newer"]


def test_every_free_session_is_found(sim: Simulation, queue: QueueEntity) -> None:
    for number in range(40):
        send(sim, queue, f"session-{number}", "m")
    names = {sim.accept(queue.main).value.session_id for _ in range(40)}
    assert names == {f"session-{number}" for number in range(40)}
    assert not sim.accept(queue.main, wait=1_000).has_come


@pytest.mark.one_node("each node gives those of its own stores")
def test_fragments_take_turns_to_give_sessions(sim: Simulation) -> None:
    """Numbers of different fragments do not say which session is older."""
    talks = sim.queue(QueueDescription("talks", enable_partitioning=True, requires_session=True))
    of_fragment: dict[int, list[str]] = {}
    for number in range(200):
        of_fragment.setdefault(candidates(str(number), 16, 0)[0], []).append(str(number))
    for name in [each for index in (3, 4, 9) for each in of_fragment[index][:2]]:
        send(sim, talks, name, "m")
    accepted = [sim.accept(talks.main).value.session_id for _ in range(6)]
    assert accepted == [of_fragment[index][place] for place in range(2) for index in (3, 4, 9)]


def test_whoever_waits_for_a_session_gets_the_next_that_has_messages(sim: Simulation, queue: QueueEntity) -> None:
    first = sim.accept(queue.main, wait=60_000)
    second = sim.accept(queue.main, wait=60_000)
    assert not first.has_come
    send(sim, queue, "x", "m")
    assert first.value.session_id == "x"
    assert not second.has_come


def test_waiting_for_a_session_ends_at_its_deadline(sim: Simulation, queue: QueueEntity) -> None:
    waiting = sim.accept(queue.main, wait=10_000)
    sim.advance(9_999)
    assert not waiting.has_come
    sim.advance(1)
    assert isinstance(waiting.error, OperationTimeout)
    send(sim, queue, "x", "m")
    assert sim.accept(queue.main).value.session_id == "x"


def test_who_got_the_session_that_it_waited_for_is_not_looked_at_when_its_time_is_up(
    sim: Simulation, queue: QueueEntity, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = sim.accept(queue.main, wait=10_000)
    send(sim, queue, "x", "m")
    sim.advance(10_000)
    assert waiting.value.session_id == "x"
    assert caplog.records == []


def test_who_stops_waiting_gets_no_session(sim: Simulation, queue: QueueEntity) -> None:
    answer: Answer[SessionLock] = Answer()
    queue.main.accept_session(SessionRequest(), sim.now + 10_000, sim.now, answer).cancel()
    send(sim, queue, "x", "m")
    sim.advance(10_000)
    assert not answer.has_come
    assert sim.accept(queue.main).value.session_id == "x"


def test_those_who_stop_waiting_for_a_session_leave_nothing_behind_however_long_they_would_have_waited(
    sim: Simulation, queue: QueueEntity
) -> None:
    first = sim.accept(queue.main, wait=10**9)
    for _ in range(2 * STALE_COUNT_MAX + 100):
        queue.main.accept_session(SessionRequest(), sim.now + 10**9, sim.now, Answer[SessionLock]()).cancel()
    assert queue.main.receiver_count == 1
    assert all(len(broker.wakeups) <= 2 * STALE_COUNT_MAX + 10 for broker in sim.brokers)
    send(sim, queue, "x", "m")
    assert first.value.session_id == "x"


def test_sessions_that_are_accepted_and_closed_leave_nothing_behind_until_their_locks_would_have_ended(
    sim: Simulation, queue: QueueEntity
) -> None:
    for _ in range(2 * STALE_COUNT_MAX + 100):
        queue.main.detach(session_receiver(sim, queue, "x"), sim.now)
    assert all(len(broker.wakeups) <= 2 * STALE_COUNT_MAX + 10 for broker in sim.brokers)


@pytest.mark.rule("A9.12")
def test_an_orderly_close_frees_the_session_at_once_and_raises_no_count(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a", "b", "c")
    receiver = session_receiver(sim, queue, "x", credit=2)
    first, _ = receiver.take()
    sim.settle(queue.main, [first])
    queue.main.detach(receiver, sim.now)
    again = session_receiver(sim, queue, None)
    assert [delivery.message.delivery_count for delivery in again.deliveries] == [0, 0]
    assert again.ids() == ["b", "c"]


@pytest.mark.rule("A9.11")
def test_losing_the_session_lock_raises_delivery_counts(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a", "b", "c")
    receiver = session_receiver(sim, queue, "x", credit=2)
    sim.advance(LOCK)
    again = session_receiver(sim, queue, "x")
    assert [delivery.message.delivery_count for delivery in again.deliveries] == [1, 1, 0]
    assert again.ids() == ["a", "b", "c"]
    assert isinstance(sim.settle(queue.main, receiver.take()).errors[0], SessionLockLost)


def test_a_receiver_that_lost_its_session_is_detached_after_some_slack(sim: Simulation, queue: QueueEntity) -> None:
    receiver = session_receiver(sim, queue, "x")
    sim.advance(LOCK)
    sim.advance(DETACH_SLACK - 1)
    assert receiver.lost is None
    sim.advance(1)
    assert isinstance(receiver.lost, SessionLockLost)


def test_a_store_that_is_lost_takes_the_slack_from_nobody_whose_session_was_in_another(sim: Simulation) -> None:
    queue = sim.queue(
        QueueDescription("p", requires_session=True, lock_duration=LOCK, enable_partitioning=True),
    )
    names = [f"s{number}" for number in range(16)]
    receivers = [session_receiver(sim, queue, name) for name in names]
    sim.advance(LOCK)
    sim.lose_store(queue.main.fragments[0].broker.index)
    gone = {receiver.session.fragment_index == 0 for receiver in receivers if receiver.session and receiver.lost}
    assert gone == {True}
    sim.advance(DETACH_SLACK)
    assert all(isinstance(receiver.lost, SessionLockLost) for receiver in receivers)


def test_a_receiver_that_closed_hears_nothing(sim: Simulation, queue: QueueEntity) -> None:
    receiver = session_receiver(sim, queue, "x")
    sim.advance(LOCK)
    queue.main.detach(receiver, sim.now)
    sim.advance(DETACH_SLACK)
    assert receiver.lost is None


def test_a_session_whose_lock_ended_can_be_taken_before_the_next_tick(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    old = session_receiver(sim, queue, "x")
    sim.clock.advance(LOCK)
    new = session_receiver(sim, queue, "x")
    assert [delivery.message.delivery_count for delivery in new.deliveries] == [1]
    sim.advance(DETACH_SLACK + 1_000)
    assert isinstance(old.lost, SessionLockLost)
    assert new.lost is None
    assert sim.settle(queue.main, new.take()).good == {0}


@pytest.mark.parametrize("is_partitioned", [False], ids=["ordinary"])
def test_a_session_whose_lock_ended_is_for_who_waited_and_not_for_who_names_it_before_the_next_tick(
    sim: Simulation, queue: QueueEntity
) -> None:
    send(sim, queue, "x", "a", "b", "c")
    session_receiver(sim, queue, "x", credit=1)
    waiting = Answer[SessionLock]()
    queue.main.accept_session(SessionRequest(None), sim.now + 2 * LOCK, sim.now, waiting)
    sim.clock.advance(LOCK - 1)
    assert isinstance(sim.accept(queue.main, "x").error, SessionCannotBeLocked)
    assert not waiting.has_come
    sim.clock.advance(1)
    assert isinstance(sim.accept(queue.main, "x").error, SessionCannotBeLocked)
    assert sim.receiver(queue.main, 9, session=waiting.value).ids() == ["a", "b", "c"]


@pytest.mark.rule("A9.2")
def test_what_comes_back_from_a_lock_that_ended_is_first_for_whoever_waited_for_a_session(
    sim: Simulation, queue: QueueEntity
) -> None:
    send(sim, queue, "x", "a", "b", "c")
    session_receiver(sim, queue, "x", credit=1)
    heirs: list[SimReceiver] = []

    def attach(lock: SessionLock | MessagingError) -> None:
        assert not isinstance(lock, MessagingError)
        heirs.append(SimReceiver(100, session=lock))
        queue.main.attach(heirs[0], sim.now)

    queue.main.accept_session(SessionRequest(None), sim.now + 2 * LOCK, sim.now, attach)
    sim.advance(LOCK + 1_000, 500)
    assert heirs[0].ids() == ["a", "b", "c"]


@pytest.mark.rule("A9.2")
def test_what_comes_back_in_several_steps_is_first_for_whoever_waited_for_a_session(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "ENDED_COUNT_MAX", 2)
    send(sim, queue, "x", "a", "b", "c", "d", "e", "f")
    session_receiver(sim, queue, "x", credit=5)
    heirs: list[SimReceiver] = []

    def attach(lock: SessionLock | MessagingError) -> None:
        assert not isinstance(lock, MessagingError)
        heirs.append(SimReceiver(100, session=lock))
        queue.main.attach(heirs[0], sim.now)

    queue.main.accept_session(SessionRequest(None), sim.now + 2 * LOCK, sim.now, attach)
    sim.advance(LOCK + 1_000, 500)
    assert heirs[0].ids() == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.one_node("it looks into the store of one")
@pytest.mark.parametrize("is_held", [True, False])
def test_large_messages_of_a_lost_session_are_dead_lettered_in_steps(
    monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """A commit of all of them might be more than a journal takes, and then the store would be lost with every session lock."""
    monkeypatch.setattr(settlement, "ENDED_BYTES_MAX", 2 * SIZE)
    if not is_held:
        monkeypatch.setattr("twinbus.broker.held_contents.HELD_BYTES_MAX", 0)
    store = MeasuredStore()
    sim = Simulation(make_store=lambda: store)
    queue = sim.queue(QueueDescription("q", requires_session=True, lock_duration=LOCK, max_delivery_count=1))
    names = [str(number) for number in range(9)]
    for name in names:
        sim.send(queue, make_message(name, session_id="x", body=bytes(SIZE)))
    assert session_receiver(sim, queue, "x", credit=9).ids() == names
    store.sizes.clear()
    sim.advance(LOCK + 1_000, 500)
    assert max(store.sizes) < 4 * SIZE
    assert sim.receiver(queue.dead_letter, 10).ids() == names


def test_closing_after_the_lock_ended_is_no_orderly_close(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    receiver = session_receiver(sim, queue, "x")
    sim.clock.advance(LOCK)
    queue.main.detach(receiver, sim.now)
    sim.run()
    (again,) = session_receiver(sim, queue, "x").take()
    assert again.message.delivery_count == 1


def test_a_session_that_is_empty_and_free_takes_no_memory(sim: Simulation, queue: QueueEntity) -> None:
    for number in range(50):
        send(sim, queue, f"session-{number}", "m")
        receiver = session_receiver(sim, queue, f"session-{number}")
        sim.settle(queue.main, receiver.take())
        queue.main.detach(receiver, sim.now)
    for fragment in queue.main.fragments:
        assert isinstance(fragment.sessions, MessageSessions)
        assert len(fragment.sessions) == 0


def test_a_message_that_expired_while_its_session_was_held_goes_when_it_is_free(
    sim: Simulation, queue: QueueEntity
) -> None:
    sim.send(queue, make_message("m", session_id="x", time_to_live=5_000))
    receiver = session_receiver(sim, queue, "x")
    sim.advance(6_000)
    assert queue.main.counts().active == 1
    queue.main.detach(receiver, sim.now)
    sim.advance(2_000)
    assert queue.main.counts().active == 0


@pytest.mark.rule("A9.8")
def test_renewing_keeps_the_session(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    receiver = session_receiver(sim, queue, "x")
    sim.advance(LOCK - 1)
    answer: Answer[Millis] = Answer()
    queue.main.renew_session("x", sim.now, answer)
    assert answer.value == sim.now + LOCK
    sim.advance(LOCK - 1)
    assert sim.settle(queue.main, receiver.take()).good == {0}
    sim.advance(1)
    late: Answer[Millis] = Answer()
    queue.main.renew_session("x", sim.now, late)
    assert isinstance(late.error, SessionLockLost)


def test_a_session_that_is_renewed_for_a_shorter_time_is_free_at_its_end(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    receiver = session_receiver(sim, queue, "x")
    assert receiver.ids() == ["a"]
    updated: Answer[None] = Answer()
    sim.entities.update(replace(queue.description, lock_duration=5_000), sim.now, updated)
    assert updated.error is None
    renewed: Answer[Millis] = Answer()
    queue.main.renew_session("x", sim.now, renewed)
    assert renewed.value == sim.now + 5_000
    waiting = sim.accept(queue.main, wait=2 * LOCK)
    sim.advance(4_999)
    assert not waiting.has_come
    sim.advance(1)
    assert sim.receiver(queue.main, 1, session=waiting.value).ids() == ["a"]
    sim.advance(DETACH_SLACK)
    assert isinstance(receiver.lost, SessionLockLost)


def test_messages_of_a_session_are_locked_as_long_as_the_session_is(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    receiver = session_receiver(sim, queue, "x")
    for _ in range(5):
        sim.advance(LOCK // 2)
        queue.main.renew_session("x", sim.now, Answer[Millis]())
    assert sim.settle(queue.main, receiver.take()).good == {0}


@pytest.mark.rule("A9.2")
def test_an_abandoned_message_comes_again_before_the_later_ones(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a", "b")
    receiver = session_receiver(sim, queue, "x", credit=1)
    sim.settle(queue.main, receiver.take(), Abandon())
    receiver.credit = 5
    queue.main.pump(sim.now, receiver)
    assert receiver.ids() == ["a", "b"]


@pytest.mark.rule("A9.2")
def test_an_abandoned_message_comes_again_after_those_that_its_receiver_has_already(
    sim: Simulation, queue: QueueEntity
) -> None:
    send(sim, queue, "x", *"abcd")
    receiver = session_receiver(sim, queue, "x", credit=3)
    first, *later = receiver.take()
    sim.settle(queue.main, [first], Abandon())
    receiver.credit = 9
    queue.main.pump(sim.now, receiver)
    assert receiver.ids() == ["a", "d"]
    assert sim.settle(queue.main, later).good == {0, 1}


@pytest.mark.rule("A9.2")
@pytest.mark.parametrize("is_content_read_again", [False, True])
def test_what_is_on_its_way_back_to_its_session_comes_before_whatever_else_is_ready_or_arrives(
    sim: Simulation, queue: QueueEntity, is_content_read_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_content_read_again:
        monkeypatch.setattr("twinbus.broker.held_contents.HELD_BYTES_MAX", 0)
    send(sim, queue, "x", "a", "b", "c")
    receiver = session_receiver(sim, queue, "x", credit=2)
    first, second = receiver.take()
    for delivery in (second, first):
        outcome = Abandon({"seen": 1}) if is_content_read_again else Abandon()
        queue.main.settle_each([delivery.lock_token], outcome, sim.now, EachReply())
    receiver.credit = 9
    queue.main.pump(sim.now, receiver)
    send(sim, queue, "x", "d")
    assert receiver.ids() == ["a", "b", "c", "d"]


@pytest.mark.rule("A9.2")
def test_a_session_goes_on_behind_a_message_that_does_not_come_back(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", requires_session=True, max_delivery_count=1))
    send(sim, queue, "x", "a", "b")
    receiver = session_receiver(sim, queue, "x", credit=1)
    queue.main.settle_each([receiver.take()[0].lock_token], Abandon(), sim.now, EachReply())
    receiver.credit = 1
    queue.main.pump(sim.now, receiver)
    sim.run()
    assert receiver.ids() == ["b"]


def test_a_deep_session_is_read_bit_by_bit_and_in_order(sim: Simulation, queue: QueueEntity) -> None:
    for start in range(0, 3_000, 100):
        send(sim, queue, "deep", *[str(start + number) for number in range(100)])
    receiver = session_receiver(sim, queue, "deep", credit=10_000)
    assert receiver.ids() == [str(number) for number in range(3_000)]


def test_sessions_survive_a_restart_and_locks_do_not(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    session_receiver(sim, queue, "x")
    sim.restart()
    assert session_receiver(sim, sim.entities.queue("s"), None).ids() == ["a"]


def test_a_lost_store_takes_the_session_from_its_receiver(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    receiver = session_receiver(sim, queue, "x")
    assert receiver.session is not None
    store = queue.main.fragments[receiver.session.fragment_index].broker.index
    sim.lose_store(store)
    assert isinstance(receiver.lost, SessionLockLost)
    assert not receiver.session.is_held
    assert isinstance(sim.accept(queue.main, "x").error, FragmentUnavailable)
    waiting = sim.accept(queue.main, wait=60_000)
    sim.return_store(store)
    if len(queue.main.fragments) == 1:
        assert isinstance(waiting.error, FragmentUnavailable)
        waiting = sim.accept(queue.main, wait=60_000)
    assert waiting.value.session_id == "x"


@pytest.mark.rule("A4.9")
def test_who_waits_for_a_session_learns_that_its_only_store_is_lost(sim: Simulation) -> None:
    talks = sim.queue(QueueDescription("ordinary", requires_session=True))
    waiting = sim.accept(talks.main, wait=60_000)
    assert not waiting.has_come
    sim.lose_store(talks.main.fragments[0].broker.index)
    assert isinstance(waiting.error, FragmentUnavailable)


@pytest.mark.rule("A4.8", "A9")
def test_the_next_session_comes_from_the_fragments_that_are_left() -> None:
    sim = Simulation(16)
    talks = sim.queue(QueueDescription("talks", enable_partitioning=True, requires_session=True))
    names = ["order-1", "order-2", "contoso"]
    for name in names:
        send(sim, talks, name, f"m of {name}")
    waiting = [sim.accept(talks.main, wait=60_000) for _ in range(2)]
    assert {each.value.session_id for each in waiting} < set(names)
    for each in waiting:
        talks.main.release_session(each.value, sim.now)
    sim.lose_store(talks.main.fragments[13].broker.index)  # that of order-1
    assert {sim.accept(talks.main).value.session_id for _ in range(2)} == {"order-2", "contoso"}
    assert not sim.accept(talks.main, wait=60_000).has_come
    assert isinstance(sim.accept(talks.main, "order-1").error, FragmentUnavailable)


@pytest.mark.rule("A18.3")
def test_a_ping_is_never_delivered_and_makes_no_session(sim: Simulation, queue: QueueEntity) -> None:
    assert sim.send(queue, make_message("ping", session_id="random", is_ping=True)).good == {0}
    assert not sim.accept(queue.main, wait=1_000).has_come


def test_receive_and_delete_works_in_a_session(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a", "b")
    lock = sim.accept(queue.main, "x").value
    receiver = sim.receiver(queue.main, 5, ReceiveMode.RECEIVE_AND_DELETE, lock)
    assert receiver.ids() == ["a", "b"]
    assert queue.main.counts().active == 0


def test_credit_for_messages_that_could_not_be_deleted_comes_back(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a", "b")
    lock = sim.accept(queue.main, "x").value
    receiver = SimReceiver(5, ReceiveMode.RECEIVE_AND_DELETE, lock)
    queue.main.attach(receiver, sim.now)
    sim.lose_store(queue.main.fragments[lock.fragment_index].broker.index)
    sim.run()
    assert (receiver.take(), receiver.credit) == ([], 5)


def test_scheduled_messages_come_to_the_holder_of_their_session(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("later", session_id="x", scheduled_at=sim.now + 5_000))
    receiver = session_receiver(sim, queue, "x")
    sim.advance(5_000)
    assert receiver.ids() == ["later"]


def test_expired_messages_of_a_free_session_make_it_no_longer_acceptable(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("m", session_id="x", time_to_live=5_000))
    sim.advance(5_000)
    assert not sim.accept(queue.main, wait=1_000).has_come


def test_dead_letters_of_a_session_queue_need_no_session(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    receiver = session_receiver(sim, queue, "x")
    for _ in range(10):
        receiver.credit = 5
        sim.settle(queue.main, receiver.take(), Abandon())
    assert sim.receiver(queue.dead_letter, 5).ids() == ["a"]


class TestState:
    def get(self, sim: Simulation, queue: QueueEntity, session_id: str) -> Answer[bytes | None]:
        answer: Answer[bytes | None] = Answer()
        queue.main.ask(GetSessionState(session_id), sim.now, answer)
        sim.run()
        return answer

    def put(self, sim: Simulation, queue: QueueEntity, session_id: str, state: bytes | None) -> Answer[None]:
        answer: Answer[None] = Answer()
        queue.main.ask(SetSessionState(session_id, state), sim.now, answer)
        sim.run()
        return answer

    @pytest.mark.rule("A9.10")
    @pytest.mark.parametrize("state", [b"state", b"", None])
    def test_state_is_kept_with_the_session_even_an_empty_one(
        self, sim: Simulation, queue: QueueEntity, state: bytes | None
    ) -> None:
        receiver = session_receiver(sim, queue, "x")
        assert self.get(sim, queue, "x").value is None
        self.put(sim, queue, "x", b"former")
        assert self.put(sim, queue, "x", state).value is None
        queue.main.detach(receiver, sim.now)
        sim.restart()
        queue = sim.entities.queue("s")
        session_receiver(sim, queue, "x")
        assert self.get(sim, queue, "x").value == state

    def test_state_needs_the_lock(self, sim: Simulation, queue: QueueEntity) -> None:
        session_receiver(sim, queue, "x")
        sim.advance(LOCK)
        assert isinstance(self.get(sim, queue, "x").error, SessionLockLost)
        assert isinstance(self.put(sim, queue, "x", b"late").error, SessionLockLost)

    def names(
        self, sim: Simulation, queue: QueueEntity, after: Millis | None = None, skip: int = 0, top: int = 100
    ) -> list[str]:
        answer: Answer[list[str]] = Answer()
        queue.main.ask(ListSessions(after, skip, top), sim.now, answer)
        sim.run()
        return answer.value

    @pytest.mark.rule("A9.7")
    def test_sessions_with_messages_or_state_are_listed(self, sim: Simulation, queue: QueueEntity) -> None:
        assert self.names(sim, queue) == []
        send(sim, queue, "messages", "m")
        session_receiver(sim, queue, "state")
        self.put(sim, queue, "state", b"")
        session_receiver(sim, queue, "neither")
        assert self.names(sim, queue) == ["messages", "state"]
        assert self.names(sim, queue, skip=1, top=1) == ["state"]
        assert self.names(sim, queue, skip=2) == []

    def test_sessions_whose_state_was_set_after_a_time_are_listed(self, sim: Simulation, queue: QueueEntity) -> None:
        for name in ("early", "late"):
            session_receiver(sim, queue, name)
            self.put(sim, queue, name, b"s")
            sim.clock.advance(10)
        send(sim, queue, "messages", "m")
        assert self.names(sim, queue, after=sim.now - 20) == ["late"]


@pytest.mark.rule("A9.9")
def test_peek_inside_a_session_shows_its_messages_alone(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    send(sim, queue, "y", "b")
    answer: Answer[list[StoredMessage]] = Answer()
    queue.main.ask(Peek(0, 10, "y"), sim.now, answer)
    sim.run()
    assert [message_id_of(row.content) for row in answer.value] == ["b"]


def test_a_deferred_message_of_a_session_needs_the_session(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "a")
    receiver = session_receiver(sim, queue, "x")
    deliveries = receiver.take()
    number = deliveries[0].message.sequence_number
    sim.settle(queue.main, deliveries, Defer())

    def fetch(session_id: str | None) -> Answer[list[TakenMessage]]:
        answer: Answer[list[TakenMessage]] = Answer()
        queue.main.ask(ReceiveDeferred([number], ReceiveMode.PEEK_LOCK, session_id), sim.now, answer)
        sim.run()
        return answer

    assert isinstance(fetch(None).error, NotAllowed)
    assert len(fetch("x").value) == 1
    queue.main.detach(receiver, sim.now)
    assert isinstance(fetch("x").error, SessionLockLost)
    session_receiver(sim, queue, "x")
    (again,) = fetch("x").value
    assert again.message.delivery_count == 0
    assert isinstance(fetch("x").error, MessageNotFound), "its receiver holds it"
    assert sim.settle(queue.main, [again]).good == {0}


@pytest.mark.parametrize("mode", ReceiveMode)
def test_a_deferred_message_is_not_for_one_who_loses_the_session_while_it_is_looked_for(
    sim: Simulation, queue: QueueEntity, mode: ReceiveMode
) -> None:
    send(sim, queue, "x", "a")
    receiver = session_receiver(sim, queue, "x")
    deliveries = receiver.take()
    number = deliveries[0].message.sequence_number
    sim.settle(queue.main, deliveries, Defer())
    answer: Answer[list[TakenMessage]] = Answer()
    queue.main.ask(ReceiveDeferred([number], mode, "x"), sim.now, answer)
    queue.main.detach(receiver, sim.now)
    session_receiver(sim, queue, "x")
    assert isinstance(answer.error, SessionLockLost)
    (taken,) = sim.ask(queue.main, ReceiveDeferred([number], ReceiveMode.PEEK_LOCK, "x")).value
    assert sim.settle(queue.main, [taken]).good == {0}


@pytest.mark.rule("A9")
def test_deferred_messages_belong_to_their_session_however_its_id_is_written(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", requires_session=True))
    send(sim, queue, "Order-7", "a")
    deliveries = session_receiver(sim, queue, "order-7").take()
    number = deliveries[0].message.sequence_number
    sim.settle(queue.main, deliveries, Defer())
    session_receiver(sim, queue, "order-8")
    for mode in ReceiveMode:
        other = sim.ask(queue.main, ReceiveDeferred([number], mode, "order-8"))
        assert isinstance(other.error, MessageNotFound)
    (taken,) = sim.ask(queue.main, ReceiveDeferred([number], ReceiveMode.PEEK_LOCK, "ORDER-7")).value
    assert message_id_of(taken.message.content) == "a"


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_new_holder_gets_what_is_on_its_way_back_before_anything_newer(
    sim: Simulation, queue: QueueEntity, is_lost: bool
) -> None:
    send(sim, queue, "x", "older")
    former = session_receiver(sim, queue, "x")
    (held,) = former.take()
    port = sim.ports[queue.main.fragments[former.session.fragment_index if former.session else 0].broker.index]
    port.is_hung = True
    sim.send(queue, make_message("newer", session_id="x"))
    if is_lost:
        sim.clock.advance(LOCK)
    else:
        sim.settle(queue.main, [held], Abandon())
        queue.main.detach(former, sim.now)
    receiver = session_receiver(sim, queue, "x")
    port.is_hung = False
    sim.run()
    assert receiver.ids() == ["older", "newer"]


@pytest.mark.parametrize("is_partitioned", [False], ids=["ordinary"])
def test_sessions_that_are_always_accepted_by_name_leave_nothing_behind(sim: Simulation, queue: QueueEntity) -> None:
    (fragment,) = queue.main.fragments
    assert isinstance(fragment.sessions, MessageSessions)
    for number in range(2 * STALE_ENTRIES_MAX):
        session_id = f"session-{number}"
        send(sim, queue, session_id, "m")
        receiver = session_receiver(sim, queue, session_id)
        sim.settle(queue.main, receiver.take())
        queue.main.detach(receiver, sim.now)
    assert len(fragment.sessions._free) <= STALE_ENTRIES_MAX + 1


@pytest.mark.parametrize("is_partitioned", [False], ids=["ordinary"])
def test_the_oldest_session_is_still_the_next_one_after_many_were_accepted_by_name(
    sim: Simulation, queue: QueueEntity
) -> None:
    for name in ("first", "second", "third"):
        send(sim, queue, name, "m")
    for _ in range(2 * STALE_ENTRIES_MAX):
        queue.main.release_session(sim.accept(queue.main, "second").value, sim.now)
    assert [sim.accept(queue.main).value.session_id for _ in range(3)] == ["first", "second", "third"]


# Letters of either case


@pytest.mark.rule("A9.4")
def test_a_session_is_accepted_by_its_id_in_any_case(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "SessionId", "first")
    receiver = session_receiver(sim, queue, "sessionId")
    send(sim, queue, "SESSIONID", "second")
    send(sim, queue, "other", "elsewhere")
    assert receiver.session is not None
    assert receiver.session.session_id == "sessionId"
    delivered = [taken.message for taken in receiver.take()]
    assert [message.session_id for message in delivered] == ["SessionId", "SESSIONID"]
    assert [message_id_of(message.content) for message in delivered] == ["first", "second"]
    assert isinstance(sim.accept(queue.main, "SESSIONid").error, SessionCannotBeLocked)


def test_messages_of_a_session_sent_together_in_different_cases_keep_their_order(
    sim: Simulation, queue: QueueEntity
) -> None:
    receiver = session_receiver(sim, queue, "s")
    sim.send(queue, *[make_message(str(number), session_id="sS"[number % 2]) for number in range(7)])
    assert receiver.ids() == [str(number) for number in range(7)]


def test_the_next_free_session_has_the_id_of_its_first_message(sim: Simulation, queue: QueueEntity) -> None:
    early = session_receiver(sim, queue, "ORDER")
    send(sim, queue, "Order", "1")
    send(sim, queue, "order", "2")
    queue.main.detach(early, sim.now)
    later = session_receiver(sim, queue, None)
    assert later.session is not None
    assert later.session.session_id == "Order"
    assert later.ids() == ["1", "2"]
    assert not sim.accept(queue.main, wait=1_000).has_come


def test_everything_asked_of_a_session_knows_its_id_in_any_case(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "Order", "deferred", "waits")
    receiver = session_receiver(sim, queue, "order", credit=1)
    (taken,) = receiver.take()
    sim.settle(queue.main, [taken], Defer())
    sim.ask(queue.main, SetSessionState("ORDER", b"state"))
    assert sim.ask(queue.main, GetSessionState("order")).value == b"state"
    assert sim.ask(queue.main, ListSessions(None, 0, 10)).value == ["Order"]
    number = taken.message.sequence_number
    found = sim.ask(queue.main, ReceiveDeferred([number], ReceiveMode.PEEK_LOCK, "oRDER")).value
    assert [each.message.sequence_number for each in found] == [number]
    assert len(sim.ask(queue.main, Peek(0, 10, session_id="ordeR")).value) == 2
    assert not sim.ask(queue.main, Purge(10, sim.now, session_id="ORDer")).value
    assert len(sim.ask(queue.main, Purge(10, sim.now, session_id="ORDer", is_by_holder=True)).value) == 1


def test_a_session_has_one_case_for_all_after_a_restart(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "Order", "1")
    send(sim, queue, "ORDER", "2")
    sim.restart()
    assert session_receiver(sim, sim.entities.queue("s"), "order").ids() == ["1", "2"]


@pytest.mark.rule("A9.13")
def test_a_second_settlement_in_a_session_that_is_still_held_lost_the_lock_of_the_message(
    sim: Simulation, queue: QueueEntity
) -> None:
    send(sim, queue, "x", "a")
    receiver = session_receiver(sim, queue, "x")
    (taken,) = receiver.take()

    def settle() -> MessagingError | None:
        reply = EachReply()
        queue.main.settle_each([taken.lock_token], COMPLETE, sim.now, reply, receiver.session)
        sim.run()
        return reply.errors.get(0)

    assert settle() is None
    assert isinstance(settle(), MessageLockLost)
    sim.advance(LOCK)
    assert isinstance(settle(), SessionLockLost)
    session_receiver(sim, queue, "x")  # somebody else holds it now
    assert isinstance(settle(), SessionLockLost)


def test_a_session_whose_messages_are_all_gone_is_not_the_next_free_one() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q", requires_session=True))
    for name in "ab":
        sim.send(queue, make_message(name, session_id=name))
    sessions = queue.main.fragments[0].sessions
    assert isinstance(sessions, MessageSessions)
    first = sessions.first_free()
    assert first is not None
    assert first[1] == "a"
    sessions.lane("a").remove(first[0])
    second = sessions.first_free()
    assert second is not None
    assert second[1] == "b"
    sessions.lane("b").remove(second[0])
    assert sessions.first_free() is None


@pytest.mark.parametrize("is_partitioned", [False], ids=["ordinary"])
def test_a_session_that_is_accepted_while_a_store_with_held_ones_is_loaded_is_read_once(
    sim: Simulation, queue: QueueEntity
) -> None:
    for name in "AB":
        send(sim, queue, name, name.lower())
    (fragment,) = queue.main.fragments
    port = sim.ports[fragment.broker.index]
    held = [sim.accept(queue.main, name).value for name in "AB"]
    waiting = Answer[SessionLock]()
    queue.main.accept_session(SessionRequest(), sim.now + LOCK, sim.now, waiting)
    read_before = port.query_count
    (memory,) = Load([fragment.what_to_remember]).run(port.store)
    fragment.load(memory, sim.now, MovedLocks([], [MovedSession(held[0], [])]))
    assert waiting.value.session_id == "B", "which is not held where its store comes from"
    sim.run()
    assert port.query_count == read_before + 2, "once for each session"
    assert sim.receiver(queue.main, 9, session=waiting.value).ids() == ["b"]
    assert sim.receiver(queue.main, 9, session=held[0]).ids() == ["a"]


@pytest.mark.one_node("the store is moved by hand")
def test_a_session_whose_store_moves_keeps_what_it_has_locked_and_gets_the_rest(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("s", requires_session=True, lock_duration=LOCK))
    send(sim, queue, "S", "deferred", "locked", "next")
    receiver = session_receiver(sim, queue, "S", 2)
    lock = receiver.session
    assert lock is not None
    deferred, locked = receiver.take()
    sim.settle(queue.main, [deferred], Defer())
    sim.ask(queue.main, ReceiveDeferred([deferred.message.sequence_number], ReceiveMode.PEEK_LOCK, "S"))
    fragment = queue.main.fragments[0]
    assert len(fragment.locks) == 2
    moved = MovedLocks(fragment.locks.moved(), [MovedSession(lock, list(fragment.locks.held))])
    (memory,) = Load([fragment.what_to_remember]).run(sim.ports[fragment.broker.index].store)
    fragment.load(memory, sim.now, moved)
    receiver.credit = 9
    queue.main.pump(sim.now, receiver)
    sim.run()
    assert receiver.ids() == ["next"]
    assert sim.settle(queue.main, [locked], COMPLETE).good == {0}
    queue.main.detach(receiver, sim.now)
    sim.run()
    assert session_receiver(sim, queue, "S").ids() == ["next"]


@pytest.mark.one_node("the store is moved by hand")
def test_what_a_session_has_locked_is_not_handed_over_again_however_little_is_read_at_a_time_after_a_move(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "READY_COUNT_MAX", 2)
    queue = sim.queue(QueueDescription("s", requires_session=True, lock_duration=LOCK))
    send(sim, queue, "S", "first", "second", "third", "fourth", "next")
    receiver = session_receiver(sim, queue, "S", 4)
    sim.settle(queue.main, receiver.take()[:1], RELEASE)
    moved_by_hand(sim, queue, receiver)
    assert receiver.ids() == ["first", "next"]


@pytest.mark.one_node("the store is moved by hand")
def test_a_session_without_messages_whose_store_moves_gets_what_is_sent_later(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("s", requires_session=True, lock_duration=LOCK))
    receiver = session_receiver(sim, queue, "S", 1)
    moved_by_hand(sim, queue, receiver)
    send(sim, queue, "S", "later")
    assert receiver.ids() == ["later"]


def moved_by_hand(sim: Simulation, queue: QueueEntity, receiver: SimReceiver) -> None:
    """With the message session that the receiver holds."""
    fragment = queue.main.fragments[0]
    assert receiver.session is not None
    moved = MovedLocks(fragment.locks.moved(), [MovedSession(receiver.session, list(fragment.locks.held))])
    (memory,) = Load([fragment.what_to_remember]).run(sim.ports[fragment.broker.index].store)
    fragment.load(memory, sim.now, moved)
    receiver.credit = 9
    queue.main.pump(sim.now, receiver)
    sim.run()


def test_sessions_are_counted_and_those_with_most_messages_come_first(sim: Simulation, queue: QueueEntity) -> None:
    for session_id, count in (("few", 1), ("many", 3), ("some", 2), ("as few", 1)):
        send(sim, queue, session_id, *[str(number) for number in range(count)])
    session_receiver(sim, queue, "some", credit=1)
    everything = sim.ask(queue.main, CountSessions(0, 10)).value
    assert (everything.sessions, everything.held, everything.active, everything.is_all) == (4, 1, 7, True)
    assert everything.page == [("many", 3, False), ("some", 2, True), ("as few", 1, False), ("few", 1, False)]
    assert sim.ask(queue.main, CountSessions(1, 2)).value == everything._replace(page=everything.page[1:3])


def test_the_lock_of_a_message_of_a_session_is_not_renewed_by_itself(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, "x", "m")
    (delivery,) = session_receiver(sim, queue, "x").take()
    answer = Answer[list[Millis]]()
    queue.main.renew([delivery.lock_token], sim.now, answer)
    sim.run()
    assert isinstance(answer.error, NotAllowed)
