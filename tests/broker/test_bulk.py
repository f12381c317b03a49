"""Many messages changed without being received: purge, claim, delete what was claimed, un-defer."""

import pytest

from twinbus.amqp.codec.sections import decode_sections
from twinbus.broker.commands import (
    NUMBERS_MAX,
    Claim,
    Command,
    DeleteDeferred,
    ListFragments,
    Peek,
    Purge,
    Range,
    ReceiveDeferred,
    Undefer,
    UndeferAll,
    ranges_of,
)
from twinbus.broker.consumer import ReceiveMode
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.fragment import lane
from twinbus.broker.fragment.message_sessions import MessageSessions
from twinbus.broker.operations import bulk
from twinbus.broker.operations.bulk import Numbers
from twinbus.broker.outcomes import RELEASE, Abandon, Defer, Outcome
from twinbus.errors import ArgumentError, EntityDisabled, FragmentUnavailable, MessagingError
from twinbus.model.content import unpack
from twinbus.model.delivery import encode_peeked
from twinbus.model.descriptions import EntityStatus, QueueDescription
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.reads import ReadNumbers, Rows
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation

STORES = 4


@pytest.fixture
def sim() -> Simulation:
    return Simulation(STORES)


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    return sim.queue(QueueDescription("q", enable_partitioning=True, lock_duration=5_000))


def send(sim: Simulation, queue: QueueEntity, count: int, prefix: str = "m") -> None:
    """One by one, so that they go round the fragments."""
    for number in range(count):
        assert sim.send(queue, make_message(f"{prefix}{number}")).good == {0}


def changed(sim: Simulation, queue: QueueEntity, command: Command[Numbers]) -> Numbers:
    return sim.ask(queue.main, command).value


def purge(sim: Simulation, queue: QueueEntity, count_max: int = 10_000) -> int:
    return len(changed(sim, queue, Purge(count_max, sim.now)))


def claim(sim: Simulation, queue: QueueEntity, count_max: int, owner: str | None = None) -> Numbers:
    return changed(sim, queue, Claim(count_max, owner))


def received(sim: Simulation, queue: QueueEntity) -> set[str]:
    receiver = sim.receiver(queue.main, 1_000)
    queue.main.detach(receiver, sim.now)
    return set(receiver.ids())


def test_a_purge_empties_all_fragments(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 40)
    sim.send(queue, make_message("later", scheduled_at=sim.now + 1_000))
    claim(sim, queue, 1)
    assert purge(sim, queue) == 41
    counts = queue.main.counts()
    assert (counts.active, counts.deferred, counts.scheduled, counts.size_bytes) == (0, 0, 0, 0)
    sim.advance(2_000)
    assert received(sim, queue) == set()


def test_a_purge_leaves_locked_messages_alone(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 20)
    receiver = sim.receiver(queue.main, 3)
    held = receiver.take()
    assert purge(sim, queue) == 17
    assert sim.settle(queue.main, held).good == {0, 1, 2}
    assert queue.main.counts().active == 0


def test_a_purge_leaves_a_session_that_somebody_holds_alone(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("talks", enable_partitioning=True, requires_session=True))
    sim.send(queue, *[make_message(f"m{n}", session_id=session) for n in range(3) for session in ("held", "free")])
    lock = sim.accept(queue.main, "held").value
    assert purge(sim, queue) == 3
    assert len(sim.receiver(queue.main, 10, session=lock).take()) == 3


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_purge_of_a_session_takes_from_that_session_alone(sim: Simulation, is_partitioned: bool) -> None:
    description = QueueDescription("talks", enable_partitioning=is_partitioned, requires_session=True)
    queue = sim.queue(description)
    sim.send(queue, *[make_message(f"{session}{n}", session_id=session) for n in range(3) for session in ("s1", "s2")])
    lock = sim.accept(queue.main, "s1").value
    assert changed(sim, queue, Purge(10, sim.now, session_id="s1")) == []  # somebody holds it
    assert len(changed(sim, queue, Purge(10, sim.now, session_id="s1", is_by_holder=True))) == 3
    assert sim.receiver(queue.main, 10, session=lock).take() == []
    other = sim.accept(queue.main, "s2").value
    assert sim.receiver(queue.main, 10, session=other).ids() == ["s20", "s21", "s22"]


