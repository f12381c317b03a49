import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.pipeline.syphon.rounds import Lane, lane_count, lanes_of, pack


@pytest.mark.parametrize(
    ("depth", "lanes"), [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (4_000, 4), (4_001, 4), (10**9, 4)]
)
def test_a_queue_has_a_lane_for_every_target_of_messages_up_to_the_most(depth: int, lanes: int) -> None:
    assert lane_count(depth, target=1_000, lanes_max=4) == lanes


def test_a_queue_whose_order_is_kept_has_one_lane_however_deep_it_is() -> None:
    assert [lane.number for lane in lanes_of(0, "q", 10**9, target=1, lanes_max=1)] == [0]


def test_the_deepest_lanes_are_spread_before_the_others() -> None:
    lanes = [Lane(0, name, 0, depth) for name, depth in (("a", 10), ("b", 90), ("c", 50), ("d", 40))]
    packed = [[lane.queue for lane in task] for task in pack(lanes, 2)]
    assert packed == [["b", "a"], ["c", "d"]]


@given(st.lists(st.integers(1, 10_000), max_size=60), st.integers(1, 64))
def test_every_lane_is_in_one_task_and_no_task_is_without_one(depths: list[int], tasks_max: int) -> None:
    lanes = [Lane(0, str(number), 0, depth) for number, depth in enumerate(depths)]
    packed = pack(lanes, tasks_max)
    assert len(packed) == min(len(lanes), tasks_max)
    assert all(packed)
    assert sorted(lane.queue for task in packed for lane in task) == sorted(lane.queue for lane in lanes)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=60), st.integers(1, 64))
def test_no_task_has_more_to_do_than_the_mean_and_one_lane(depths: list[int], tasks_max: int) -> None:
    packed = pack([Lane(0, str(number), 0, depth) for number, depth in enumerate(depths)], tasks_max)
    loads = [sum(lane.depth for lane in task) for task in packed]
    assert max(loads) <= sum(depths) / len(packed) + max(depths)
