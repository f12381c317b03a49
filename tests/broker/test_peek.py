"""Peek: fragment after fragment, merged, and by ranges of one fragment (contract A12)."""

from collections.abc import Collection

import pytest

from twinbus.broker.commands import Claim, Peek, PeekMerged, PeekPacked, PeekRange, RangePage
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.operations import peek as peek_operations
from twinbus.broker.outcomes import Defer
from twinbus.errors import ArgumentError, FragmentUnavailable
from twinbus.model.delivery import encode_peeked
from twinbus.model.descriptions import QueueDescription, SqlFilter
from twinbus.model.packed_payloads import unpack, unpack_numbers
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import ANY_STATE
from twinbus.testing.messages import make_message, message_id_of
from twinbus.testing.simulation import Answer, Simulation


@pytest.fixture
def sim() -> Simulation:
    return Simulation(16)


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number)) for number in range(10)])
    return queue


def peek(sim: Simulation, queue: MessageQueue, from_number: int = 0, count_max: int = 250) -> list[StoredMessage]:
    return sim.ask(queue, Peek(from_number, count_max)).value


def ids(rows: list[StoredMessage]) -> list[str]:
    return [message_id_of(row.content) for row in rows]


@pytest.mark.rule("A12.1")
def test_peek_shows_active_locked_deferred_and_scheduled_messages(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("deferred"))
    sim.settle(queue.main, sim.receiver(queue.main, 1).take(), Defer())
    sim.send(queue, make_message("locked"))
    sim.receiver(queue.main, 1)
    sim.send(queue, make_message("active"), make_message("scheduled", scheduled_at=sim.now + 1_000))
    rows = peek(sim, queue.main)
    assert ids(rows) == ["deferred", "locked", "active", "scheduled"]
    assert [row.state for row in rows] == [
        MessageState.DEFERRED,
        MessageState.ACTIVE,
        MessageState.ACTIVE,
        MessageState.SCHEDULED,
    ]


def test_peek_at_a_session_shows_nothing_where_there_are_none(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    assert sim.ask(queue.main, Peek(0, 10, "s")).value == []


def test_peek_that_names_no_session_passes_the_messages_of_all(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True, requires_session=True))
    names = [str(number) for number in range(16)]
    for name in names:
        sim.send(queue, make_message(name, session_id=name))
    seen: list[str] = []
    position = 0
    while rows := peek(sim, queue.main, position):
        seen += ids(rows)
        position = rows[-1].sequence_number + 1
    assert sorted(seen) == sorted(names)


def test_peek_starts_at_a_number_and_ends_at_a_count(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number)) for number in range(1, 10)])
    assert ids(peek(sim, queue.main, 4, 3)) == ["4", "5", "6"]
    assert peek(sim, queue.main, 10) == []


@pytest.mark.rule("A12.2")
def test_a_page_of_peek_ends_at_its_size_but_holds_one_message_at_least(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number), body=bytes(100_000)) for number in range(4)])
    assert ids(peek(sim, queue.main)) == ["0", "1"]
    sim.send(queue, make_message("big", body=bytes(300_000)))
    assert ids(peek(sim, queue.main, 5)) == ["big"]


@pytest.mark.rule("A12.2")
def test_a_page_of_peek_never_holds_more_than_250(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number)) for number in range(300)])
    assert len(peek(sim, queue.main, 0, 1_000)) == 250


@pytest.mark.rule("A12.3")
def test_peeking_on_behind_the_last_number_passes_every_fragment(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(50):
        sim.send(queue, make_message(str(number)))
    sim.lose_store(3)
    seen: list[str] = []
    position = 0
    while rows := peek(sim, queue.main, position, 10):
        seen += ids(rows)
        position = rows[-1].sequence_number + 1
    assert sorted(map(int, seen)) == [number for number in range(50) if number % 16 != 3]


@pytest.mark.rule("A12.4")
def test_merged_peek_shows_all_fragments_in_the_order_of_arrival(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(40):
        sim.send(queue, make_message(str(number)))
        sim.clock.advance(1)
    positions: dict[int, int] = {}
    seen: list[str] = []
    while True:
        rows = sim.ask(queue.main, PeekMerged(positions, 7)).value
        if not rows:
            break
        seen += ids(rows)
        positions |= {row.sequence_number >> SEQUENCE_BITS: row.sequence_number + 1 for row in rows}
    assert seen == [str(number) for number in range(40)]


def test_a_merged_page_goes_on_behind_the_end_of_a_fragment(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for name in ("a0", "b0", "b1", "a1", "b2"):
        sim.send(queue, make_message(name, partition_key=name[0]))
        sim.clock.advance(1)
    assert ids(sim.ask(queue.main, PeekMerged({}, 9)).value) == ["a0", "b0", "b1", "a1", "b2"]


def test_a_merged_page_ends_where_a_fragment_has_more_that_was_not_read(sim: Simulation) -> None:
    """What expired counts as read, so the next of this fragment may be older than all that are left of others."""
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for name in ("a expired", "a0", "a1", "b0"):
        lifetime = 1_000 if name == "a expired" else None
        sim.send(queue, make_message(name, partition_key=name[0], time_to_live=lifetime))
        sim.clock.advance(1)
    sim.clock.advance(1_000)
    assert ids(sim.ask(queue.main, PeekMerged({}, 2)).value) == ["a0"]


def test_peek_leaves_out_what_has_expired(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number), time_to_live=1_000) for number in range(3)], make_message("stays"))
    sim.clock.advance(1_000)
    assert ids(peek(sim, queue.main)) == ["stays"]
    assert ids(peek(sim, queue.main, 0, 2)) == ["stays"]


