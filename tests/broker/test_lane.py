"""What a lane keeps in memory, and how many messages it knows to lie beyond."""

import pytest

from tests.contract.rows import row
from twinbus.broker.fragment import lane as lane_module
from twinbus.broker.fragment.lane import (
    READY_BYTES_MAX,
    READY_COUNT_MAX,
    STEP_BYTES_MAX,
    STEP_COUNT_MAX,
    WIDE_COUNT_MAX,
    Lane,
)
from twinbus.broker.held_contents import without_content
from twinbus.broker.wide_lanes import WideLanes
from twinbus.errors import EntityDisabled
from twinbus.model.descriptions import QueueDescription
from twinbus.store.changes import StoredMessage
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Simulation


def open_lane(*numbers: int) -> Lane:
    lane = Lane(None, 0, is_open=True)
    rows = [row(number) for number in numbers]
    lane.admit(rows, sum(len(each.content) for each in rows))
    return lane


def ready(lane: Lane) -> list[int]:
    return [each.sequence_number for each in lane.ready]


def test_a_message_that_is_put_back_takes_its_old_place_or_lies_beyond_the_tail() -> None:
    lane = open_lane(1, 2, 4, 5)
    taken = lane.take(3)
    for message in (taken[1], taken[0], taken[2]):
        lane.put_back(message)
    assert (ready(lane), lane.beyond) == ([1, 2, 4, 5], 0)
    lane.put_back(row(9))
    assert (ready(lane), lane.beyond, lane.first) == ([1, 2, 4, 5], 1, 9)
    lane.put_back(row(7))
    assert (lane.beyond, lane.first) == (2, 7)


def test_a_closed_lane_counts_what_is_put_back_and_knows_the_first() -> None:
    lane = Lane("s", 0, is_open=False)
    for number, first in ((8, 8), (5, 5), (6, 5)):
        lane.put_back(row(number))
        assert lane.first == first
    assert (ready(lane), lane.beyond) == ([], 3)


def test_the_bytes_in_memory_are_those_of_the_ready_messages() -> None:
    lane = open_lane(1, 2, 3, 4)
    size = len(row(1).content)
    taken = lane.take(1)
    assert lane.ready_bytes == 3 * size
    lane.remove(3)
    assert (ready(lane), lane.ready_bytes) == ([2, 4], 2 * size)
    lane.put_back(taken[0])
    assert lane.ready_bytes == 3 * size
    assert len(lane.take(10)) == 3
    assert lane.ready_bytes == 0


def test_what_is_removed_and_not_in_memory_was_beyond() -> None:
    lane = Lane(None, 1, is_open=True)
    lane.remove(7)
    assert lane.beyond == 0
    lane.remove(8)
    assert lane.beyond == 0


def test_a_scan_brings_what_lies_beyond_until_it_finds_nothing() -> None:
    lane = Lane(None, 3, is_open=True)
    assert lane.wants_fill
    assert lane.room == (READY_COUNT_MAX, READY_BYTES_MAX)
    lane.start_fill()
    assert not lane.wants_fill
    lane.admit([row(9)], 1)
    assert (ready(lane), lane.beyond) == ([], 4)
    lane.fill([row(1), row(2), row(3)], [row(1), row(3)])
    assert (ready(lane), lane.beyond, lane.tail) == ([1, 3], 2, 3)
    assert lane.wants_fill
    lane.fill([], [])
    assert (lane.beyond, lane.wants_fill) == (0, False)


@pytest.mark.parametrize("back", [1, 2, 3])
@pytest.mark.parametrize("found", [0, 1])
def test_what_comes_back_without_its_content_while_a_scan_is_under_way_is_found_by_the_next_one(
    back: int, found: int
) -> None:
    """Also the last one that memory covered, where the scan finds nothing behind it."""
    lane = open_lane(1, 2, 3)
    taken = lane.take(3)
    lane.admit_beyond(found, 4)
    lane.start_fill()
    lane.put_back(without_content(taken[back - 1], None))
    rows = [row(4)][:found]
    lane.fill(rows, rows)
    assert (ready(lane), lane.beyond, lane.tail) == ([], 1 + found, back - 1)
    assert lane.filter_below == 3 + found, "those that are still locked are not handed over again"
    assert lane.wants_fill


def test_more_than_memory_has_room_for_lies_beyond_the_last_that_is_kept() -> None:
    lane = open_lane(*range(2, READY_COUNT_MAX + 2))
    assert (len(lane.ready), lane.beyond) == (READY_COUNT_MAX, 0)
    lane.admit([row(READY_COUNT_MAX + 2)], 1)
    assert (len(lane.ready), lane.beyond) == (READY_COUNT_MAX, 1)
    lane.put_back(row(1))
    assert (len(lane.ready), lane.beyond) == (READY_COUNT_MAX, 2)
    assert (lane.ready[0].sequence_number, lane.tail, lane.filter_below) == (1, READY_COUNT_MAX, READY_COUNT_MAX + 1)


