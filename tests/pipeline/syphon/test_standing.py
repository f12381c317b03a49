import pytest

from tests.pipeline.syphon.lane_reports import report
from twinbus.pairing.syphon.destinations import Destination, Lock, PumpMemory
from twinbus.pipeline.syphon.reports import LaneStatus
from twinbus.pipeline.syphon.standing import HOLD_MIN, REST_MAX, REST_MIN, PairStanding

NOW = 1_000_000


def test_a_queue_that_gave_messages_takes_part_in_the_next_round() -> None:
    standing = PairStanding()
    standing.round_ended([report(LaneStatus.BUDGET, moved=10)], NOW)
    assert standing.may_run(NOW)
    assert standing.queue("q").may_run(NOW)


def test_a_queue_whose_messages_others_hold_rests_ever_longer() -> None:
    standing, rests = PairStanding(), []
    for _ in range(8):
        standing.round_ended([report(LaneStatus.EMPTY)], NOW)
        rests.append(standing.queue("q").rest_until - NOW)
    assert rests == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, REST_MAX, REST_MAX]
    standing.round_ended([report(LaneStatus.EMPTY, moved=1)], NOW)
    standing.round_ended([report(LaneStatus.EMPTY)], NOW)
    assert standing.queue("q").rest_until - NOW == REST_MIN


def test_a_queue_of_several_lanes_rests_only_if_none_of_them_got_anything() -> None:
    standing = PairStanding()
    standing.round_ended([report(LaneStatus.EMPTY, moved=5), report(LaneStatus.EMPTY)], NOW)
    assert standing.queue("q").may_run(NOW)


def test_a_queue_with_left_messages_rests_until_the_first_of_them_can_come_again() -> None:
    memory = PumpMemory(
        {
            "down": Destination(paused_until=NOW + 30_000, left={1: Lock(NOW + 5_000)}),
            "slow": Destination(left={2: Lock(NOW + 20_000), 3: Lock(NOW + 25_000)}),
        }
    )
    standing = PairStanding()
    standing.round_ended([report(LaneStatus.STUCK, memory=memory, left=3)], NOW)
    assert standing.queue("q").rest_until == NOW + 20_000
    assert standing.queue("q").memory is memory


def test_a_queue_whose_left_messages_can_be_given_back_rests_until_their_destination_may_be_tried() -> None:
    memory = PumpMemory({"down": Destination(paused_until=NOW + 4_000, left={1: Lock(NOW + 50_000, b"token")})})
    standing = PairStanding()
    standing.round_ended([report(LaneStatus.STUCK, memory=memory, left=1)], NOW)
    assert standing.queue("q").rest_until == NOW + 4_000


def test_a_link_that_broke_in_the_middle_lets_the_locks_of_what_it_had_end_first() -> None:
    standing = PairStanding()
    standing.round_ended([report(LaneStatus.BACKLOG_DOWN, memory=PumpMemory(lock_duration=60_000), moved=1)], NOW)
    assert standing.queue("q").rest_until == NOW + 60_000


def test_a_pair_that_met_an_outage_and_moved_nothing_waits_for_a_probe_and_then_starts_slowly() -> None:
    standing = PairStanding()
    standing.round_ended([report(LaneStatus.DESTINATION_DOWN, left=5, outages=1)], NOW)
    assert not standing.may_run(NOW + 10**9)
    standing.probe_answered()
    assert standing.may_run(NOW)
    assert standing.is_recovering
    standing.round_ended([report(LaneStatus.EMPTY, moved=5)], NOW)
    assert not standing.is_recovering


def test_a_pair_whose_poison_quota_is_used_up_is_held_ever_longer() -> None:
    standing = PairStanding()
    poisoned = [report(LaneStatus.POISON_QUOTA), report(LaneStatus.POISON_QUOTA, error="gone", dead_lettered=5)]
    standing.round_ended(poisoned, NOW)
    assert standing.held_because == "gone"
    assert not standing.may_run(NOW + HOLD_MIN - 1)
    assert standing.may_run(NOW + HOLD_MIN)
    standing.round_ended(poisoned, NOW)
    assert standing.held_until == NOW + 2 * HOLD_MIN
    standing.round_ended([report(LaneStatus.EMPTY, moved=1)], NOW)
    assert standing.held_because is None


def test_the_rate_of_a_destination_is_the_sum_over_tasks_and_not_over_lanes() -> None:
    standing = PairStanding()
    standing.round_ended(
        [
            report(task=0, queue="a", moved=1, rate=100.0),
            report(task=0, queue="b", moved=1, rate=100.0),
            report(task=1, queue="c", moved=1, rate=50.0),
            report(task=1, queue="c", path="free", moved=1),
        ],
        NOW,
    )
    assert standing.rates == {"orders": pytest.approx(150.0)}


def test_lanes_that_were_lost_change_nothing_that_is_known() -> None:
    standing = PairStanding(rates={"orders": 5.0}, is_recovering=True)
    standing.round_ended([report(LaneStatus.LOST)], NOW)
    assert standing.rates == {"orders": 5.0}
    assert standing.is_recovering