def test_a_purge_by_the_holder_of_a_session_leaves_what_was_received_alone(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("talks", requires_session=True))
    sim.send(queue, *[make_message(f"m{n}", session_id="s") for n in range(3)])
    lock = sim.accept(queue.main, "s").value
    held = sim.receiver(queue.main, 1, session=lock).take()
    assert len(changed(sim, queue, Purge(10, sim.now, session_id="s", is_by_holder=True))) == 2
    assert sim.settle(queue.main, held).good == {0}


def test_a_purge_by_the_holder_of_a_session_ends_with_its_hold_where_another_one_follows(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("talks", requires_session=True))
    sim.send(queue, *[make_message(f"m{n}", session_id="s") for n in range(3)])
    lock = sim.accept(queue.main, "s").value
    answer: Answer[Numbers] = Answer()
    queue.main.ask(Purge(10, sim.now, session_id="s", is_by_holder=True), sim.now, answer)
    queue.main.release_session(lock, sim.now)
    successor = sim.accept(queue.main, "S").value
    assert answer.value == []
    assert len(sim.receiver(queue.main, 10, session=successor).take()) == 3


def test_a_purge_of_a_session_takes_nothing_where_there_are_no_sessions(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("a", session_id="s1"), make_message("b", session_id="s2"))
    assert changed(sim, queue, Purge(10, sim.now, session_id="s1")) == []
    assert received(sim, queue) == {"a", "b"}


def test_sessions_that_were_purged_take_no_memory(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("talks", requires_session=True))
    sim.send(queue, *[make_message(str(number), session_id=str(number)) for number in range(50)])
    assert purge(sim, queue) == 50
    sessions = queue.main.fragments[0].sessions
    assert isinstance(sessions, MessageSessions)
    assert len(sessions) == 0
    sim.send(queue, make_message("m", session_id="7"))
    lock = sim.accept(queue.main).value
    assert lock.session_id == "7"
    assert sim.receiver(queue.main, 1, session=lock).ids() == ["m"]


def test_a_purge_stops_at_its_limit_and_at_its_time(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 10)
    assert purge(sim, queue, 4) == 4
    before = sim.now
    sim.advance(1_000)
    send(sim, queue, 2, "new")
    assert len(changed(sim, queue, Purge(100, before))) == 6
    assert received(sim, queue) == {"new0", "new1"}


