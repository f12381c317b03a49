"""Duplicate detection (contract A10)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis.strategies import integers, lists, sampled_from, tuples

from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.fragment import intake
from twinbus.broker.fragment.duplicates import (
    FORGOTTEN_AT_ONCE,
    PRUNE_INTERVAL,
    SHORTENED_MAX,
    DuplicateHistory,
    duplicate_key,
)
from twinbus.clock import NEVER, Millis
from twinbus.errors import ServerBusy
from twinbus.model.descriptions import DAY, QueueDescription
from twinbus.testing.faulty_store import Fault
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation

WINDOW = 30_000


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


@pytest.fixture(params=[False, True], ids=["ordinary", "partitioned"])
def queue(sim: Simulation, request: pytest.FixtureRequest) -> QueueEntity:
    return sim.queue(
        QueueDescription(
            "d",
            requires_duplicate_detection=True,
            duplicate_detection_window=WINDOW,
            enable_partitioning=bool(request.param),
        )
    )


@pytest.mark.rule("A10.1")
def test_a_duplicate_is_accepted_and_dropped(sim: Simulation, queue: QueueEntity) -> None:
    assert sim.send(queue, make_message("a"), make_message("a"), make_message("b")).good == {0, 1, 2}
    assert sim.send(queue, make_message("a")).good == {0}
    assert sorted(sim.receiver(queue.main, 9).ids()) == ["a", "b"]


@pytest.mark.rule("A10.1")
def test_a_message_is_no_duplicate_once_the_window_has_passed(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("a"))
    sim.advance(WINDOW - 1)
    sim.send(queue, make_message("a"))
    assert queue.main.counts().active == 1
    sim.advance(1)
    sim.send(queue, make_message("a"))
    assert queue.main.counts().active == 2


@pytest.mark.rule("A10.4")
def test_the_history_survives_a_restart(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, make_message("a"))
    sim.restart()
    sim.send(sim.entities.queue("d"), make_message("a"))
    assert sim.entities.queue("d").main.counts().active == 1


@pytest.mark.rule("A10")
def test_the_history_is_pruned_in_memory_and_in_the_store(sim: Simulation, queue: QueueEntity) -> None:
    sim.send(queue, *[make_message(str(number)) for number in range(50)])
    sim.advance(WINDOW + PRUNE_INTERVAL)
    for fragment in queue.main.fragments:
        assert fragment.duplicates is not None
        assert len(fragment.duplicates) == 0
        assert sim.ports[fragment.broker.index].store.duplicates(fragment.key) == []


@pytest.mark.rule("A10.3")
def test_an_id_counts_within_its_key_on_a_partitioned_queue(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("p", requires_duplicate_detection=True, enable_partitioning=True))
    one = make_message("same", partition_key="one")
    two = make_message("same", partition_key="two")
    sim.send(queue, one, two, one, two)
    assert queue.main.counts().active == 2


@pytest.mark.rule("A10.3")
@pytest.mark.parametrize("name", ["same", "ONE", "one"])
def test_the_key_that_an_id_counts_within_has_no_case(sim: Simulation, name: str) -> None:
    """Whichever case the ids of a message session are written in, it is one session."""
    queue = sim.queue(
        QueueDescription("p", requires_duplicate_detection=True, requires_session=True, enable_partitioning=True)
    )
    sim.send(queue, *(make_message(name, session_id=session_id) for session_id in ("One", "ONE", "one")))
    assert queue.main.counts().active == 1


def test_keys_that_were_stored_in_their_case_are_known_without_it() -> None:
    history = DuplicateHistory()
    history.load([("3\x00one\x00a", 10), ("plain", 20), ("6\x00straße\x00b", 30), ("3\x00odd", 40)], are_pinned=True)
    known = [duplicate_key("a", "ONE"), "plain", duplicate_key("b", "STRASSE"), "3\x00odd"]
    assert [history.is_known(key, 5) for key in known] == [True] * 4
    history.load([("3\x00one\x00a", 10)], are_pinned=False)
    assert history.is_known("3\x00one\x00a", 5)


@pytest.mark.parametrize(
    "message_id", ["a\x00b", "\x00b", "9999\x00b", "1000\x00b", "0000\x00\x00a", "1\x00ab", "1\x002", "x3\x00one\x00a"]
)
def test_an_id_that_was_stored_without_a_key_is_known_as_it_is(message_id: str) -> None:
    """Whatever characters it has, also those that a key and its length would be told by."""
    history = DuplicateHistory()
    history.load([(message_id, 10)], are_pinned=True)
    assert history.is_known(message_id, 5)


@pytest.mark.rule("A10.2")
def test_an_id_counts_for_the_whole_of_an_ordinary_queue(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("o", requires_duplicate_detection=True))
    sim.send(queue, make_message("same", partition_key="one"), make_message("same", partition_key="two"))
    assert queue.main.counts().active == 1


@pytest.mark.rule("A10.1")
def test_scheduled_messages_are_detected_too(sim: Simulation, queue: QueueEntity) -> None:
    answer: Answer[list[int]] = Answer()
    queue.schedule([make_message("a", scheduled_at=sim.now + 5_000)], sim.now, answer)
    sim.run()
    sim.send(queue, make_message("a"))
    counts = queue.main.counts()
    assert (counts.scheduled, counts.active) == (1, 0)


def test_a_duplicate_is_not_accepted_before_the_first_is_durable(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("o", requires_duplicate_detection=True))
    port = sim.ports[queue.main.fragments[0].broker.index]
    port.is_hung = True
    first = sim.send(queue, make_message("a"))
    second = sim.send(queue, make_message("a"))
    assert second.good == set()
    port.next_fault = Fault.FAIL_BEFORE
    port.is_hung = False
    sim.run()
    assert (first.good, second.good) == (set(), set())


def test_a_message_that_failed_is_no_duplicate_when_it_is_sent_again(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("o", requires_duplicate_detection=True))
    store = queue.main.fragments[0].broker.index
    sim.ports[store].next_fault = Fault.FAIL_BEFORE
    assert sim.send(queue, make_message("a")).errors
    sim.return_store(store)
    assert sim.send(queue, make_message("a")).good == {0}
    assert queue.main.counts().active == 1


def test_a_message_whose_reply_was_lost_is_stored_once(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("o", requires_duplicate_detection=True))
    store = queue.main.fragments[0].broker.index
    sim.ports[store].next_fault = Fault.LOSE_REPLY
    assert sim.send(queue, make_message("a")).errors
    sim.return_store(store)
    assert sim.send(queue, make_message("a")).good == {0}
    assert queue.main.counts().active == 1


@pytest.mark.rule("A18.4")
def test_a_ping_is_never_a_duplicate_and_makes_none(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("o", requires_duplicate_detection=True))
    assert sim.send(queue, make_message("a", is_ping=True), make_message("a")).good == {0, 1}
    assert queue.main.counts().active == 1


def test_different_pairs_of_key_and_id_never_meet() -> None:
    pairs = [("c", "ab"), ("bc", "a"), ("\x00c", "ab"), ("c", "ab\x00"), ("c", None)]
    assert len({duplicate_key(message_id, key) for message_id, key in pairs}) == len(pairs)


@pytest.mark.rule("A10")
def test_very_many_keys_that_end_together_are_forgotten_in_steps_in_memory_and_in_the_store(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("d", requires_duplicate_detection=True, duplicate_detection_window=WINDOW))
    count = 3 * FORGOTTEN_AT_ONCE + 1
    for start in range(0, count, 500):
        sim.send(queue, *[make_message(str(number)) for number in range(start, min(count, start + 500))])
        sim.advance(1)
    (fragment,) = queue.main.fragments
    assert fragment.duplicates is not None
    assert len(fragment.duplicates) == count
    store = sim.ports[fragment.broker.index].store
    sim.clock.advance(WINDOW + PRUNE_INTERVAL)
    left = [count - FORGOTTEN_AT_ONCE, count - 2 * FORGOTTEN_AT_ONCE, 1, 0]
    for expected in left:
        fragment.broker.tick(sim.now)
        sim.run()
        assert len(fragment.duplicates) == len(store.duplicates(fragment.key)) == expected
    assert fragment.duplicates.next_end == NEVER


def test_keys_that_ended_are_not_known_while_they_wait_to_be_forgotten() -> None:
    history = DuplicateHistory()
    for number in range(FORGOTTEN_AT_ONCE + 1):
        history.add(str(number), 10)
    last = str(FORGOTTEN_AT_ONCE)
    assert history.forget(20) == 10
    assert history.next_end == 20
    assert not history.is_known(last, 20)
    history.add(last, 50)
    assert not history.forget(20)
    assert (history.is_known(last, 20), history.next_end) == (True, 50 + PRUNE_INTERVAL)


def test_a_key_that_is_seen_again_after_its_end_is_kept_until_the_new_end() -> None:
    history = DuplicateHistory()
    history.add("a", 10)
    assert not history.is_known("a", 10)
    history.add("a", 30)
    assert not history.forget(20)
    assert history.is_known("a", 20)


@pytest.mark.rule("A10")
def test_a_fragment_that_remembers_too_many_ids_is_busy_until_the_oldest_end(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is taken that would go undetected, and memory stays bounded."""
    monkeypatch.setattr(intake, "KEYS_MAX", 3)
    key = "pin" if queue.settings.is_partitioned else None
    assert sim.send(queue, *[make_message(str(n), partition_key=key) for n in range(3)]).good == {0, 1, 2}
    refused = sim.send(queue, make_message("more", partition_key=key))
    assert isinstance(refused.errors[0], ServerBusy)
    sim.advance(WINDOW + PRUNE_INTERVAL)
    assert sim.send(queue, make_message("more", partition_key=key)).good == {0}