def test_a_lane_that_is_closed_keeps_the_count_of_all_its_messages_and_a_number_not_above_the_first() -> None:
    lane = open_lane(4, 5, 6)
    lane.session_id = "s"
    taken = lane.take(2)
    lane.put_back(row(9))
    closed = lane.closed(taken)
    assert (closed.beyond, closed.first, ready(closed), closed.is_open) == (4, 4, [], False)
    emptied = open_lane(4)
    emptied.take(1)
    emptied.put_back(row(9))
    assert (emptied.closed([]).beyond, emptied.closed([]).first) == (1, 5)


def filled(lane: Lane, first: int, count: int) -> None:
    rows = [row(number) for number in range(first, first + count)]
    lane.start_fill()
    lane.fill(rows, rows)


def test_a_lane_is_wide_while_scans_leave_something_beyond_and_narrow_when_the_backlog_is_gone() -> None:
    wide_lanes = WideLanes()
    lane = Lane(None, 20_000, is_open=True, wide_lanes=wide_lanes)
    filled(lane, 1, READY_COUNT_MAX)
    assert (lane.is_wide, lane.wants_fill) == (False, False)
    lane.take(600)
    assert lane.wants_fill
    filled(lane, lane.tail + 1, 1)
    assert (lane.is_wide, lane.wants_fill, lane.room) == (True, True, (STEP_COUNT_MAX, STEP_BYTES_MAX))
    while lane.wants_fill:
        filled(lane, lane.tail + 1, STEP_COUNT_MAX)
    assert WIDE_COUNT_MAX - STEP_COUNT_MAX < len(lane.ready) <= WIDE_COUNT_MAX
    lane.beyond = 0
    lane.take(len(lane.ready) - READY_COUNT_MAX)
    assert lane.is_wide
    lane.take(1)
    assert (lane.is_wide, len(wide_lanes)) == (False, 0)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_backlog_is_read_in_a_wide_lane_where_there_is_one_fragment(is_partitioned: bool) -> None:
    sim = Simulation(16)
    queue = sim.queue(QueueDescription("q", enable_partitioning=is_partitioned))
    for start in range(0, 5 * READY_COUNT_MAX, 500):
        sim.send(queue, *[make_message(str(start + number), partition_key="fragment 1") for number in range(500)])
    (fragment,) = [each for each in queue.main.fragments if each.tally.active_count]
    sim.receiver(queue.main, 2 * READY_COUNT_MAX)
    assert fragment.lane.is_wide is not is_partitioned
    queue.main.close(EntityDisabled("Nothing can be received."))
    assert not fragment.lane.is_wide


def test_a_lane_that_is_dropped_or_narrowed_makes_room_for_another_wide_one() -> None:
    wide_lanes = WideLanes()
    lanes = [Lane(None, 9_000, is_open=True, wide_lanes=wide_lanes) for _ in range(5)]
    for lane in lanes:
        filled(lane, 1, 100)
        filled(lane, 101, 100)
    assert [lane.is_wide for lane in lanes] == [True, True, True, True, False]
    del lanes[0]
    filled(lanes[-1], 201, 1)
    assert lanes[-1].is_wide