@pytest.mark.rule("A12.4")
def test_merged_pages_hold_every_message_once_and_in_order(sim: Simulation) -> None:
    """Also where the size of a page and not the count ends it."""
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    names = []
    for number in range(60):
        sim.send(queue, make_message(f"m{number}", body=b"x" * (number * 7_919 % 60_000)))
        sim.advance(1)
        names.append(f"m{number}")
    positions: dict[int, int] = {}
    found: list[str] = []
    for _ in range(100):
        rows = sim.ask(queue.main, PeekMerged(positions, 10)).value
        if not rows:
            break
        for row in rows:
            positions[row.sequence_number >> SEQUENCE_BITS] = row.sequence_number + 1
            found.append(message_id_of(row.content))
    assert found == names


# Ranges


def asked(
    sim: Simulation,
    queue: QueueEntity,
    first: int,
    last: int,
    count_max: int = 1_000,
    states: Collection[MessageState] = ANY_STATE,
) -> Answer[RangePage]:
    return sim.ask(queue.main, PeekRange(first, last, count_max, states))


def numbers(page: RangePage) -> list[int]:
    return [row.sequence_number for row in page.rows]


def test_a_range_holds_its_ends_and_nothing_beyond(sim: Simulation, queue: QueueEntity) -> None:
    page = asked(sim, queue, 3, 6).value
    assert (numbers(page), page.next_number) == ([3, 4, 5, 6], None)


def test_a_page_says_where_to_go_on_until_the_range_ends(sim: Simulation, queue: QueueEntity) -> None:
    found: list[list[int]] = []
    following: int | None = 1
    while following is not None:
        page = asked(sim, queue, following, 9, count_max=4).value
        found.append(numbers(page))
        following = page.next_number
    assert found == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]


def test_a_page_is_bounded_by_bytes(sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peek_operations, "RANGE_BYTES_MAX", 1)
    page = asked(sim, queue, 1, 10).value
    assert (numbers(page), page.next_number) == ([1], 2)


def test_only_the_states_asked_for_are_shown(sim: Simulation, queue: QueueEntity) -> None:
    assert sim.ask(queue.main, Claim(2)).value == [1, 2]
    assert numbers(asked(sim, queue, 1, 10, states=(MessageState.DEFERRED,)).value) == [1, 2]
    assert numbers(asked(sim, queue, 1, 4, states=(MessageState.ACTIVE,)).value) == [3, 4]


def filtered(sim: Simulation, queue: QueueEntity, first: int, last: int, count_max: int, sql: str) -> RangePage:
    return sim.ask(queue.main, PeekRange(first, last, count_max, ANY_STATE, SqlFilter(sql))).value


def test_a_filter_leaves_out_what_does_not_match(sim: Simulation, queue: QueueEntity) -> None:
    assert numbers(filtered(sim, queue, 1, 10, 1_000, "sys.MessageId IN ('2', '5')")) == [3, 6]
    assert filtered(sim, queue, 1, 10, 1_000, "colour = 'red'") == RangePage([], None)


