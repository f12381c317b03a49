"""The page about a run: figures, plots and the result, however long it was."""

import pytest

from twinbus.pipeline import run_report
from twinbus.pipeline.run_report import RunLog


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_page_adds_up_all_entities_and_shows_their_results() -> None:
    seconds = Seconds()
    log = RunLog(seconds)
    for at_s, orders, left in ((1, 100, 900), (2, 600, 400), (4, 1_000, 0)):
        seconds.now = 100.0 + at_s
        log.note("orders", orders, left)
        log.note("a <b>", 500, None)
    html = log.html("Capture", ("entity", "messages", "last_error"), [{"entity": "a <b>", "messages": 500}])
    assert "<b>1,500</b><span>messages</span>" in html
    assert "<b>375/s</b>" in html
    assert "<b>?</b><span>left</span>" in html
    assert html.count("<svg") == 3
    assert "a &lt;b&gt;" in html
    assert "a <b>" not in html


def test_a_long_run_keeps_its_first_and_last_moments_and_not_all_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_report, "SAMPLES_MAX", 10)
    seconds = Seconds()
    log = RunLog(seconds)
    for number in range(1_000):
        seconds.now += 1
        log.note("orders", number, 999 - number)
    kept = log._samples["orders"]
    assert len(kept) <= 10
    assert (kept[0].done, kept[-1].done) == (0, 999)


def test_a_run_that_did_nothing_has_a_page_too() -> None:
    assert "Nothing was selected." in RunLog(Seconds()).html("Replay", ("entity",), [])


def test_entities_of_which_different_things_are_known_at_one_moment_have_a_page() -> None:
    log = RunLog(lambda: 5.0)
    log.note("orders", 3, None)
    log.note("bills", 3, 4)
    assert "orders" in log.html("Capture", (), [])
