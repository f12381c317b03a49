"""What a lane keeps in memory, and how many messages it knows to lie beyond."""

from tests.contract.rows import row
from twinbus.broker.fragment.lane import (
    READY_BYTES_MAX,
    READY_COUNT_MAX,
    STEP_BYTES_MAX,
    STEP_COUNT_MAX,
    WIDE_COUNT_MAX,
    Lane,
)
from twinbus.broker.wide_lanes import WideLanes


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
