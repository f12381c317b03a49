"""How far a capture is, for people."""

import pytest

from twinbus.cli.pipeline.capture import _bar, _furthest, _time_left


@pytest.mark.parametrize(
    ("done", "behind", "bar"),
    [
        (0, None, None),
        (0, 0, None),
        (5, 0, "━━━━━━━━━━━━ 100%"),
        (50, 50, "━━━━━━╌╌╌╌╌╌ 50%"),
        (0, 9, "╌╌╌╌╌╌╌╌╌╌╌╌ 0%"),
    ],
)
def test_a_bar_is_as_full_as_the_share_that_is_captured(done: int, behind: int | None, bar: str | None) -> None:
    assert _bar(done, behind) == bar


def test_the_time_left_is_in_hours_minutes_and_seconds() -> None:
    assert _time_left(None) is None
    assert _time_left(3_725.4) == "1:02:05"


def test_the_fragments_that_are_furthest_behind_are_named_first() -> None:
    assert _furthest({0: 400, 1: 0, 2: 7, 3: 810, 4: 9}) == "3: 810, 0: 400, 4: 9"
    assert _furthest({0: 400}) is None
    assert _furthest({0: 0, 1: 0}) is None
