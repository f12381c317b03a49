"""Purging, un-deferring, looking in one order and giving back for later, against a real namespace."""

import io
import json
import os
import signal
from collections.abc import AsyncIterator, Callable

import pytest
from azure.servicebus import ServiceBusClient

from tests.cli.conftest import Commands
from twinbus.cli.app import run
from twinbus.cli.command import Call
from twinbus.cli.failures import CommandFailed
from twinbus.cli.messages.repair import carry_out
from twinbus.cli.output import Output
from twinbus.client.entity_extras import RepairPage
from twinbus.client.repair import RepairStanding
from twinbus.errors import QuotaExceeded


def test_a_partitioned_queue_is_purged_whatever_state_its_messages_are_in(commands: Commands) -> None:
    commands.json("queue", "create", "purged", "--partitioned")
    commands.json("send", "purged", "x", "--count", "20")
    commands.json("send", "purged", "later", "--delay", "1h")
    assert commands.json("purge", "purged", "--yes") == {"entity": "purged", "removed": 21}
    assert commands.text("purge", "purged", "-y") == "0 messages removed from 'purged'.\n"
    assert "gone" in commands.failure("purge", "gone", "--yes")


@pytest.mark.parametrize(("answer", "code", "said"), [("n\n", 1, "Nothing was removed"), ("", 2, "Add --yes")])
def test_nothing_is_purged_unless_somebody_agrees(
    answer: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert run(["purge", "orders"]) == code
    assert said in capsys.readouterr().err


def test_a_merged_peek_shows_fragments_in_one_order(commands: Commands) -> None:
    commands.json("queue", "create", "merged", "--partitioned")
    for number in range(5):
        commands.json("send", "merged", str(number))
    assert [each["body"] for each in commands.json("peek", "merged", "--merged")] == ["0", "1", "2", "3", "4"]
    assert len(commands.json("peek", "merged", "--merged", "--count", "2")) == 2
    commands.text("peek", "merged", "--merged", "--from", "3", code=2)
    assert "--merged" in commands.errors
    commands.json("queue", "delete", "merged", "--yes")


def test_deferred_messages_are_made_active_again(commands: Commands) -> None:
    commands.json("queue", "create", "deferred")
    commands.json("send", "deferred", "x", "--count", "3")
    with (
        ServiceBusClient.from_connection_string(commands.served.ready["connection_string"]) as client,
        client.get_queue_receiver("deferred") as receiver,
    ):
        messages = receiver.receive_messages(3, max_wait_time=5)
        while len(messages) < 3:
            messages += receiver.receive_messages(3, max_wait_time=5)
        for message in messages:
            receiver.defer_message(message)
    assert commands.text("undefer", "deferred", "2") == "1 message of 'deferred' made active again.\n"
    assert commands.json("undefer", "deferred") == {"entity": "deferred", "active": 2}
    assert len(commands.json("receive", "deferred", "--count", "3")) == 3


def test_messages_are_given_back_for_later(commands: Commands) -> None:
    commands.json("queue", "create", "put-off")
    commands.json("send", "put-off", "x")
    assert len(commands.json("receive", "put-off", "--leave", "--delay", "1h")) == 1
    shown = commands.json("queue", "show", "put-off")
    assert (shown["active"], shown["scheduled"]) == (0, 1)
    commands.text("receive", "put-off", "--delay", "1h", code=2)
    assert "--leave" in commands.errors


def test_sessions_are_shown_with_their_messages_the_fullest_first(commands: Commands) -> None:
    commands.json("queue", "create", "talks", "--sessions")
    for session, count in (("a", 1), ("b", 3)):
        commands.json("send", "talks", "x", "--session", session, "--count", str(count))
    expected = [
        {"session": "b", "messages": 3, "is_held": False},
        {"session": "a", "messages": 1, "is_held": False},
    ]
    shown = commands.json("sessions", "talks")
    assert shown == {"sessions": 2, "held": 0, "active_messages": 4, "is_all": True, "busiest": expected}
    assert commands.json("sessions", "talks", "--count", "1")["busiest"] == expected[:1]
    assert commands.text("sessions", "talks").splitlines()[-1] == "4 messages in 2 sessions, of which 0 held."
    commands.json("queue", "create", "without-sessions")
    assert "no message sessions" in commands.failure("sessions", "without-sessions")


def test_dead_letters_are_repaired_by_filter_and_the_rest_stays(commands: Commands) -> None:
    commands.json("queue", "create", "repaired", "--partitioned")
    for colour in ("red", "red", "grey"):
        commands.json("send", "repaired", colour, "-p", f"colour={colour}")
    with (
        ServiceBusClient.from_connection_string(commands.served.ready["connection_string"]) as client,
        client.get_queue_receiver("repaired") as receiver,
    ):
        for _ in range(3):
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.dead_letter_message(message, reason="why")
    options = ("--filter", "colour = 'red'", "--action", "SET colour = 'blue'")
    assert commands.json("repair", "repaired", "--filter", "1 = 2", "--dry-run") == []
    (first, second) = commands.json("repair", "repaired", *options, "--dry-run")
    assert first["after"] == second["after"] == {"colour": "blue"}
    assert commands.json("repair", "repaired", *options, "--yes") == {
        "entity": "repaired/$DeadLetterQueue",
        "repaired": 2,
        "examined": 3,
        "held": 0,
        "refused": 0,
    }
    assert {each["properties"]["colour"] for each in commands.json("peek", "repaired", "--count", "9")} == {"blue"}
    (grey,) = commands.json("peek", "repaired", "--dead-letter", "--count", "9")
    number = str(grey["sequence_number"])
    assert "1 message" in commands.text("repair", "repaired", "--number", number, "--remove", "--yes")
    assert commands.json("peek", "repaired", "--dead-letter") == []
    commands.text("repair", "repaired", "--filter", "colour =", "--yes", code=2)
    assert "not valid" in commands.errors
    commands.text("repair", "repaired", "--sub-queue", "main", "--yes", code=2)
    assert "destination" in commands.errors
    commands.json("queue", "delete", "repaired", "--yes")


async def pages(end: Callable[[], None]) -> AsyncIterator[RepairStanding]:
    """Of a repair of six messages: two pages, and what happens while the second one is under way."""
    standing = RepairStanding(total=6, repaired=2, examined=2)
    yield standing
    end()
    standing.add(RepairPage(repaired=2, examined=2, held=1, refused=0, refusals=[], next_number=5))
    yield standing
    standing.add(RepairPage(repaired=2, examined=2, held=0, refused=0, refusals=[], next_number=None))
    yield standing


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def fail() -> None:
    raise QuotaExceeded("The destination is full.")


@pytest.mark.parametrize(
    ("end", "repaired", "why"), [(interrupt, 4, ["Stopped.", "1 message locked"]), (fail, 2, ["destination is full"])]
)
def test_a_repair_that_ends_early_says_what_it_has_done(
    commands: Commands,
    capsys: pytest.CaptureFixture[str],
    end: Callable[[], None],
    repaired: int,
    why: list[str],
) -> None:
    call = Call(Output(as_json=True), "primary", commands.served.data, None, None)
    with commands.blocking() as namespace, pytest.raises(CommandFailed) as failed:
        carry_out(call, namespace, "q", "moved", pages(end))
    assert json.loads(capsys.readouterr().out)["repaired"] == repaired
    assert all(each in str(failed.value) for each in [*why, "Repair again to continue"])


def test_a_repair_that_fails_before_it_has_changed_anything_says_why_alone(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    async def none() -> AsyncIterator[RepairStanding]:
        yield RepairStanding(total=6)
        fail()

    call = Call(Output(as_json=True), "primary", commands.served.data, None, None)
    with commands.blocking() as namespace, pytest.raises(QuotaExceeded):
        carry_out(call, namespace, "q", "moved", none())
    assert capsys.readouterr().out == ""


def test_nothing_is_repaired_unless_somebody_agrees(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert run(["repair", "orders"]) == 1
    assert "Nothing was changed" in capsys.readouterr().err
