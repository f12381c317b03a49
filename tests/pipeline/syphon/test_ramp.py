import pytest

from twinbus.pipeline.syphon.task_pace import FREE_RATE, RATE_MIN, START_RATE, STEP_RATE, Ramp


def sent_in_a_second(ramp: Ramp, start: int, page: int = 10) -> int:
    """As a pump does: reserve, wait, send, hear that it was accepted."""
    now, sent = start, 0
    while True:
        now += ramp.reserve(page, now)
        if now >= start + 1_000:
            return sent
        ramp.acknowledged(page)
        sent += page


def test_the_rate_rises_by_a_step_for_every_second_of_work() -> None:
    ramp = Ramp(START_RATE)
    sent = [sent_in_a_second(ramp, second * 1_000) for second in range(5)]
    for second, count in enumerate(sent):
        assert count == pytest.approx(START_RATE + STEP_RATE * (second + 0.5), rel=0.25)


def test_a_ramp_that_is_not_used_stays_where_it_is() -> None:
    ramp = Ramp(START_RATE)
    ramp.reserve(1, 0)
    ramp.reserve(1, 3_600_000)
    assert ramp.rate == START_RATE


def test_a_pause_saves_up_no_more_than_a_short_burst() -> None:
    ramp = Ramp(1_000.0)
    assert ramp.reserve(100, 3_600_000) == 0
    assert ramp.reserve(100, 3_600_000) >= 100


def test_throttling_halves_the_rate_and_leaves_a_trickle() -> None:
    ramp = Ramp(800.0)
    ramp.throttled()
    assert ramp.rate == 400
    for _ in range(20):
        ramp.throttled()
    assert ramp.rate == RATE_MIN


def test_a_ramp_is_over_at_the_top() -> None:
    ramp = Ramp(FREE_RATE - 1)
    assert not ramp.is_over
    ramp.acknowledged(int(FREE_RATE))
    assert ramp.is_over


def test_a_cap_of_the_user_is_never_passed_and_never_over() -> None:
    ramp = Ramp(100.0, ceiling=150.0)
    ramp.acknowledged(10**9)
    assert ramp.rate == 150
    assert not ramp.is_over


def test_two_tasks_with_half_a_share_each_are_as_fast_as_one() -> None:
    whole, half = Ramp(START_RATE), Ramp(START_RATE / 2, share=0.5)
    for second in range(4):
        assert 2 * sent_in_a_second(half, second * 1_000) == pytest.approx(
            sent_in_a_second(whole, second * 1_000), rel=0.1
        )
