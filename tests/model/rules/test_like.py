import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.rules.naive import like
from tests.model.rules.strategies import patterns
from twinbus.errors import ArgumentError
from twinbus.model.rules import like as like_module
from twinbus.model.rules.evaluation import REMEMBERED_LENGTH_MAX, pattern_matcher
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
        ("%ab_%b%", "abx", False),
        ("%ab_%b%", "abxb", True),
        ("%_%", "a", True),
        ("%__%", "ab", True),
        ("%__%", "a", False),
        ("%a_c%c", "abc", False),
        ("%a_c%c", "abcc", True),
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


@pytest.mark.parametrize(
    "pattern",
    [
        "%" + "_" * 960 + "%",
        "%" + "_" * 960 + "x%",
        "%x" + "_" * 960 + "%",
        "%a" + "_" * 955 + "x%",
        "%" + "a_" * 480 + "x%",
        "%" + "aa_%" * 240 + "x",
        "_" * 960 + "x%",
    ],
)
def test_underscores_cost_no_more_than_the_text_is_long(pattern: str) -> None:
    """Seven messages with a property of 32 KB took five seconds, in which nobody else was served."""
    matches, text = like_matcher(pattern, None), "a" * 32_000
    started = time.process_time()
    for _ in range(7):
        matches(text)
    assert time.process_time() - started < 0.7


def test_a_long_pattern_in_a_long_text_is_not_tried_at_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is short enough by itself; as an expression they would take a hundred million steps."""
    matches = like_matcher("%a" + "_" * 5_000 + "b%", None)
    monkeypatch.setattr(like_module, "re", None)
    assert not matches("a" * 20_000)
    assert matches("a" * 20_000 + "b")


@given(st.text(alphabet="ab\n", max_size=40), st.text(alphabet="ab%_", max_size=12))
@settings(max_examples=500)
def test_long_searches_find_what_short_ones_find(text: str, pattern: str) -> None:
    before, like_module.STEPS_FEW = like_module.STEPS_FEW, 0
    try:
        assert like_matcher(pattern, None)(text) == like(text, pattern, None)
    finally:
        like_module.STEPS_FEW = before


@pytest.mark.parametrize(
    ("text", "expected"), [("xc", False), ("bcc", False), ("abc", True), ("xxabc", True), ("aabc", True), ("ab", False)]
)
def test_a_search_in_a_long_text_begins_with_the_first_character_of_the_pattern(
    text: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(like_module, "STEPS_FEW", -1)
    assert like_matcher("%a_c%", None)(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"), [("abcd", True), ("abcxd", True), ("abc", False), ("dabc", False), ("abccd", True)]
)
def test_a_search_in_a_long_text_goes_on_right_behind_what_was_found(
    text: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(like_module, "STEPS_FEW", -1)
    for pattern in ("%a_c%d%", "%a_c%d"):
        assert like_matcher(pattern, None)(text) is expected


@pytest.mark.parametrize(("text", "expected"), [("abc", False), ("abcbc", True), ("abcxbcx", True)])
def test_a_search_in_a_long_text_finds_no_character_twice(
    text: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(like_module, "STEPS_FEW", -1)
    for pattern in ("%a_c%c%", "%a_c%bc%"):
        assert like_matcher(pattern, None)(text) is expected


def test_what_is_made_of_a_pattern_is_remembered_unless_it_is_long() -> None:
    """Patterns may come with messages, and what is made of a long one takes megabytes."""
    short, long = "a%" * (REMEMBERED_LENGTH_MAX // 2), "a%" * (REMEMBERED_LENGTH_MAX // 2) + "b"
    assert pattern_matcher(short, None) is pattern_matcher(short, None)
    assert pattern_matcher(long, None) is not pattern_matcher(long, None)
    assert pattern_matcher(long, None)("a" * REMEMBERED_LENGTH_MAX + "b")
