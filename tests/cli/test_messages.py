"""Sending, looking, taking and purging against a real namespace."""

import io
from pathlib import Path

import pytest

from tests.cli.conftest import Commands


def test_messages_are_sent_seen_taken_and_purged(commands: Commands, tmp_path: Path) -> None:
    commands.json("queue", "create", "work")
    file = tmp_path / "body"
    file.write_text("from a file [red]")
    assert commands.json("send", "work", "hello", "--count", "2", "-p", "colour=red", "--subject", "s")["sent"] == 2
    assert commands.json("send", "work", "--file", str(file), "--message-id", "the-id")["sent"] == 1
    seen = commands.json("peek", "work")
    assert [message["body"] for message in seen] == ["hello", "hello", "from a file [red]"]
    assert (seen[0]["properties"], seen[0]["subject"], seen[2]["message_id"]) == ({"colour": "red"}, "s", "the-id")
    assert [message["sequence_number"] for message in commands.json("peek", "work", "--from", "2", "--count", "1")] == [
        2
    ]
    assert "from a file [red]" in commands.text("peek", "work")
    assert [message["body"] for message in commands.json("receive", "work")] == ["hello"]
    assert commands.json("receive", "work", "--leave")[0]["delivery_count"] == 0
    assert commands.json("queue", "show", "work")["active"] == 2
    assert commands.json("purge", "work", "--yes")["removed"] == 2
    assert commands.text("receive", "work", "--wait", "200ms") == "There is no message.\n"
    commands.json("queue", "delete", "work")


def test_every_line_of_standard_input_is_a_message(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.json("queue", "create", "lines", "--sessions")
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    assert commands.json("send", "lines", "--session", "a")["sent"] == 2
    taken = commands.json("receive", "lines", "--session", "next", "--count", "2")
    assert [(message["body"], message["session_id"]) for message in taken] == [("one", "a"), ("two", "a")]
    commands.json("queue", "delete", "lines")


def test_an_entity_that_is_not_there_is_named(commands: Commands) -> None:
    assert "gone" in commands.failure("send", "gone", "x")


def test_a_store_is_broken_and_mended(commands: Commands) -> None:
    assert [store["condition"] for store in commands.json("store", "list", "primary")] == ["up", "up"]
    commands.json("store", "down", "primary", "1")
    assert "no messaging store 2" in commands.failure("store", "down", "primary", "2")
    assert commands.text("store", "up", "primary") == "All 2 messaging stores of 'primary' are switched up.\n"


def test_the_doctor_knows_the_namespace(commands: Commands) -> None:
    # Ports that other programs use here make the exit code 1, which is no fault of the namespace.
    from twinbus.cli.app import run

    run(["doctor", "--data", str(commands.served.data), "--json"])
    assert '"namespace primary"' in commands.capsys.readouterr().out
