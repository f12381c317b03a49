"""Availability, phases and percentiles."""

import pytest

from twinbus.rehearsal.ledger import Sender
from twinbus.rehearsal.report_text import percent
from twinbus.rehearsal.sends import (
    Availability,
    Outcome,
    Percentiles,
    Phase,
    SendLog,
    SendRecord,
    Span,
    availability,
    by_second,
    latency_lines,
    percentiles,
    phase_of,
)

FAULTS = [Span(10.0, 20.0), Span(30.0, 31.0)]


def send(due_s: float, outcome: Outcome = Outcome.ACCEPTED, took_s: float = 0.01) -> SendRecord:
    return SendRecord(Sender.PAIRED, "q", due_s, due_s + took_s, outcome)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.005], Percentiles(1, 5, 5, 5, 5)),
        ([number / 1000 for number in range(1, 101)], Percentiles(100, 50, 90, 99, 100)),
        ([number / 1000 for number in range(10, 0, -1)], Percentiles(10, 5, 9, 10, 10)),
    ],
)
def test_a_percentile_is_a_value_that_was_seen(values: list[float], found: Percentiles) -> None:
    assert percentiles(values) == found


def test_nothing_measured_has_no_percentiles() -> None:
    assert percentiles([]) is None


@pytest.mark.parametrize(
    ("due_s", "phase"),
    [
        (0, Phase.BEFORE),
        (10, Phase.DURING),
        (19.9, Phase.DURING),
        (20, Phase.AFTER),
        (30, Phase.DURING),
        (31, Phase.AFTER),
    ],
)
def test_a_send_is_before_during_or_after_faults_by_when_it_was_due(due_s: float, phase: Phase) -> None:
    assert phase_of(due_s, FAULTS) is phase
    assert phase_of(due_s, []) is Phase.BEFORE


def test_missed_sends_count_against_availability() -> None:
    sends = [send(1), send(2), send(3, Outcome.REFUSED), send(4, Outcome.MISSED)]
    assert availability(sends) == Availability(planned=4, accepted=2, refused=1, missed=1)
    assert availability(sends).percent == 50.0


def test_the_log_counts_as_it_grows() -> None:
    log = SendLog()
    for record in (send(1), send(2, Outcome.REFUSED), send(3)):
        log.add(record)
    assert log.availability(Sender.PAIRED) == availability(log.records) == Availability(3, 2, 1, 0)
    assert log.availability(Sender.UNPAIRED).planned == 0


def test_a_hundred_percent_is_never_said_where_something_failed() -> None:
    assert percent(Availability(100_000, 99_999, 1, 0)) == "99.99 %"
    assert percent(Availability(5, 5, 0, 0)) == "100.00 %"
    assert percent(Availability(0, 0, 0, 0)) == "-"


def test_latency_is_of_accepted_sends_from_when_they_were_due() -> None:
    sends = [send(1, took_s=0.02), send(12, took_s=2.0), send(13, Outcome.REFUSED, took_s=9.0)]
    lines = {(line.sender, line.phase): line for line in latency_lines(sends, FAULTS)}
    before, during = lines[Sender.PAIRED, Phase.BEFORE].latency, lines[Sender.PAIRED, Phase.DURING].latency
    assert before is not None
    assert during is not None
    assert before.max_ms == pytest.approx(20)
    assert during.count == 1
    assert during.max_ms == pytest.approx(2000)
    assert lines[Sender.UNPAIRED, Phase.BEFORE].latency is None


def test_each_second_counts_what_was_due_in_it() -> None:
    seconds = by_second([send(0.2), send(0.9, Outcome.MISSED), send(2.5, took_s=0.5)], Sender.PAIRED, 3.0)
    assert [(each.accepted, each.failed) for each in seconds] == [(1, 1), (0, 0), (1, 0), (0, 0)]
    assert seconds[2].max_ms == pytest.approx(500)
    assert seconds[1].max_ms is None
