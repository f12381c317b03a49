"""Waiting for what is slow is not mistaken for its failing, and not done in silence."""

import logging
import threading

import pytest

from twinbus.server import patience as patience_module
from twinbus.server.patience import (
    FIRST_WAIT_S,
    SAY_FIRST_S,
    SAY_PAUSE_MAX_S,
    Intervals,
    Patience,
    said_while_it_lasts,
)

NEXT_WAIT_S = 10.0
PATIENCE_S = 20.0


@pytest.fixture
def patience() -> Patience:
    return Patience("waiting", 3, lambda: "2: slow", NEXT_WAIT_S, 1_000.0)


def test_the_first_may_take_minutes(patience: Patience) -> None:
    assert not patience.is_over(0, 1_000.0 + FIRST_WAIT_S)
    assert patience.is_over(0, 1_000.1 + FIRST_WAIT_S)


def test_each_of_the_others_has_its_time_from_the_one_before(patience: Patience) -> None:
    assert not patience.is_over(1, 1_100.0)
    assert not patience.is_over(1, 1_110.0)
    assert not patience.is_over(2, 1_110.1)
    assert not patience.is_over(2, 1_120.0)
    assert patience.is_over(2, 1_120.2)


def test_who_waits_long_says_for_what_within_seconds_and_then_less_and_less_often(
    patience: Patience, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for second in range(36):
            patience.is_over(0 if second < 15 else 2, 1_000.0 + second)
    said = [(record.message, record.fields) for record in caplog.records]  # type: ignore[attr-defined]
    assert said == [
        ("waiting", {"there": 0, "of": 3, "seconds": 5, "missing": "2: slow"}),
        ("waiting", {"there": 2, "of": 3, "seconds": 15, "missing": "2: slow"}),
        ("waiting", {"there": 2, "of": 3, "seconds": 35, "missing": "2: slow"}),
    ]


def test_a_day_of_waiting_is_said_some_dozen_times_an_hour_at_most() -> None:
    intervals = Intervals(0.0)
    said = [second for second in range(24 * 3_600) if intervals.is_due(second)]
    assert said[0] == SAY_FIRST_S
    assert said[-1] - said[-2] == SAY_PAUSE_MAX_S


def test_a_call_that_blocks_its_thread_is_reported_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs: the event loop itself stands still."""
    monkeypatch.setattr(patience_module, "SAY_FIRST_S", 0.0)
    is_said, said = threading.Event(), []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append((record.getMessage(), record.fields))  # type: ignore[attr-defined]
            is_said.set()

    handler = Handler()
    patience_module.log.addHandler(handler)
    try:
        with said_while_it_lasts("waiting_for_data_folder", folder="/data"):
            assert is_said.wait(PATIENCE_S)
    finally:
        patience_module.log.removeHandler(handler)
    assert said[0] == ("waiting_for_data_folder", {"seconds": 0, "folder": "/data"})
