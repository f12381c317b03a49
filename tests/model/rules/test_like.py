import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.rules.naive import like
from tests.model.rules.strategies import patterns
from twinbus.errors import ArgumentError
from twinbus.model.rules.like import like_matcher


@given(st.text(alphabet="ab%_!\n", max_size=8), patterns, st.sampled_from([None, "!", "%", "a"]))
@settings(max_examples=500)
def test_a_pattern_matches_what_the_naive_matcher_says(text: str, pattern: str, escape: str | None) -> None:
    if escape is not None and (len(pattern) - len(pattern.rstrip(escape))) % 2:
        return  # ends with its escape character
    assert like_matcher(pattern, escape)(text) == like(text, pattern, escape)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%bus%", "a bus stop", True),
        ("bus", "bus stop", False),
        ("_us", "bus", True),
        ("a%a", "a", False),
        ("Bus", "bus", False),
        ("%", "", True),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("a%", "a\nb", True),
        ("%a_%b", "ab", False),
        ("%a_%b", "axb", True),
    ],
)
def test_percent_is_any_text_and_underscore_any_character(pattern: str, text: str, expected: bool) -> None:
    assert like_matcher(pattern, None)(text) is expected


def test_an_escaped_wildcard_is_itself() -> None:
    matches = like_matcher("ABC\\%", "\\")
    assert matches("ABC%")
    assert not matches("ABCD")


@pytest.mark.parametrize(("pattern", "escape"), [("a", ""), ("a", "xy"), ("a!", "!")])
def test_an_escape_is_one_character_and_escapes_something(pattern: str, escape: str) -> None:
    with pytest.raises(ArgumentError, match=r"ESCAPE|escape"):
        like_matcher(pattern, escape)


def test_many_wildcards_on_a_long_text_do_not_explode() -> None:
    """Goal: no client can stall a broker with a pattern. A backtracking matcher would take years here."""
    matches = like_matcher("%a_" * 300, None)
    started = time.process_time()
    assert not matches("ab" * 250 + "b" * 32_000)
    assert time.process_time() - started < 1
