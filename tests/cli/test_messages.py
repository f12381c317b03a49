"""Sending, looking, taking and purging against a real namespace."""

import io
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import Commands
from twinbus.cli.app import run
from twinbus.cli.namespaces.running import find_running
from twinbus.client.administration import administration_client


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
    assert commands.text("receive", "work", "--wait", "200ms") == "There are no messages.\n"
    commands.json("queue", "delete", "work", "--yes")


def test_every_line_of_standard_input_is_a_message(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.json("queue", "create", "lines", "--sessions")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n\xe4\xff\r\ntwo"), "ascii"))
    assert commands.json("send", "lines", "--session", "a")["sent"] == 3
    taken = commands.json("receive", "lines", "--session", "next", "--count", "3")
    assert {message["session_id"] for message in taken} == {"a"}
    assert [message["body"] for message in taken] == ["one", "\ufffd\ufffd", "two"]
    commands.json("queue", "delete", "lines", "--yes")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--message-id", "x" * 129), "128 characters"),
        (("--session", "x" * 129), "128 characters"),
        (("-p", "at:datetime=9999-12-31T23:59:59-14:00"), "not of the type datetime"),
        (("--connection-string", "Endpoint=sb://[::1;SharedAccessKeyName=a;SharedAccessKey=b"), "no valid host"),
    ],
)
def test_a_value_that_no_message_can_have_is_wrong_use(commands: Commands, words: tuple[str, ...], named: str) -> None:
    commands.json("queue", "create", "values")
    assert commands.text("send", "values", "x", *words, code=2) == ""
    assert named in commands.errors
    commands.json("queue", "delete", "values", "--yes")


@pytest.mark.parametrize("endpoint", ["x", "http://[::", "http://localhost:99999"])
def test_an_address_that_is_none_is_wrong_use(commands: Commands, endpoint: str) -> None:
    place = ("--connection-string", commands.served.ready["connection_string"], "--endpoint", endpoint)
    assert commands.text("queue", "list", *place, code=2) == ""
    assert "endpoint" in commands.errors


def test_an_argument_that_is_not_text_is_named(commands: Commands) -> None:
    assert commands.text("queue", "create", "q\udcff", code=2) == ""
    assert commands.errors == "twinbus: 'q\\udcff' is not text in UTF-8.\n"


def test_no_number_of_lines_ends_standard_input(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left out would be missed by nobody: the command reports success."""
    commands.json("queue", "create", "long")
    monkeypatch.setattr("twinbus.cli.messages.commands.COUNT_MAX", 2)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\nthree\n")))
    assert commands.json("send", "long")["sent"] == 3
    commands.json("queue", "delete", "long", "--yes")


def test_how_many_lines_were_sent_is_reported_though_the_next_one_is_refused(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.json("queue", "create", "refused")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\ntwo\n" + b"x" * 300_000 + b"\nthree\n")))
    assert json.loads(commands.text("send", "refused", "--json", code=1))["sent"] == 2
    assert "at most 262144 bytes" in commands.errors
    commands.json("queue", "delete", "refused", "--yes")


def test_a_command_without_standard_input_has_nothing_to_send(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert run(["send", "work"]) == 2
    assert "--file" in capsys.readouterr().err


def test_what_was_received_is_shown_though_more_was_waited_for(commands: Commands) -> None:
    commands.json("queue", "create", "interrupted")
    commands.json("send", "interrupted", "the only one")

    def interrupt_once_it_is_taken() -> None:
        with administration_client(running.connection_string, running.endpoint) as client:
            while client.get_queue_runtime_properties("interrupted").total_message_count:
                pass
        os.kill(os.getpid(), signal.SIGINT)

    running = find_running(commands.served.data, "primary")
    watcher = threading.Thread(target=interrupt_once_it_is_taken)
    watcher.start()
    shown = commands.text("receive", "interrupted", "--count", "2", "--wait", "60s", code=130)
    watcher.join()
    assert "the only one" in shown
    commands.json("queue", "delete", "interrupted", "--yes")


def test_an_entity_that_is_not_there_is_named(commands: Commands) -> None:
    assert "gone" in commands.failure("send", "gone", "x")


def test_a_store_is_broken_and_mended(commands: Commands) -> None:
    assert [store["condition"] for store in commands.json("store", "list")] == ["up", "up"]
    commands.json("store", "down", "1")
    commands.text("store", "down", "2", code=2)
    assert "no messaging store 2" in commands.errors
    assert commands.text("store", "up") == "All 2 messaging stores of 'primary' are switched up.\n"


def test_the_doctor_knows_the_namespace(commands: Commands) -> None:
    # Ports that other programs use here make the exit code 1, which is no fault of the namespace.
    from twinbus.cli.app import run

    run(["doctor", "--data", str(commands.served.data), "--json"])
    assert '"namespace primary"' in commands.capsys.readouterr().out