def test_a_purge_takes_steps_that_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a deep queue is never one giant commit. Method: small steps, small memory, and commits are counted."""
    monkeypatch.setattr(bulk, "STEP_COUNT_MAX", 10)
    monkeypatch.setattr(lane, "READY_COUNT_MAX", 4)
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(f"m{n}") for n in range(95)])
    before = sim.ports[0].commit_count
    answer: Answer[Numbers] = Answer()
    queue.main.ask(Purge(1_000, sim.now), sim.now, answer)
    while sim.ports[0].step(1):
        pass
    assert len(answer.value) == 95
    assert sim.ports[0].commit_count - before == 10
    assert queue.main.counts().active == 0


def test_a_purge_goes_on_without_an_unhealthy_fragment_and_says_so_in_the_end(
    sim: Simulation, queue: QueueEntity
) -> None:
    send(sim, queue, 32)
    sim.lose_store(1)
    assert purge(sim, queue) == 24
    with pytest.raises(FragmentUnavailable):
        purge(sim, queue)
    sim.return_store(1)
    assert purge(sim, queue) == 8


def test_claimed_messages_are_deferred_and_reported_by_number(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 40)
    numbers = claim(sim, queue, 25)
    assert len(numbers) == len(set(numbers)) == 25
    assert (queue.main.counts().active, queue.main.counts().deferred) == (15, 25)
    assert len(received(sim, queue)) == 15
    assert claim(sim, queue, 25) == []  # the others are locked


def test_a_claim_of_one_fragment_takes_from_that_alone(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 32)
    numbers = changed(sim, queue, Claim(100, fragment_index=5))
    assert [number >> SEQUENCE_BITS for number in numbers] == [5, 5]
    with pytest.raises(ArgumentError):
        changed(sim, queue, Claim(100, fragment_index=16))


def test_a_claim_remembers_its_owner_also_over_a_restart(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 1)
    claim(sim, queue, 1, "query-7")
    sim.restart()
    queue = sim.entities.queue("q")
    (row,) = sim.ask(queue.main, Peek(0, 10)).value
    assert b"x-opt-claimed-by" in unpack(row.content).entries
    assert b"query-7" in unpack(row.content).entries
    assert queue.main.counts().size_bytes == len(row.content)


def shown_owners(sim: Simulation, queue: QueueEntity) -> list[object]:
    payloads = encode_peeked(sim.ask(queue.main, Peek(0, 10)).value)
    return [(decode_sections(payload).message_annotations or {}).get("x-opt-claimed-by") for payload in payloads]


def test_a_query_is_remembered_as_the_owner_of_a_claim_without_rewriting_messages(sim: Simulation) -> None:
    queue, owner = sim.queue(QueueDescription("q")), "spark-fedcba9876543210"
    send(sim, queue, 3)
    size = queue.main.counts().size_bytes
    claim(sim, queue, 1, "query-7")
    assert len(changed(sim, queue, UndeferAll(10))) == 1
    written = queue.main.counts().size_bytes - size
    assert written > 0
    claim(sim, queue, 2, owner)
    sim.restart()
    queue = sim.entities.queue("q")
    assert shown_owners(sim, queue) == [owner, owner, None]
    assert queue.main.counts().size_bytes == size + written


def test_a_claim_without_an_owner_names_nobody(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 1)
    assert len(claim(sim, queue, 1)) == 1
    assert shown_owners(sim, queue) == [None]


@pytest.mark.parametrize("outcome", [Abandon(), Defer(), RELEASE])
def test_a_claimed_message_that_somebody_receives_and_gives_back_is_still_claimed(
    sim: Simulation, queue: QueueEntity, outcome: Outcome
) -> None:
    owner = "spark-0000000000000001"
    send(sim, queue, 1)
    numbers = claim(sim, queue, 1, owner)
    taken = sim.ask(queue.main, ReceiveDeferred(numbers, ReceiveMode.PEEK_LOCK)).value
    sim.settle(queue.main, taken, outcome)
    assert shown_owners(sim, queue) == [owner]
    sim.restart()
    queue = sim.entities.queue("q")
    assert shown_owners(sim, queue) == [owner]
    assert changed(sim, queue, Undefer([(numbers[0], numbers[0])])) == numbers
    assert shown_owners(sim, queue) == [None]


def test_claims_leave_locked_messages_to_their_receivers_and_take_them_once_they_are_free(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("plain", lock_duration=5_000))
    send(sim, queue, 30)
    held = sim.receiver(queue.main, 3).take()
    assert claim(sim, queue, 100, "spark-0000000000000001") == list(range(4, 31))
    sim.settle(queue.main, held, RELEASE)
    assert claim(sim, queue, 100, "spark-0000000000000001") == [1, 2, 3]
    assert queue.main.counts().deferred == 30
    assert changed(sim, queue, DeleteDeferred([(1, 30)])) == list(range(1, 31))
    counts = queue.main.counts()
    assert (counts.active, counts.deferred, counts.size_bytes) == (0, 0, 0)


def test_a_claim_passes_over_a_locked_message_among_free_ones(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("plain"))
    send(sim, queue, 5)
    first, _, third = sim.receiver(queue.main, 3).take()
    sim.settle(queue.main, [first, third], RELEASE)
    assert claim(sim, queue, 100, "spark-0000000000000001") == [1, 3, 4, 5]


def test_a_claim_does_not_read_past_what_was_claimed_before(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("plain"))
    send(sim, queue, 60)
    sim.restart()
    queue = sim.entities.queue("plain")
    (fragment,) = queue.main.fragments
    for last in (20, 40, 60):
        assert claim(sim, queue, 20) == list(range(last - 19, last + 1))
        assert bulk.before_first_free(fragment) == last


def test_a_claim_reads_no_contents_ahead_for_receivers_that_there_are_not(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("plain"))
    send(sim, queue, 60)
    sim.restart()
    queue = sim.entities.queue("plain")
    (fragment,) = queue.main.fragments
    claim(sim, queue, 20)
    assert (len(fragment.lane.ready), fragment.lane.beyond, fragment.lane.is_filling) == (0, 40, False)


def test_a_claim_with_a_name_knows_the_first_free_message_of_what_was_read_ahead(sim: Simulation) -> None:
    """Its name is written into every message, so they are read anyway."""
    queue = sim.queue(QueueDescription("plain"))
    send(sim, queue, 60)
    sim.restart()
    queue = sim.entities.queue("plain")
    (fragment,) = queue.main.fragments
    assert len(sim.ask(queue.main, Claim(20, owner="somebody")).value) == 20
    assert (len(fragment.lane.ready), fragment.lane.ready[0].sequence_number) == (40, 21)


def test_nothing_is_claimed_from_a_queue_that_gives_no_messages(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("shut", status=EntityStatus.RECEIVE_DISABLED))
    sim.send(queue, make_message("m"))
    with pytest.raises(EntityDisabled):
        claim(sim, queue, 1)


def test_an_expired_message_is_not_claimed(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("short", time_to_live=1_000), make_message("long"))
    sim.clock.advance(2_000)
    assert len(claim(sim, queue, 10)) == 1


def test_deleting_what_was_claimed_may_be_repeated(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 40)
    ranges = ranges_of(claim(sim, queue, 30))
    assert len(changed(sim, queue, DeleteDeferred(ranges))) == 30
    assert changed(sim, queue, DeleteDeferred(ranges)) == []
    assert (queue.main.counts().active, queue.main.counts().deferred) == (10, 0)


def test_only_deferred_messages_are_deleted_by_number(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 16)
    everything = [(head.first_number, head.last_number) for head in sim.ask(queue.main, ListFragments()).value]
    assert changed(sim, queue, DeleteDeferred(everything)) == []
    assert queue.main.counts().active == 16


@pytest.mark.parametrize("ranges", [[(5, 4)], [(1, NUMBERS_MAX + 1)], [(1, 2**62)]])
def test_ranges_that_make_no_sense_are_refused(sim: Simulation, queue: QueueEntity, ranges: list[Range]) -> None:
    with pytest.raises(ArgumentError):
        changed(sim, queue, DeleteDeferred(ranges))


def test_as_many_numbers_may_be_named_as_the_limit_says(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "NUMBERS_MAX", 10)
    assert changed(sim, queue, DeleteDeferred([(1, 5), (7, 7), (9, 12)])) == []
    with pytest.raises(ArgumentError):
        changed(sim, queue, DeleteDeferred([(1, 5), (7, 7), (9, 13)]))


def test_undeferred_messages_take_their_old_places(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(f"m{n}") for n in range(4)])
    receiver = sim.receiver(queue.main, 2)
    held = receiver.take()
    sim.settle(queue.main, held, Defer())
    queue.main.detach(receiver, sim.now)
    numbers = [delivery.message.sequence_number for delivery in held]
    assert changed(sim, queue, Undefer(ranges_of(numbers))) == numbers
    assert sim.receiver(queue.main, 10).ids() == ["m0", "m1", "m2", "m3"]


def test_all_deferred_messages_become_active_again(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 20)
    claim(sim, queue, 15)
    assert len(changed(sim, queue, UndeferAll(10))) == 10
    assert len(changed(sim, queue, UndeferAll(10))) == 5
    assert len(received(sim, queue)) == 20


def test_an_undeferred_message_comes_to_whoever_holds_its_session(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("talks", requires_session=True))
    sim.send(queue, make_message("m", session_id="s"))
    lock = sim.accept(queue.main, "s").value
    receiver = sim.receiver(queue.main, 1, session=lock)
    sim.settle(queue.main, receiver.take(), Defer())
    queue.main.detach(receiver, sim.now)
    assert len(changed(sim, queue, UndeferAll(10))) == 1
    lock = sim.accept(queue.main).value
    assert sim.receiver(queue.main, 1, session=lock).ids() == ["m"]


def test_an_error_reaches_whoever_asked_for_a_change(sim: Simulation, queue: QueueEntity) -> None:
    send(sim, queue, 1)
    answer: Answer[Numbers] = Answer()
    queue.main.ask(Purge(1, sim.now), sim.now, answer)
    for index in range(STORES):
        sim.lose_store(index)
    assert isinstance(answer.error, MessagingError)


def test_a_claim_takes_what_was_given_back_before_what_is_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where most of the queue is beyond memory."""
    monkeypatch.setattr(lane, "READY_COUNT_MAX", 4)
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number)) for number in range(20)])
    assert claim(sim, queue, 5) == [1, 2, 3, 4, 5]
    receiver = sim.receiver(queue.main, 3)
    held = receiver.take()
    queue.main.detach(receiver, sim.now)
    assert claim(sim, queue, 2) == [9, 10]
    sim.settle(queue.main, held, RELEASE)
    assert claim(sim, queue, 20) == [6, 7, 8, *range(11, 21)]


