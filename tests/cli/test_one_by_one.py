"""`twinbus message`: small repairs by number and by filter."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.cli.conftest import Commands
from twinbus.amqp.codec.sections import SequenceBody, decode_sections
from twinbus.amqp.codec.types import Short
from twinbus.cli.messages.one_by_one import SHOWN_MAX
from twinbus.client.message import encode_message

QUEUE = "by-hand"


@pytest.fixture
def numbers(commands: Commands) -> dict[str, int]:
    """The numbers of three messages in a queue, by body."""
    commands.text("queue", "create", QUEUE)
    for number, body in enumerate(("one", "two", "three"), 1):
        commands.text("send", QUEUE, body, "-p", f"n={number}", "--subject", "s")
    return {each["body"]: each["sequence_number"] for each in commands.json("peek", QUEUE)}


@pytest.fixture(autouse=True)
def _gone(commands: Commands) -> object:
    yield
    commands.text("queue", "delete", QUEUE, "--yes")


def bodies(commands: Commands, *options: str) -> list[str]:
    return [each["body"] for each in commands.json("peek", QUEUE, *options)]


def test_messages_are_shown_by_number_and_by_filter(commands: Commands, numbers: dict[str, int]) -> None:
    one = commands.json("message", "show", QUEUE, str(numbers["two"]))
    assert [(each["body"], each["properties"]) for each in one] == [("two", {"n": 2})]
    assert "two" in commands.text("message", "show", QUEUE, str(numbers["two"]))
    found = commands.json("message", "show", QUEUE, "--filter", "n > 1")
    assert [each["body"] for each in found] == ["two", "three"]
    assert bodies(commands, "--filter", "n < 3") == ["one", "two"]
    commands.text("peek", QUEUE, "--filter", "n < 3", "--merged", code=2)
    assert "has no message" in commands.failure("message", "show", QUEUE, "999")
    commands.text("message", "show", QUEUE, code=2)
    assert "--filter" in commands.errors


def test_messages_are_dead_lettered_resent_and_completed(commands: Commands, numbers: dict[str, int]) -> None:
    commands.text("message", "dead-letter", QUEUE, str(numbers["two"]), "--reason", "Bug", "--yes")
    commands.text("message", "dead-letter", QUEUE, "--filter", "n = 3", "--reason", "Bug", "--yes")
    assert bodies(commands) == ["one"]
    dead = commands.json("peek", QUEUE, "--dead-letter")
    assert [(each["body"], each["dead_letter_reason"]) for each in dead] == [("two", "Bug"), ("three", "Bug")]
    # Nobody else's delivery count has risen.
    assert commands.json("peek", QUEUE)[0]["delivery_count"] == 0
    resent = ("--filter", "DeadLetterReason = 'Bug' AND n = 3", "--action", "SET again = TRUE", "--yes")
    assert commands.json("message", "resend", QUEUE, *resent)["repaired"] == 1
    assert sorted(bodies(commands)) == ["one", "three"]
    back = [each["properties"] for each in commands.json("peek", QUEUE) if each["body"] == "three"]
    assert back == [{"n": 3, "again": True}]
    commands.text("message", "complete", QUEUE, str(numbers["one"]), "--yes")
    assert bodies(commands) == ["three"]
    commands.text("message", "complete", QUEUE, str(numbers["one"]), "--yes", code=1)


def test_a_message_behind_many_others_is_dead_lettered_and_what_is_left_of_many_is_said(
    commands: Commands, numbers: dict[str, int]
) -> None:
    """All that are in front of it are held until it is found."""
    with commands.blocking() as namespace:
        bodies = [*(b"same" for _ in range(SHOWN_MAX)), b"last"]
        outcomes = namespace.sender(QUEUE).send([encode_message(each, subject="many") for each in bodies])
        assert not any(outcomes)
    wanted = commands.json("message", "show", QUEUE, "--filter", "sys.Label = 'many'", "--count", "1000")
    last = max(each["sequence_number"] for each in wanted) + 1
    commands.text("message", "dead-letter", QUEUE, str(last), "--yes")
    commands.text("send", QUEUE, "one more", "--subject", "many")
    commands.text("message", "dead-letter", QUEUE, "--filter", "sys.Label = 'many'", "--yes", code=1)
    assert "again for the rest" in commands.errors
    left = commands.json("peek", QUEUE)
    assert [each["body"] for each in left] == ["one", "two", "three", "one more"]


def test_a_message_is_edited_and_moved(commands: Commands, numbers: dict[str, int]) -> None:
    commands.text("message", "dead-letter", QUEUE, str(numbers["two"]), "--yes")
    (dead,) = commands.json("peek", QUEUE, "--dead-letter")
    number = str(dead["sequence_number"])
    commands.text("message", "edit", QUEUE, number, "--dead-letter", "--body", "zwei", "-p", "fixed=true")
    assert bodies(commands, "--dead-letter") == []
    (edited,) = [each for each in commands.json("peek", QUEUE) if each["body"] == "zwei"]
    assert (edited["properties"], edited["subject"]) == ({"n": 2, "fixed": True}, "s")
    assert edited["message_id"] != dead["message_id"]
    commands.text("queue", "create", "elsewhere")
    commands.text("message", "move", QUEUE, str(numbers["one"]), "--to", "elsewhere", "--yes")
    assert [each["body"] for each in commands.json("receive", "elsewhere")] == ["one"]
    commands.text("queue", "delete", "elsewhere", "--yes")


def test_an_edited_message_keeps_what_its_sender_gave_it(commands: Commands) -> None:
    commands.text("queue", "create", QUEUE)
    with commands.blocking() as namespace:
        payload = encode_message(
            SequenceBody([[1, "a"], [2]]),
            session_id=None,
            partition_key="k",
            correlation_id=UUID(int=7),
            reply_to_session_id="r",
            time_to_live=timedelta(hours=1),
            scheduled_at=datetime.now(UTC) + timedelta(hours=1),
            application_properties={"short": Short(3), "at": datetime(2026, 1, 1, tzinfo=UTC)},
            annotations={"x-own": "kept"},
        )
        assert namespace.sender(QUEUE).send([payload]) == [None]
        (before,) = namespace.run(namespace.extras(QUEUE).peek_range(1, 1_000)).messages
        commands.text("message", "edit", QUEUE, str(before.sequence_number), "-p", "n=1", "--subject", "new")
        (after,) = namespace.run(namespace.extras(QUEUE).peek_range(1, 1_000)).messages
    assert (after.time_to_live, after.scheduled_at, after.state) == (
        before.time_to_live,
        before.scheduled_at,
        before.state,
    )
    assert decode_sections(after.payload).body == decode_sections(before.payload).body
    assert after.application_properties == {**before.application_properties, "n": 1}
    assert type(after.application_properties["short"]) is Short
    assert (after.partition_key, after.annotations["x-own"]) == ("k", "kept")
    kept = ("correlation_id", "reply_to_group_id", "content_type")
    assert [getattr(after.properties, name) for name in kept] == [getattr(before.properties, name) for name in kept]
    assert after.subject == "new"


def test_an_edited_message_arrives_where_duplicates_are_detected(commands: Commands) -> None:
    commands.text("queue", "create", QUEUE, "--duplicate-detection")
    commands.text("send", QUEUE, "one")
    (sent,) = commands.json("peek", QUEUE)
    commands.text("message", "edit", QUEUE, str(sent["sequence_number"]), "--body", "two")
    assert bodies(commands) == ["two"]