def test_an_id_that_is_sent_again_after_its_window_is_the_last_to_end() -> None:
    history = DuplicateHistory()
    history.add("a", 10)
    history.add("b", 20)
    history.add("a", 30)
    assert history.forget(20)
    assert len(history) == 1
    assert history.is_known("a", 29)


@pytest.mark.rule("A10")
def test_keys_of_a_shorter_window_are_forgotten_before_those_of_the_longer_one(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "KEYS_MAX", 3)
    long = QueueDescription("q", requires_duplicate_detection=True, duplicate_detection_window=7 * DAY)
    queue = sim.queue(long)
    store = queue.main.fragments[0].broker.index
    assert sim.send(queue, make_message("long ago")).good == {0}
    sim.entities.update(replace(long, duplicate_detection_window=WINDOW), sim.now, Answer[None]())
    for turn in range(5):
        assert sim.send(queue, make_message(f"{turn} a"), make_message(f"{turn} b")).good == {0, 1}
        assert sim.send(queue, make_message("long ago"), make_message(f"{turn} a")).errors.keys() == {
            0,
            1,
        }  # it is full
        sim.advance(WINDOW + PRUNE_INTERVAL)
    assert len(sim.ports[store].store.duplicates(queue.main.key)) == 1
    assert sim.send(queue, make_message("long ago"), make_message("4 a")).good == {0, 1}
    assert queue.main.counts().active == 1 + 5 * 2 + 1  # what was sent first is known all the time


