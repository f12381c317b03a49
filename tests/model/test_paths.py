"""Addresses as the SDKs write them, and the names an entity can have."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.errors import ArgumentError
from twinbus.model.paths import (
    Address,
    SubQueue,
    check_entity_path,
    check_subscription_name,
    dead_letter_path,
    parse_address,
    path_key,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("q", Address("q")),
        ("amqps://localhost:5672/q", Address("q")),
        ("sb://localhost:5672/a/b/q/", Address("a/b/q")),
        ("t/Subscriptions/s", Address("t", "s")),
        ("a/t/SUBSCRIPTIONS/s", Address("a/t", "s")),
        ("q/$DeadLetterQueue", Address("q", None, SubQueue.DEAD_LETTER)),
        ("t/subscriptions/s/$deadletterqueue", Address("t", "s", SubQueue.DEAD_LETTER)),
        ("q/$Transfer/$DeadLetterQueue", Address("q", None, SubQueue.TRANSFER_DEAD_LETTER)),
        ("q/$management", Address("q", is_management=True)),
        (
            "amqps://h/t/Subscriptions/s/$Transfer/$DeadLetterQueue/$management",
            Address("t", "s", SubQueue.TRANSFER_DEAD_LETTER, True),
        ),
        ("$cbs", Address("$cbs")),
        ("subscriptions/s", Address("subscriptions/s")),
        ("$management", Address("$management")),
    ],
)
def test_an_address_names_an_entity_and_one_of_its_queues(text: str, address: Address) -> None:
    assert parse_address(text) == address


def test_addresses_keep_their_case_and_are_compared_without_it() -> None:
    first, second = parse_address("Orders/Subscriptions/All"), parse_address("orders/subscriptions/ALL")
    assert str(first) == "Orders/Subscriptions/All"
    assert first.key == second.key


@pytest.mark.parametrize("sub_queue", set(SubQueue) - {SubQueue.TRANSFER})
@pytest.mark.parametrize("subscription", [None, "s"])
def test_an_address_that_is_written_out_is_read_as_the_same(sub_queue: SubQueue, subscription: str | None) -> None:
    for is_management in (False, True):
        address = Address("a/q", subscription, sub_queue, is_management)
        assert parse_address(str(address)) == address


@given(st.text(max_size=50))
def test_any_text_is_an_address(text: str) -> None:
    assert isinstance(parse_address(text), Address)


@pytest.mark.parametrize(
    "path",
    [
        "q",
        "Q1",
        "a.b-c_d/e",
        "contoso/x-servicebus-transfer/0",
        "x" * 260,
        "MassTransit/Fault--Ns/Msg--",
        "-q/.a/_b",
        "q./a-/b_",
        "...",
        "subscriptions",
    ],
)
def test_segments_hold_letters_digits_and_three_other_characters_in_any_order(path: str) -> None:
    check_entity_path(path, "queue")


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("", "has no name"),
        ("x" * 261, "has 261 characters; at most 260"),
        ("a b", "' ' is not allowed. Use letters, digits"),
        ("a/é", "'é' in the segment 'é' is not allowed"),
        ("q\n", r"'\n' is not allowed"),
        ("$cbs", "'$' is not allowed"),
        ("q/$management", "'$' in the segment '$management' is not allowed"),
        ("/q", "a slash has to stand between two segments"),
        ("q/", "a slash has to stand between two segments"),
        ("a//b", "a slash has to stand between two segments"),
        (".", "no segment can be '.'"),
        ("a/../b", "no segment can be '..'"),
        ("t/Subscriptions/s", "'subscriptions' is not allowed after a slash"),
        ("t/Subscriptions", "'subscriptions' is not allowed after a slash"),
    ],
)
def test_any_other_path_is_refused_with_the_rule_it_breaks(path: str, rule: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(rule)):
        check_entity_path(path, "queue")


@pytest.mark.parametrize("name", ["s" * 50, "-s-", ".s.", "_"])
def test_names_of_subscriptions_and_rules_are_one_segment_of_at_most_50_characters(name: str) -> None:
    check_subscription_name(name, "subscription")


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("s" * 51, "has 51 characters; at most 50"),
        ("a/b", "'/' is not allowed"),
        ("", "has no name"),
        ("$Default", "'$' is not allowed"),
        ("..", "no segment can be '..'"),
    ],
)
def test_any_other_name_is_refused_with_the_rule_it_breaks(name: str, rule: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(rule)):
        check_subscription_name(name, "subscription")


def test_the_key_of_an_address_is_that_of_its_entity_in_any_case() -> None:
    keys = {parse_address(text).key for text in ("News/Subscriptions/All", "news/subscriptions/all")}
    assert keys == {path_key("news/subscriptions/all")}


def test_the_path_of_dead_letters_is_an_address() -> None:
    assert parse_address(dead_letter_path("a/b")) == Address("a/b", sub_queue=SubQueue.DEAD_LETTER)
