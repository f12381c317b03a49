import pytest

from twinbus.errors import ServerBusy
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.pipeline.syphon.task_pace import FREE_RATE, PacePlan, TaskPace


def moved(path: str, count: int, at: int = 0) -> PairingEvent:
    return PairingEvent(EventKind.SYPHON_MOVED, at, path, "backlog", count)


def busy(path: str, at: int = 0) -> PairingEvent:
    return PairingEvent(EventKind.SYPHON_SKIPPED, at, path, "backlog", 1, ServerBusy("busy"))


def test_without_caps_and_ramps_nothing_waits() -> None:
    pace = TaskPace(PacePlan(), 0)
    assert [pace.reserve({"orders": 10_000}, 0) for _ in range(3)] == [0, 0, 0]


def test_the_cap_of_a_pair_is_for_all_its_destinations_together() -> None:
    pace = TaskPace(PacePlan(rate=100.0), 0)
    assert pace.reserve({"orders": 50, "bills": 50}, 0) == 0
    assert pace.reserve({"orders": 1}, 0) == 1_000


def test_the_cap_of_a_destination_is_for_each_of_them() -> None:
    pace = TaskPace(PacePlan(destination_rate=100.0), 0)
    assert pace.reserve({"orders": 110, "bills": 10}, 1_000) == pytest.approx(1_000, abs=2)
    assert pace.reserve({"bills": 0}, 1_000) == 0


def test_after_an_outage_every_destination_starts_slowly_and_is_free_in_the_end() -> None:
    pace = TaskPace(PacePlan(start_rate=1_000.0), 0)
    assert pace.reserve({"orders": 2_000}, 0) > 0
    while pace.rates():
        pace.observe(moved("orders", 5_000))
    assert pace.reserve({"orders": 10**6}, 0) == 0


def test_a_destination_that_throttles_is_slowed_down_to_half_of_what_it_took() -> None:
    pace = TaskPace(PacePlan(), 0)
    pace.observe(moved("orders", 4_000))
    pace.observe(busy("orders", at=2_000))
    assert pace.rates() == {"orders": 1_000}
    pace.observe(busy("orders", at=2_000))
    assert pace.rates() == {"orders": 500}


def test_ramps_go_on_where_the_last_round_left_them() -> None:
    pace = TaskPace(PacePlan(rates={"orders": 123.0}), 0)
    assert pace.rates() == {"orders": 123.0}
    assert pace.reserve({"bills": int(FREE_RATE)}, 0) == 0
