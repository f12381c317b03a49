"""Waiting for what is slow is not mistaken for its failing."""

import logging

import pytest

from twinbus.server.patience import FIRST_WAIT_S, SAY_EVERY_S, Patience

NEXT_WAIT_S = 10.0


@pytest.fixture
def patience() -> Patience:
    return Patience("waiting", 3, NEXT_WAIT_S, 1_000.0)


def test_the_first_may_take_minutes(patience: Patience) -> None:
    assert not patience.is_over(0, 1_000.0 + FIRST_WAIT_S)
    assert patience.is_over(0, 1_000.1 + FIRST_WAIT_S)


def test_each_of_the_others_has_its_time_from_the_one_before(patience: Patience) -> None:
    assert not patience.is_over(1, 1_100.0)
    assert not patience.is_over(1, 1_110.0)
    assert not patience.is_over(2, 1_110.1)
    assert not patience.is_over(2, 1_120.0)
    assert patience.is_over(2, 1_120.2)


def test_who_waits_long_says_so_now_and_then(patience: Patience, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for second in range(int(SAY_EVERY_S) * 2 + 5):
            patience.is_over(0 if second < 15 else 2, 1_000.0 + second)
    said = [(record.message, record.fields) for record in caplog.records]  # type: ignore[attr-defined]
    assert said == [
        ("waiting", {"there": 0, "of": 3, "seconds": 10}),
        ("waiting", {"there": 2, "of": 3, "seconds": 20}),
    ]
