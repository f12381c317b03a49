"""Which operation a path asks for."""

import re
import time

import pytest

from twinbus.http.messaging.messaging_api import HEAD, LOCKED, MESSAGES

TOKEN = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("path", "entity", "message"),
    [
        (f"/orders/messages/7/{TOKEN}", "orders", "7"),
        (f"/ORDERS/Messages/7/{TOKEN.upper()}/", "ORDERS", "7"),
        (f"/news/Subscriptions/all/messages/a/b/{TOKEN}", "news/Subscriptions/all", "a/b"),
        (f"/a/messages/b/messages/7/{TOKEN}", "a/messages/b", "7"),
        (f"/messages/messages/messages/{TOKEN}", "messages", "messages"),
        (f"/orders/messages/\n/{TOKEN}", "orders", "\n"),
    ],
)
def test_a_locked_message_is_named_behind_the_last_messages_of_the_path(path: str, entity: str, message: str) -> None:
    found = LOCKED.fullmatch(path)
    assert found is not None
    assert (found["entity"], found["message"], found["token"].lower()) == (entity, message, TOKEN)


@pytest.mark.parametrize("path", [f"/messages/7/{TOKEN}", f"/orders/messages/{TOKEN}", f"/orders/messages/7/{TOKEN}0"])
def test_a_path_without_entity_message_or_token_names_no_locked_message(path: str) -> None:
    assert LOCKED.fullmatch(path) is None


@pytest.mark.parametrize("pattern", [MESSAGES, HEAD, LOCKED])
def test_a_path_takes_no_longer_than_its_length(pattern: re.Pattern[str]) -> None:
    """Anybody may send one, and it is looked at before the token."""
    started = time.process_time()
    assert pattern.fullmatch("/a" + "/messages" * 4_000 + "/x") is None
    assert time.process_time() - started < 0.3