def test_a_filter_that_finds_nothing_ends_its_page_and_says_where_to_go_on(
    sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a request over millions of messages would be answered when nobody waits for it any more."""
    monkeypatch.setattr(peek_operations, "SCANS_MAX", 3)
    assert filtered(sim, queue, 1, 10, 2, "sys.MessageId = '9'") == RangePage([], 7)
    assert numbers(filtered(sim, queue, 7, 10, 2, "sys.MessageId = '9'")) == [10]


def test_a_filter_that_is_none_is_refused(sim: Simulation, queue: QueueEntity) -> None:
    answer = sim.ask(queue.main, PeekRange(1, 10, 5, ANY_STATE, SqlFilter("sys.MessageId =")))
    assert isinstance(answer.error, ArgumentError)


def test_expired_messages_are_passed_over(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number), time_to_live=1_000) for number in range(4)], make_message("stays"))
    sim.clock.advance(2_000)
    assert numbers(sim.ask(queue.main, PeekRange(1, 5, 2)).value) == [5]
    for count_max in (1, 2):
        packed = sim.ask(queue.main, PeekPacked(1, 5, count_max)).value
        assert (len(unpack_numbers(packed.sizes)), packed.next_number) == (1, None)


def test_a_message_on_which_a_filter_fails_is_passed_over(sim: Simulation, queue: QueueEntity) -> None:
    assert filtered(sim, queue, 1, 10, 5, "sys.MessageId - 1 > 0") == RangePage([], None)


def test_nothing_in_the_range_is_an_empty_page(sim: Simulation, queue: QueueEntity) -> None:
    assert asked(sim, queue, 50, 60).value == RangePage([], None)


@pytest.mark.parametrize(("first", "last"), [(5, 4), (1, 1 << SEQUENCE_BITS), (1 << SEQUENCE_BITS, 2 << SEQUENCE_BITS)])
def test_a_range_that_leaves_its_fragment_is_refused(
    sim: Simulation, queue: QueueEntity, first: int, last: int
) -> None:
    assert isinstance(asked(sim, queue, first, last).error, ArgumentError)


def test_a_fragment_that_is_unhealthy_says_so(sim: Simulation, queue: QueueEntity) -> None:
    sim.lose_store(queue.main.fragments[0].broker.index)
    assert isinstance(asked(sim, queue, 1, 10).error, FragmentUnavailable)


@pytest.mark.parametrize("with_bodies", [True, False])
@pytest.mark.parametrize("sql", [None, "sys.MessageId <> '4'"])
def test_a_packed_page_has_the_payloads_of_the_same_range(
    sim: Simulation, sql: str | None, *, with_bodies: bool
) -> None:
    """Whatever their state, whether the entity gave them back, and with expired ones between them."""
    queue = sim.queue(QueueDescription("packed"))
    sim.send(queue, *[make_message(str(number), time_to_live=1_000 if number == 3 else None) for number in range(9)])
    assert sim.ask(queue.main, Claim(2, owner="job")).value == [1, 2]
    sim.clock.advance(2_000)
    wanted = None if sql is None else SqlFilter(sql)
    first: int | None = 1
    while first is not None:
        page = sim.ask(queue.main, PeekRange(first, 8, 3, ANY_STATE, wanted, with_bodies)).value
        packed = sim.ask(queue.main, PeekPacked(first, 8, 3, ANY_STATE, wanted, with_bodies)).value
        fronts, bodies = unpack(packed.fronts, packed.front_ends), unpack(packed.bodies, packed.body_ends)
        assert [front + body for front, body in zip(fronts, bodies, strict=True)] == encode_peeked(page.rows)
        assert list(unpack_numbers(packed.sizes)) == [len(row.content) for row in page.rows]
        assert packed.next_number == page.next_number
        first = page.next_number
    assert sim.ask(queue.main, PeekPacked(1, 50, 50)).value.next_number is None, "nothing is there behind the last one"


def test_a_filter_that_finds_nothing_ends_a_packed_page_and_expired_messages_do_not(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peek_operations, "SCANS_MAX", 3)
    queue = sim.queue(QueueDescription("packed"))
    sim.send(queue, *[make_message(str(number), time_to_live=1_000 if number < 9 else None) for number in range(10)])
    nothing = sim.ask(queue.main, PeekPacked(1, 10, 2, ANY_STATE, SqlFilter("sys.MessageId = '9'"))).value
    assert (len(unpack_numbers(nothing.sizes)), nothing.next_number) == (0, 7)
    sim.clock.advance(2_000)
    found = sim.ask(queue.main, PeekPacked(1, 10, 2)).value
    assert (len(unpack_numbers(found.sizes)), found.next_number) == (1, None)


def test_a_packed_page_outside_the_fragment_is_refused(sim: Simulation, queue: QueueEntity) -> None:
    assert isinstance(sim.ask(queue.main, PeekPacked(5, 4, 3)).error, ArgumentError)
