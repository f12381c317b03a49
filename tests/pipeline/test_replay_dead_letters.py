"""Moving dead letters, without Spark: what one task does in a real namespace, and what its driver makes of it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pairing.relay_thread import RelayThread
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.message import encode_message
from twinbus.client.received_message import ReceivedMessage
from twinbus.clock import SystemClock
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.copy_ids import COPY_OF
from twinbus.pipeline.replay.copies import copy_of
from twinbus.pipeline.replay.dead_letter_job import BUDGET_S, BUDGET_S_MAX, ReplayFailed, _Queue, note
from twinbus.pipeline.replay.dead_letter_task import MovePlan, MoveReport, numbers_in, run_move
from twinbus.pipeline.replay.replay_tally import Tally
from twinbus.pipeline.source.access.entity_access import enqueued_at
from twinbus.pipeline.source.ranges import runs
from twinbus.testing.local_namespace import LocalNamespace
from twinbus.testing.pytest_plugin import namespace_fixture

bus = namespace_fixture(scope="module")
COUNT = 20


@pytest.fixture
def queue(bus: LocalNamespace, request: pytest.FixtureRequest) -> Iterator[str]:
    """A queue with dead letters, and with nothing else."""
    path = bus.create_queue(f"q{abs(hash(request.node.nodeid))}")
    fill(bus, path, COUNT)
    yield path
    bus.administration.delete_queue(path)


def fill(bus: LocalNamespace, path: str, count: int, receive_from: str | None = None) -> None:
    payloads = [encode_message(str(n), message_id=str(n)) for n in range(count)]
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        assert not any(namespace.sender(path).send(payloads))
        receiver = namespace.receiver(receive_from or path)
        taken = receiver.collect(count, 5)
        assert not any(receiver.dead_letter(taken, "Tired", "of it"))
        receiver.close()


def peek(bus: LocalNamespace, path: str) -> list[ReceivedMessage]:
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        return namespace.run(namespace.entity(path).peek(100))


def peek_all(bus: LocalNamespace, path: str) -> list[ReceivedMessage]:
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        return namespace.run(namespace.extras(path).peek_merged(100))


def numbers(bus: LocalNamespace, path: str) -> list[int]:
    return [message.sequence_number or 0 for message in peek(bus, f"{path}/$DeadLetterQueue")]


def plan(
    bus: LocalNamespace, path: str, chosen: list[int], *, to: str | None = None, sent: list[int] | None = None
) -> MovePlan:
    connection = ConnectionOptions.from_options({"connectionString": bus.connection_string})
    return MovePlan(connection, f"{path}/$DeadLetterQueue", to or path, runs(chosen), runs(sent or []))


def test_the_chosen_ones_are_moved_and_the_others_can_be_received_at_once(bus: LocalNamespace, queue: str) -> None:
    chosen = numbers(bus, queue)[5:15]
    report = run_move(plan(bus, queue, chosen), SystemClock())
    assert (report.moved, report.error, report.is_drained) == (runs(chosen), None, False)
    assert [message.message_id for message in peek(bus, queue)] == [str(n) for n in range(5, 15)]
    assert bus.message_count(queue) == 10
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        others = namespace.receiver(f"{queue}/$DeadLetterQueue", deletes=True).collect(10, 5)
    assert sorted(int(str(message.message_id)) for message in others) == [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]


def test_those_whose_turn_does_not_come_in_time_can_be_received_at_once(bus: LocalNamespace, queue: str) -> None:
    slow = replace(plan(bus, queue, numbers(bus, queue)), rate=10.0, budget_s=0.2)
    report = run_move(slow, SystemClock())
    moved = sum(end - first for first, end in report.moved)
    assert 0 < moved <= 10
    assert (bus.message_count(queue), report.error) == (moved, None)
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        others = namespace.receiver(f"{queue}/$DeadLetterQueue", deletes=True).collect(COUNT - moved, 5)
    assert len(others) == COUNT - moved


def test_a_copy_says_nothing_of_its_time_as_a_dead_letter(bus: LocalNamespace, queue: str) -> None:
    run_move(plan(bus, queue, numbers(bus, queue)[:1]), SystemClock())
    (message,) = peek(bus, queue)
    assert not message.application_properties
    assert (message.dead_letter_reason, message.delivery_count) == (None, 0)


def test_dead_letters_of_a_subscription_are_moved_as_well(bus: LocalNamespace, queue: str) -> None:
    topic = bus.create_topic(f"{queue}-t", "s")
    fill(bus, topic, 3, receive_from=f"{topic}/Subscriptions/s")
    path = f"{topic}/Subscriptions/s"
    report = run_move(plan(bus, path, numbers(bus, path), to=queue), SystemClock())
    assert (sum(end - first for first, end in report.moved), bus.message_count(queue)) == (3, 3)


def test_what_is_gone_already_ends_the_task_and_is_not_waited_for(bus: LocalNamespace, queue: str) -> None:
    report = run_move(plan(bus, queue, [*numbers(bus, queue), 999]), SystemClock())
    assert (sum(end - first for first, end in report.moved), report.is_drained) == (COUNT, True)


def test_one_whose_copy_was_sent_before_is_only_removed(bus: LocalNamespace, queue: str) -> None:
    found = numbers(bus, queue)
    report = run_move(plan(bus, queue, found[1:], sent=found[:1]), SystemClock())
    assert (report.moved, report.sent) == (runs(found), [])
    assert "0" not in [message.message_id for message in peek(bus, queue)]
    assert bus.message_count(f"{queue}/$DeadLetterQueue") == 0


def test_nothing_of_a_queue_that_was_made_again_is_moved_or_removed_under_the_numbers_of_the_one_before(
    bus: LocalNamespace, queue: str
) -> None:
    found = peek(bus, f"{queue}/$DeadLetterQueue")
    newest = max(enqueued_at(message) for message in found)
    bus.administration.delete_queue(queue)
    bus.create_queue(queue)
    fill(bus, queue, COUNT)
    chosen = numbers(bus, queue)
    assert chosen == [message.sequence_number for message in found]
    moving = replace(plan(bus, queue, chosen[1:], sent=chosen[:1]), newest=newest)
    report = run_move(moving, SystemClock())
    assert (report.moved, report.error, report.is_drained) == ([], None, True)
    assert bus.message_count(f"{queue}/$DeadLetterQueue") == COUNT


def test_what_the_destination_refuses_stays_in_the_dead_letter_queue(bus: LocalNamespace, queue: str) -> None:
    sessions = bus.create_queue(f"{queue}-s", requires_session=True)
    chosen = numbers(bus, queue)[:3]
    report = run_move(plan(bus, queue, chosen, to=sessions), SystemClock())
    assert (report.moved, report.refused) == ([], runs(chosen))
    assert f"'{sessions}': " in str(report.error)
    assert bus.message_count(f"{queue}/$DeadLetterQueue") == COUNT


@pytest.mark.rule("C1.3")
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_queue_that_detects_duplicates_gets_its_own_dead_letters_back(
    bus: LocalNamespace, queue: str, is_partitioned: bool
) -> None:
    """The queue has had their ids, as it has after any dead-lettering within its window."""
    home = bus.create_queue(f"{queue}-d", enable_partitioning=is_partitioned, requires_duplicate_detection=True)
    fill(bus, home, COUNT)
    chosen = [message.sequence_number or 0 for message in peek_all(bus, f"{home}/$DeadLetterQueue")]
    report = run_move(replace(plan(bus, home, chosen), is_renaming=True), SystemClock())
    assert (report.moved, report.error) == (runs(chosen), None)
    copies = peek_all(bus, home)
    assert len({message.message_id for message in copies}) == COUNT
    originals = [(message.application_properties or {})[COPY_OF] for message in copies]
    assert sorted(originals) == sorted(str(n) for n in range(COUNT))
    assert bus.message_count(f"{home}/$DeadLetterQueue") == 0


@pytest.mark.rule("C1.3")
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_job_that_was_killed_before_it_could_remove_makes_the_same_copies_again(
    bus: LocalNamespace, queue: str, is_partitioned: bool
) -> None:
    target = bus.create_queue(f"{queue}-p", enable_partitioning=is_partitioned, requires_duplicate_detection=True)
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        dead = f"{queue}/$DeadLetterQueue"
        receiver = namespace.receiver(dead)
        taken = receiver.collect(COUNT, 5)
        copies = [copy_of(message.payload, 0, dead) for message in taken]
        assert not any(namespace.sender(target).send(copies))
        assert not any(receiver.abandon(taken))
        receiver.close()
    chosen = numbers(bus, queue)
    report = run_move(replace(plan(bus, queue, chosen, to=target), is_renaming=True), SystemClock())
    assert report.moved == runs(chosen)
    assert bus.message_count(target) == COUNT


def test_a_destination_that_is_down_loses_nothing(bus: LocalNamespace, queue: str) -> None:
    target = bus.create_queue(f"{queue}-down")
    while bus.store_of(target) == bus.store_of(queue):
        target = bus.create_queue(f"{target}x")
    bus.store_down(bus.store_of(target))
    try:
        report = run_move(plan(bus, queue, numbers(bus, queue), to=target), SystemClock())
    finally:
        bus.store_up(bus.store_of(target))
    assert (report.moved, report.is_transient) == ([], True)
    assert bus.message_count(f"{queue}/$DeadLetterQueue") == COUNT


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_what_somebody_holds_is_not_taken_for_gone(bus: LocalNamespace, queue: str, is_partitioned: bool) -> None:
    """As after a round that lost its connection: its locks go on for a while."""
    if is_partitioned:
        queue = bus.create_queue(f"{queue}-held", enable_partitioning=True)
        fill(bus, queue, COUNT)
    dead = f"{queue}/$DeadLetterQueue"
    chosen = [message.sequence_number or 0 for message in peek_all(bus, dead)]
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        receiver = namespace.receiver(dead, credit=2)
        held = receiver.collect(2, 5)
        report = run_move(plan(bus, queue, chosen), SystemClock())
        assert (report.is_drained, report.is_transient) == (False, True)
        assert "are locked by other receivers" in str(report.error)
        assert len(numbers_in(report.moved)) == COUNT - 2
        assert not any(receiver.abandon(held))
        receiver.close()
    left = sorted(set(chosen) - numbers_in(report.moved))
    assert run_move(plan(bus, queue, left), SystemClock()).moved == runs(left)
    assert run_move(plan(bus, queue, left), SystemClock()).is_drained


def test_a_queue_that_is_not_there_is_in_the_report(bus: LocalNamespace) -> None:
    report = run_move(plan(bus, "nowhere", [1], sent=[2]), SystemClock())
    assert "could not be found" in str(report.error)
    assert not report.is_transient
    assert report.sent == [(2, 3)], "what was sent is not forgotten"


def test_a_report_travels_as_text() -> None:
    report = MoveReport("q", [(1, 3)], [(4, 5)], [(7, 8)], error="no", is_transient=True, is_repeated=True)
    assert MoveReport.from_json(report.to_json()) == report


def chosen_queue(*chosen: int) -> _Queue:
    return _Queue(Tally("q", "q", len(chosen)), set(chosen))


def test_what_is_sent_and_not_removed_is_removed_by_the_next_round() -> None:
    queue = chosen_queue(1, 2, 3)
    assert note(queue, MoveReport("q", moved=[(1, 2)], sent=[(2, 3)], error="lost", is_transient=True))
    assert (queue.chosen, queue.sent, queue.tally.left) == ({3}, {2}, 2)
    assert note(queue, MoveReport("q", moved=[(2, 4)]))
    assert queue.is_done
    assert (queue.tally.replayed, queue.tally.left) == (3, 0)


def test_what_is_left_of_a_drained_queue_is_missing() -> None:
    queue = chosen_queue(1, 2)
    note(queue, MoveReport("q", moved=[(1, 2)], is_drained=True))
    assert queue.is_done
    assert (queue.tally.replayed, queue.tally.missing, queue.tally.left) == (1, 1, 0)


def test_what_a_lost_task_had_moved_is_not_missing(bus: LocalNamespace, queue: str) -> None:
    """Spark repeats the task with the same plan, and nobody got the first report."""
    chosen = numbers(bus, queue)
    replay = chosen_queue(*chosen)
    run_move(plan(bus, queue, chosen[:5]), SystemClock())
    assert bus.message_count(queue) == 5
    note(replay, run_move(plan(bus, queue, chosen), SystemClock(), attempt=1))
    assert replay.is_done
    assert (replay.tally.replayed, replay.tally.missing) == (COUNT - 5, 0)
    assert (replay.tally.unconfirmed, replay.tally.left) == (5, 0)


def test_what_a_lost_task_may_still_move_is_not_missing_in_a_later_round() -> None:
    queue = chosen_queue(1, 2, 3)
    note(queue, MoveReport("q", moved=[(1, 2)], is_repeated=True))
    note(queue, MoveReport("q", moved=[(2, 3)], is_drained=True))
    assert (queue.tally.replayed, queue.tally.missing, queue.tally.unconfirmed) == (2, 0, 1)


def test_refused_messages_do_not_end_the_replay_and_a_missing_right_does() -> None:
    queue = chosen_queue(1, 2)
    assert note(queue, MoveReport("q", refused=[(1, 2)], error="too large"))
    assert (queue.tally.refused, queue.tally.last_error) == (1, "too large")
    with pytest.raises(ReplayFailed, match="'q': no right"):
        note(queue, MoveReport("q", error="no right"))


def test_a_round_in_which_nothing_moved_is_told_apart() -> None:
    assert not note(chosen_queue(1), MoveReport("q", error="down", is_transient=True))


def test_a_round_that_does_not_come_to_what_is_chosen_is_followed_by_a_longer_one() -> None:
    queue = chosen_queue(1)
    assert not note(queue, MoveReport("q"))
    assert queue.budget_s == 2 * BUDGET_S
    assert "are behind so many others" in str(queue.tally.last_error)
    for _ in range(9):
        note(queue, MoveReport("q"))
    assert queue.budget_s == BUDGET_S_MAX


def test_a_task_that_sees_the_stop_file_gives_back_what_it_has_not_moved(
    bus: LocalNamespace, queue: str, tmp_path: Path
) -> None:
    (tmp_path / "stop").touch()
    stopped = replace(plan(bus, queue, numbers(bus, queue)), stop_file=str(tmp_path / "stop"))
    report = run_move(stopped, SystemClock())
    assert (report.moved, report.error, report.is_drained) == ([], None, False)
    with BlockingNamespace.connect(bus.connection_string) as namespace:
        assert len(namespace.receiver(f"{queue}/$DeadLetterQueue", deletes=True).collect(COUNT, 5)) == COUNT


COMPLETING = b"\x00\x53\x15.{0,40}\x00\x53" + re.escape(b"\x24")
"""A disposition whose state is `accepted`; answers to requests are settled by their sender."""


def test_a_namespace_that_stops_answering_is_waited_for_as_long_as_an_operation_may_take(
    bus: LocalNamespace, queue: str
) -> None:
    found = numbers(bus, queue)
    port = parse_connection_string(bus.connection_string).port
    with RelayThread(port) as relay:
        relay.hold_at(COMPLETING)
        through = bus.connection_string.replace(f":{port};", f":{relay.port};")
        connection = ConnectionOptions.from_options({"connectionString": through, "operationTimeout": "2"})
        path = f"{queue}/$DeadLetterQueue"
        report = run_move(MovePlan(connection, path, queue, [], runs(found)), SystemClock())
    assert report.error == f"'{path}' did not answer within 2 s."
    assert report.is_transient
    assert (report.moved, report.sent) == ([], runs(found))
