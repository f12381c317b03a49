import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from tests.pipeline.syphon.lane_reports import PLACES, report
from twinbus.errors import ArgumentError
from twinbus.pairing.syphon.destinations import PumpMemory
from twinbus.pairing.syphon.pump import BATCH_MAX
from twinbus.pipeline.syphon.reports import LaneStatus
from twinbus.pipeline.syphon.rounds import Situation, TaskPlan, plan_round, share_out
from twinbus.pipeline.syphon.standing import PairStanding
from twinbus.pipeline.syphon.syphon_settings import SyphonSettings
from twinbus.pipeline.syphon.task_pace import START_RATE

NOW = 1_000_000


def situation(depths: Mapping[int, Mapping[str, int]], tasks_max: int = 2, **settings: Any) -> Situation:
    count = max(depths, default=0) + 1
    standings = [PairStanding() for _ in range(count)]
    return Situation([PLACES] * count, standings, depths, tasks_max, settings=SyphonSettings(**settings))


def queues_of(plans: list[TaskPlan]) -> list[str]:
    return sorted(each.lane.queue for plan in plans for each in plan.lanes)


def test_every_queue_with_messages_has_a_lane_and_empty_ones_have_none() -> None:
    plans = plan_round(situation({0: {"a": 5, "b": 0, "c": 7}, 1: {"d": 1}}), NOW)
    assert queues_of(plans) == ["a", "c", "d"]
    assert len(plans) == 2


def test_a_task_knows_the_pairs_of_its_lanes_and_no_others() -> None:
    plans = plan_round(situation({0: {"a": 5}, 1: {"b": 5}}), NOW)
    assert [sorted(plan.pairs) for plan in plans] == [[0], [1]]


def test_nothing_is_planned_behind_an_open_breaker_or_for_a_queue_that_rests() -> None:
    given = situation({0: {"a": 5}, 1: {"b": 5, "c": 5}})
    given.standings[0].breaker.round_ended(0, "orders", NOW)
    given.standings[1].queue("b").rest(NOW + 1)
    assert queues_of(plan_round(given, NOW)) == ["c"]
    assert queues_of(plan_round(given, NOW + 1)) == ["b", "c"]


def test_several_lanes_on_a_queue_are_for_users_who_give_up_order() -> None:
    deep = {0: {"a": 100_000}}
    assert queues_of(plan_round(situation(deep, 8), NOW)) == ["a"]
    plans = plan_round(situation(deep, 8, lanes_per_queue_max=4), NOW)
    assert queues_of(plans) == ["a"] * 4
    assert not plans[0].keeps_order


def test_what_a_pump_learned_goes_with_its_queue_where_order_is_kept() -> None:
    memory = PumpMemory(lock_duration=7)
    for lanes, expected in ((1, memory), (2, None)):
        given = situation({0: {"a": 5}}, lanes_per_queue_max=lanes)
        given.standings[0].round_ended([report(LaneStatus.BUDGET, queue="a", memory=memory, moved=1)], NOW)
        assert plan_round(given, NOW)[0].lanes[0].memory is expected


def test_rates_and_the_poison_quota_are_shared_out_over_the_tasks_of_a_pair() -> None:
    given = situation({0: {"a": 9, "b": 9, "c": 9}}, 3, rate=300.0, destination_rate=30.0, poison_quota=7)
    given.standings[0].is_recovering = True
    given.standings[0].rates = {"orders": 60.0}
    plans = plan_round(given, NOW)
    assert [plan.pairs[0].poison_quota for plan in plans] == [3, 2, 2]
    for plan in plans:
        pace = plan.pairs[0].pace
        assert pace.rate == pytest.approx(100)
        assert pace.destination_rate == pytest.approx(10)
        assert pace.start_rate == pytest.approx(START_RATE / 3)
        assert pace.rates == {"orders": pytest.approx(20)}


def test_pages_are_small_where_the_rate_is() -> None:
    pages = {
        rate: plan_round(situation({0: {"a": 9, "b": 9}}, rate=rate), NOW)[0].lanes[0].page_max
        for rate in (1.0, 50.0, 10_000.0, None)
    }
    assert pages == {1.0: 1, 50.0: 25, 10_000.0: BATCH_MAX, None: BATCH_MAX}


@pytest.mark.parametrize(("count", "places"), [(0, 3), (1, 3), (500, 7)])
def test_a_quota_is_shared_out_whole(count: int, places: int) -> None:
    assert sum(share_out(count, places, place) for place in range(places)) == count


def test_a_plan_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMARY", "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=verysecret")
    assert PLACES.primary.resolve()
    plans = plan_round(situation({0: {"a": 5}}), NOW)
    assert b"verysecret" not in pickle.dumps(plans)


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget_s": 0.0},
        {"budget_s": 10**6},
        {"lanes_per_queue_max": 0},
        {"lane_target": 0},
        {"rate": 0.0},
        {"destination_rate": -1.0},
        {"poison_quota": -1},
        {"tasks_max": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        SyphonSettings(**wrong)
