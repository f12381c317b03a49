"""The record that the compatibility page is generated from."""

from pathlib import Path

import pytest

from tests.interop.results import Recorder, read_results


def test_what_was_recorded_is_read_in_order(tmp_path: Path) -> None:
    Recorder("Java SDK", "2", folder=tmp_path).record("send", "one message", "fail", 'it said "no"\nand left')
    older = Recorder("Java SDK", "1", folder=tmp_path)
    older.record("send", "größere", "pass")
    older.record("batch", "until it is full", "skip", "no Java")
    found = [
        (result.version, result.feature, result.scenario, result.outcome, result.reason)
        for result in read_results(tmp_path)
    ]
    assert found == [
        ("1", "batch", "until it is full", "skip", "no Java"),
        ("1", "send", "größere", "pass", ""),
        ("2", "send", "one message", "fail", 'it said "no"\nand left'),
    ]


def test_a_new_run_replaces_what_its_suite_recorded_before(tmp_path: Path) -> None:
    Recorder("Go SDK", "1", "queues", tmp_path).record("send", "that was renamed", "fail")
    Recorder("Go SDK", "1", "topics", tmp_path).record("send", "to a topic", "pass")
    Recorder("Go SDK", "1", "queues", tmp_path).record("send", "with its new name", "pass")
    assert [result.scenario for result in read_results(tmp_path)] == ["to a topic", "with its new name"]


def test_a_scenario_that_failed_once_has_failed(tmp_path: Path) -> None:
    recorder = Recorder("Go SDK", "1", folder=tmp_path)
    for outcome in ("skip", "fail", "pass"):
        recorder.record("send", "over every transport", outcome)
    assert [result.outcome for result in read_results(tmp_path)] == ["fail"]


def test_words_that_the_page_does_not_know_are_refused(tmp_path: Path) -> None:
    recorder = Recorder("Go SDK", "1", folder=tmp_path)
    with pytest.raises(ValueError, match="'sending' is not a feature"):
        recorder.record("sending", "one", "pass")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'passed' is not an outcome"):
        recorder.record("send", "one", "passed")  # type: ignore[arg-type]
    assert read_results(tmp_path) == []
