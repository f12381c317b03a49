"""Durations and times as texts: ISO 8601, and as people type them."""

from datetime import timedelta

import pytest

from twinbus.clock import NEVER
from twinbus.errors import ArgumentError
from twinbus.model.durations import NEVER_DELTA, millis_of, parse_duration, short_duration
from twinbus.model.iso8601 import NEVER_FROM, NEVER_TEXT, read_duration, write_duration, write_time

DAY, HOUR, MINUTE, SECOND = 86_400_000, 3_600_000, 60_000, 1_000


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT0S", 0),
        ("PT30S", 30 * SECOND),
        ("PT10M", 10 * MINUTE),
        ("PT2H", 2 * HOUR),
        ("P7D", 7 * DAY),
        ("P1DT2H3M4.005S", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5),
        ("PT0.5S", 500),
        ("PT1M0.25S", MINUTE + 250),
        ("P1DT1S", DAY + SECOND),
        (NEVER_TEXT, NEVER),
    ],
)
def test_a_duration_is_written_as_it_is_read(text: str, duration: int) -> None:
    assert read_duration(text, "it") == duration
    assert write_duration(duration) == text


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("P1W", 7 * DAY),
        ("P2W1D", 15 * DAY),
        ("PT90M", 90 * MINUTE),
        ("PT1.5S", 1_500),
        ("PT1.05S", 1_050),
        ("PT1.0019S", 1_001),
        ("PT922337203685.476S", NEVER_FROM - 1),
        ("PT922337203685.477S", NEVER),
        ("P999999999D", NEVER),
    ],
)
def test_other_ways_to_write_a_duration_are_read(text: str, duration: int) -> None:
    assert read_duration(text, "it") == duration


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "PT1", "P1H", "-PT1S", "P1M", "pt1s", "PT1S ", "PT٣S"])
def test_what_is_not_a_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"^Its age is "):
        read_duration(text, "Its age")


def test_the_longest_duration_but_one_is_still_one() -> None:
    assert write_duration(NEVER_FROM - 1) == "P10675199DT2H48M5.476S"
    assert write_duration(NEVER_FROM) == NEVER_TEXT


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (951_782_400_050, "2000-02-29T00:00:00.050Z"),
        (1_800_000_000_999, "2027-01-15T08:00:00.999Z"),
    ],
)
def test_a_time_is_written_in_utc_with_its_milliseconds(at: int, text: str) -> None:
    assert write_time(at) == text


@pytest.mark.parametrize(
    ("text", "duration", "short"),
    [
        ("1ms", 1, "1ms"),
        ("1500ms", 1_500, "1500ms"),
        ("30s", 30 * SECOND, "30s"),
        ("90S", 90 * SECOND, "90s"),
        ("60s", MINUTE, "1m"),
        ("5m", 5 * MINUTE, "5m"),
        ("1h", HOUR, "1h"),
        ("24h", DAY, "1d"),
        ("7d", 7 * DAY, "7d"),
        ("pt1m30s", 90 * SECOND, "90s"),
        ("never", NEVER, "never"),
        ("Never", NEVER, "never"),
        ("p999999999d", NEVER, "never"),
    ],
)
def test_a_duration_that_somebody_types_is_shown_in_its_largest_unit(text: str, duration: int, short: str) -> None:
    assert millis_of(parse_duration(text)) == duration
    assert short_duration(duration) == short


def test_durations_from_the_longest_of_the_clients_on_mean_never() -> None:
    assert millis_of(NEVER_DELTA) == NEVER
    assert millis_of(timedelta(milliseconds=NEVER_FROM - 1)) == NEVER_FROM - 1
    assert millis_of(timedelta(milliseconds=NEVER_FROM)) == NEVER
    assert millis_of(timedelta(microseconds=1_999)) == 1
    assert short_duration(NEVER_FROM) == "never"
    assert short_duration(NEVER_FROM - 1) == f"{NEVER_FROM - 1}ms"


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5w", "-5m", "1234567890s", "soon"])
def test_what_nobody_can_read_as_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="is not a duration"):
        parse_duration(text)