@pytest.mark.parametrize("owner", [None, "somebody whose name is no number"])
def test_a_claim_may_end_at_a_number_and_leaves_what_came_later(sim: Simulation, owner: str | None) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number)) for number in range(6)])
    claims = [changed(sim, queue, Claim(100, owner, fragment_index=0, last_number=4)) for _ in range(2)]
    assert claims == [[1, 2, 3, 4], []]
    assert received(sim, queue) == {"4", "5"}


def test_claimed_messages_are_deleted_although_somebody_holds_their_session(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", requires_session=True))
    sim.send(queue, make_message("a", session_id="s"))
    numbers = claim(sim, queue, 1)
    sim.send(queue, make_message("b", session_id="s"))
    assert sim.accept(queue.main, "s").value.is_held
    assert changed(sim, queue, DeleteDeferred([(numbers[0], numbers[0])])) == numbers


def test_a_range_of_numbers_ends_with_its_last_one(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, *[make_message(name) for name in "abcd"])
    held = sim.receiver(queue.main, 4).take()
    numbers = [delivery.message.sequence_number for delivery in held]
    sim.settle(queue.main, held, Defer())
    assert changed(sim, queue, Undefer([(numbers[1], numbers[2])])) == numbers[1:3]
    assert changed(sim, queue, Undefer([(numbers[0], numbers[3])])) == [numbers[0], numbers[3]]


def test_named_messages_are_read_in_pieces_that_memory_can_hold(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = sim.queue(QueueDescription("large"))
    content_size = len(make_message("m0", body=b"x" * 1_000).content)
    monkeypatch.setattr(bulk, "STEP_BYTES_MAX", 3 * content_size)
    monkeypatch.setattr(bulk, "STEP_COUNT_MAX", 5)
    for number in range(10):
        assert sim.send(queue, make_message(f"m{number}", body=b"x" * 1_000)).good == {0}
    claimed = claim(sim, queue, 10)
    assert len(claimed) == 10
    asked = list[ReadNumbers]()
    run = ReadNumbers.run

    def noted(read: ReadNumbers, store: MessagingStore) -> Rows:
        asked.append(read)
        return run(read, store)

    monkeypatch.setattr(ReadNumbers, "run", noted)
    # With numbers of messages that are not there before, between and behind them.
    gone = changed(sim, queue, DeleteDeferred([(claimed[4], claimed[4])]))
    assert gone == [claimed[4]]
    ranges = [(claimed[0], claimed[-1] + 20)]
    assert changed(sim, queue, Undefer(ranges)) == [number for number in claimed if number != claimed[4]]
    assert {read.bytes_max for read in asked} == {3 * content_size}
    assert max(len(read.numbers) for read in asked) == 5
    assert queue.main.counts().deferred == 0
