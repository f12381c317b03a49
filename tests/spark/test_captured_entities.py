from collections.abc import Sequence

import pytest

from twinbus.errors import ArgumentError, EntityNotFound
from twinbus.pipeline.captured_entities import chosen_entities, source_options

ALL = ["orders", "Orders-eu", "prices/Subscriptions/audit", "prices/Subscriptions/web"]


def not_asked() -> Sequence[str]:
    raise AssertionError("there is no pattern")


def test_paths_need_no_right_to_list_entities() -> None:
    wanted = ["orders", "prices/subscriptions/audit/$deadletterqueue", "ORDERS"]
    found = chosen_entities(wanted, not_asked)
    assert found == ["orders", "prices/Subscriptions/audit/$DeadLetterQueue"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders*", ["orders", "Orders-eu"]),
        ("*/Subscriptions/a*", ["prices/Subscriptions/audit"]),
        ("orders-??/$DeadLetterQueue", ["Orders-eu/$DeadLetterQueue"]),
        ("*", ALL),
    ],
)
def test_patterns_match_queues_and_subscriptions(pattern: str, found: list[str]) -> None:
    assert chosen_entities([pattern], lambda: ALL) == found


def test_what_is_named_twice_is_captured_once() -> None:
    assert chosen_entities(["orders-eu", "orders*"], lambda: ALL) == ["Orders-eu", "orders"]


def test_a_pattern_that_matches_nothing_is_reported() -> None:
    with pytest.raises(EntityNotFound, match="No queue or subscription matches 'x\\*'"):
        chosen_entities(["x*"], lambda: ALL)
    assert chosen_entities(["x*", "orders"], lambda: ALL, is_each_matched=False) == ["orders"]


@pytest.mark.parametrize("path", ["orders/$Transfer/$DeadLetterQueue", "orders/$management"])
def test_what_the_source_cannot_read_is_refused_before_anything_starts(path: str) -> None:
    with pytest.raises(ArgumentError, match="is not a queue, a subscription"):
        chosen_entities([path], not_asked)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("a/b", {"queue": "a/b"}),
        ("a/$DeadLetterQueue", {"queue": "a", "subQueue": "deadLetter"}),
        ("t/Subscriptions/s", {"topic": "t", "subscription": "s"}),
        ("t/Subscriptions/s/$DeadLetterQueue", {"topic": "t", "subscription": "s", "subQueue": "deadLetter"}),
    ],
)
def test_a_path_becomes_options_of_the_source(path: str, options: dict[str, str]) -> None:
    assert source_options(path) == options