def test_a_lane_narrowed_during_a_scan_keeps_as_much_as_a_narrow_one() -> None:
    lane = Lane(None, 9_000, is_open=True, wide_lanes=WideLanes())
    filled(lane, 1, 100)
    lane.start_fill()
    assert lane.is_wide
    lane.narrow()
    rows = [row(number) for number in range(101, 2_001)]
    lane.fill(rows, rows)
    assert (len(lane.ready), lane.beyond, lane.tail) == (READY_COUNT_MAX, 8_000, READY_COUNT_MAX)
    assert (lane.is_wide, lane.filter_below) == (False, 2_000)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a few messages reach."""
    sizes = {"READY_COUNT_MAX": 4, "READY_BYTES_MAX": 400, "WIDE_COUNT_MAX": 10, "WIDE_BYTES_MAX": 1_000}
    for name, size in (sizes | {"STEP_COUNT_MAX": 3, "STEP_BYTES_MAX": 300}).items():
        monkeypatch.setattr(lane_module, name, size)


def sized(number: int, size: int) -> StoredMessage:
    return row(number, bytes(size))


def wide_lane() -> Lane:
    """Empty, with its tail at 1."""
    lane = Lane(None, 50, is_open=True, wide_lanes=WideLanes())
    lane.start_fill()
    lane.fill([sized(1, 0)], [])
    lane.start_fill()
    lane.fill([sized(1, 0)], [])
    assert lane.is_wide
    return lane


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("size", "count"), [(100, 4), (10, 4), (200, 2), (101, 3), (134, 2), (500, 0)])
def test_new_messages_are_kept_up_to_both_limits_and_the_next_lie_beyond(size: int, count: int) -> None:
    lane = Lane(None, 0, is_open=True)
    for number in range(1, 7):
        lane.admit([sized(number, size)], size)
    assert (len(lane.ready), lane.beyond, lane.ready_bytes) == (count, 6 - count, count * size)
    assert lane.tail == count


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("size", "count"), [(10, 4), (150, 2), (200, 2), (500, 1)])
def test_what_comes_back_beyond_the_limits_puts_the_last_ones_out_of_memory(size: int, count: int) -> None:
    lane = Lane(None, 0, is_open=True)
    lane.tail = 9
    for number in (5, 4, 3, 2, 1):
        lane.put_back(sized(number, size))
    assert (ready(lane), lane.beyond) == (list(range(1, count + 1)), 5 - count)
    assert (lane.tail, lane.ready_bytes) == (count, count * size)
    assert lane.filter_below == 9, "what was taken before may be found by the next scan"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("count", "size", "is_wanted", "room"),
    [(0, 1, True, (4, 400)), (1, 199, True, (3, 201)), (1, 200, False, (3, 200)), (2, 1, False, (2, 398))],
)
def test_a_lane_wants_more_while_half_of_its_room_is_free(
    count: int, size: int, is_wanted: bool, room: tuple[int, int]
) -> None:
    lane = Lane(None, 0, is_open=True)
    if count:
        lane.admit([sized(number + 1, size) for number in range(count)], count * size)
    assert not lane.wants_fill, "nothing lies beyond"
    lane.admit_beyond(1, 9)
    assert (lane.wants_fill, lane.room) == (is_wanted, room)


@pytest.mark.usefixtures("small")
def test_a_scan_may_always_bring_one_message() -> None:
    lane = Lane(None, 1, is_open=True)
    lane.fill([sized(1, 900)], [sized(1, 900)])
    assert lane.room == (3, 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("count", "size", "is_wanted"), [(6, 1, True), (7, 1, False), (1, 699, True), (1, 700, False), (2, 350, False)]
)
def test_a_wide_lane_wants_more_while_a_whole_step_fits(count: int, size: int, is_wanted: bool) -> None:
    lane = wide_lane()
    rows = [sized(number + 2, size) for number in range(count)]
    lane.start_fill()
    lane.fill(rows, rows)
    assert (lane.is_wide, lane.wants_fill, lane.room) == (True, is_wanted, (3, 300))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("size", "count"), [(1, 10), (100, 10), (101, 9), (500, 2), (1_100, 1)])
def test_a_wide_lane_keeps_up_to_its_own_limits(size: int, count: int) -> None:
    lane = wide_lane()
    rows = [sized(number + 2, size) for number in range(12)]
    lane.start_fill()
    lane.fill(rows, rows)
    assert (len(lane.ready), lane.ready_bytes, lane.beyond) == (count, count * size, 50 - count)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("left", "size", "is_wide"), [(4, 10, True), (3, 10, False), (1, 400, True), (1, 399, False), (0, 1, False)]
)
def test_a_wide_lane_is_narrow_again_once_the_rest_fits_a_narrow_one(left: int, size: int, is_wide: bool) -> None:
    lane = wide_lane()
    rows = [sized(number + 2, size) for number in range(5 if size < 100 else 2)]
    lane.start_fill()
    lane.fill(rows, rows)
    lane.take(len(rows) - left - 1)
    lane.beyond = 0
    lane.take(1)
    assert (len(lane.ready), lane.is_wide) == (left, is_wide)


@pytest.mark.one_node("of one process")
def test_the_brokers_of_a_namespace_share_their_wide_lanes() -> None:
    first, second = Simulation(2).brokers
    assert first.wide_lanes is second.wide_lanes


def test_many_are_removed_as_if_one_by_one() -> None:
    one_by_one, together = open_lane(1, 2, 4, 5), open_lane(1, 2, 4, 5)
    for lane in (one_by_one, together):
        lane.admit_beyond(3, 6)
    for number in (2, 5, 6, 8):
        one_by_one.remove(number)
    together.remove_all([2, 5, 6, 8], 0, 8)
    for lane in (one_by_one, together):
        assert (ready(lane), lane.ready_bytes, lane.beyond, lane.tail) == ([1, 4], 14, 1, 5)


def test_a_lane_that_is_emptied_does_not_look_at_what_was_removed_again() -> None:
    lane = open_lane(1, 2)
    lane.admit_beyond(3, 3)
    lane.remove_all([1, 2, 3, 4], 2, 4)
    assert (ready(lane), lane.beyond, lane.tail) == ([], 1, 4)
    lane.start_fill()
    lane.remove_all([5], 4, 5)
    assert lane.tail == 4  # the scan was asked for from there


def test_a_lane_that_is_emptied_looks_at_what_lies_before_the_removed_ones_and_may_be_free_again() -> None:
    lane = open_lane(4)
    lane.admit_beyond(2, 5)
    lane.remove_all([4, 5], 5, 5)
    assert lane.tail == 4
