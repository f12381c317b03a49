"""Addresses as the SDKs write them, and the names an entity can have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.errors import ArgumentError
from twinbus.model.paths import (
    Address,
    SubQueue,
    check_entity_path,
    check_subscription_name,
    parse_address,
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


@pytest.mark.parametrize("path", ["q", "Q1", "a.b-c_d/e", "contoso/x-servicebus-transfer/0", "x" * 260, "a_"])
def test_letters_digits_and_four_other_characters_make_a_path(path: str) -> None:
    check_entity_path(path, "queue")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "x" * 261,
        "a b",
        "é",
        "/q",
        "q/",
        "a//b",
        "-q",
        "q.",
        "$cbs",
        "q/$management",
        "t/Subscriptions/s",
        "t/Subscriptions",
        "q\n",
    ],
)
def test_any_other_path_is_refused(path: str) -> None:
    with pytest.raises(ArgumentError):
        check_entity_path(path, "queue")


def test_names_of_subscriptions_and_rules_have_at_most_50_characters_and_no_slash() -> None:
    check_subscription_name("s" * 50, "subscription")
    for name in ("s" * 51, "a/b", "", "$Default"):
        with pytest.raises(ArgumentError):
            check_subscription_name(name, "subscription")
