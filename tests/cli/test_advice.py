"""What commonly goes wrong on a newcomer's machine is told in one line that says what to do."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import STOP_WAIT_S, Commands, Served
from twinbus.cli.app import run
from twinbus.cli.failures import FAILED, WRONG_USE
from twinbus.client.connecting.connection_string import parse_connection_string


def complaint(*words: str, code: int = FAILED) -> str:
    """The one line of a command that fails, run as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "twinbus", *words], capture_output=True, text=True, timeout=STOP_WAIT_S, check=False
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("twinbus: ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize("option", ["--amqp-port", "--http-port"])
def test_a_port_in_use_is_named_with_what_to_do(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        other = "--http-port" if option == "--amqp-port" else "--amqp-port"
        said = complaint("serve", "x", "--data", str(tmp_path), option, port, other, "0", code=WRONG_USE)
    assert port in said
    assert "in use" in said


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = complaint("serve", "x", "--data", str(tmp_path / "file"))
    assert "cannot be written: Not a directory" in said
    assert "--data" in said


def test_a_folder_that_two_namespaces_cannot_write_is_named_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert run(["up", "--data", str(tmp_path / "file")]) == FAILED
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be written: Not a directory. Choose another one with --data." in said


@pytest.mark.parametrize("command", [["rehearse", "--engine", "spark"], ["doctor"]])
def test_a_java_that_is_not_there_is_reported(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAVA_HOME", "/no/such/java")
    assert run(command) == 1
    printed = capsys.readouterr()
    assert "JAVA_HOME is /no/such/java" in " ".join((printed.out + printed.err).split())


@pytest.mark.parametrize(
    "words", [["queue", "list"], ["send", "q", "x"], ["peek", "q"], ["syphon"], ["rehearse", "--engine", "process"]]
)
def test_a_wrong_key_is_reported_with_what_to_check(
    words: list[str], served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    right = served.ready["connection_string"]
    wrong = right.replace(parse_connection_string(right).key, "d3Jvbmc=")
    endpoint = f"http://127.0.0.1:{served.ready['http_port']}"
    if words[0] in ("syphon", "rehearse"):
        place = ["--primary", wrong, "--secondary", wrong, "--secondary-endpoint", endpoint]
        place += ["--primary-endpoint", endpoint] if words[0] == "rehearse" else []
    else:
        place = ["--connection-string", wrong, "--endpoint", endpoint]
    assert run([*words, *place]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "Check the connection string" in errors
    assert "d3Jvbmc=" not in errors


def test_a_number_that_a_receiver_holds_is_not_called_missing(
    commands: Commands,
) -> None:
    commands.text("queue", "create", "held-here")
    commands.text("send", "held-here", "one")
    with commands.blocking() as namespace:
        receiver = namespace.receiver("held-here")
        (message,) = receiver.receive(1, 5)
        commands.text("message", "complete", "held-here", str(message.sequence_number), "--yes", code=FAILED)
        assert "locked by receivers" in commands.errors
        assert "not in" not in commands.errors
        receiver.close()
    commands.text("queue", "delete", "held-here", "--yes")