def test_a_key_of_a_longer_window_is_known_until_its_end_and_no_longer() -> None:
    history = DuplicateHistory()
    history.add("long", 10 * PRUNE_INTERVAL)
    history.add("short", PRUNE_INTERVAL)
    assert history.is_known("long", 10 * PRUNE_INTERVAL - 1)
    assert not history.is_known("long", 10 * PRUNE_INTERVAL)


def test_a_key_that_ends_a_little_before_others_waits_behind_them() -> None:
    history = DuplicateHistory()
    history.add("first", 5 * PRUNE_INTERVAL)
    history.add("little before", 4 * PRUNE_INTERVAL)
    history.add("long before", 3 * PRUNE_INTERVAL - 1)
    assert history.forget(4 * PRUNE_INTERVAL)
    assert len(history) == 2
    assert history.forget(5 * PRUNE_INTERVAL)
    assert len(history) == 0


def test_windows_that_are_made_shorter_again_and_again_begin_a_bounded_number_of_rows() -> None:
    history, ends = DuplicateHistory(), [number * 2 * PRUNE_INTERVAL for number in range(SHORTENED_MAX + 2, 0, -1)]
    for end in ends:
        history.add(str(end), end)
    assert not history.forget(ends[-1])
    assert history.forget(ends[-2])
    assert len(history) == SHORTENED_MAX


@given(
    steps=lists(
        tuples(integers(0, 9), integers(0, 40_000), sampled_from([20_000, 25_000, 60_000, 600_000])), max_size=40
    )
)
def test_a_key_is_known_until_its_end_and_kept_for_little_longer_however_the_window_changes(
    steps: list[tuple[int, Millis, Millis]],
) -> None:
    history, ends, now = DuplicateHistory(), dict[str, Millis](), 0
    for number, pause, window in steps:
        now += pause
        for key in map(str, range(10)):
            assert history.is_known(key, now) is (ends.get(key, 0) > now)
        if history.next_end <= now:
            history.forget(now)
        assert len(history) <= sum(end > now - 2 * PRUNE_INTERVAL for end in ends.values())
        key = str(number)
        if not history.is_known(key, now):
            ends[key] = now + window
            history.add(key, now + window)
