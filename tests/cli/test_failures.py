"""Wrong use ends with 2, failure with 1; both say why in one line and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from azure.core.pipeline.transport import RequestsTransport

from tests.cli.conftest import Served
from twinbus.cli.app import run

AZURE_LIKE = "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "No such command"),
        (["queue", "create"], "Missing argument"),
        (["queue", "create", "q", "--ttl", "soon"], "'soon' is not a duration"),
        (["queue", "update", "q", "--status", "Tired"], "Tired"),
        (["queue", "list", "--no-such-option"], "No such option"),
        (["queue", "list", "--connection-string", "x"], "connection string"),
        (["serve", "1st"], "not a valid name for a namespace"),
        (["node", "drain", "", "--connection-string", AZURE_LIKE], "'' is no name for a node"),
        (["node", "drain", "a/b", "--connection-string", AZURE_LIKE], "'a/b' is no name for a node"),
        (["store", "move", "0", "--to", "", "--connection-string", AZURE_LIKE], "'' is no name for a node"),
        (["backup", "copy", "--namespace", "../x"], "not a valid name for a namespace"),
        (["syphon", "--primary", "../x"], "not a valid name for a namespace"),
        (["portal", "--port", "65536"], "--port"),
        (["up", "--tls-port", "65533"], "65536"),
        (["serve", "x", "--stores", "0"], "--stores"),
        (["serve", "x", "--key", ""], "is empty"),
        (["access", "create", "a/b", "--right", "send"], "'a/b' is not a name"),
        (["serve", "x", "--tls-cert", "c.pem"], "both"),
        (["serve", "x", "--amqp-port", "70000"], "--amqp-port"),
        (["serve", "x", "--queue", "q:split"], "NAME:partitioned"),
        (["serve", "x", "--entities", "no-such-file.toml"], "cannot be read"),
        (["rule", "create", "t", "s", "r", "--sql", "a=1", "--match", "a=1"], "not both"),
        (["rule", "create", "t", "s", "r", "--match", "a"], "NAME=VALUE"),
        (["send", "q", "x", "--property", "a"], "NAME=VALUE"),
        (["receive", "q", "--count", "0"], "--count"),
        (["receive", "q", "--wait", "0s"], "--wait"),
        (["send", "q", "x", "--ttl", "0s"], "1ms to 49d"),
        (["send", "q", "x", "--ttl", "50d"], "1ms to 49d"),
        (["send", "q", "x", "--delay", "never"], "--delay"),
        (["send", "q", "x", "--session", "a", "--partition-key", "b"], "--partition-key"),
        (["peek", "q", "--from", str(2**63)], "--from"),
        (["undefer", "q", str(2**63)], "numbers"),
        (["cost", "estimate", "--rate", "1e400"], "--rate"),
        (["cost", "estimate", "--queues", "1" * 40], "--queues"),
        (["rehearse", "--failover-interval", "3601"], "--failover-interval"),
        (["rehearse", "--ping-interval", "1801"], "--ping-interval"),
        (["serve", "x", "--operations", "/dev/null/log"], "/dev/null/log"),
    ],
)
def test_wrong_use_is_reported_in_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINBUS_CONNECTION_STRING", AZURE_LIKE.replace(":1;", ":5999;"))
    assert run([*words]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.startswith("twinbus: ")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize("words", [["queue", "list"], ["peek", "q"], ["store", "list"]])
def test_a_namespace_that_does_not_run_is_a_failure(
    words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run([*words, "--data", str(tmp_path)]) == 1
    assert "Start one with 'twinbus up'" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_namespace_of_another_user_is_told_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "primary").mkdir()
    (tmp_path / "primary" / "running.json").touch(0o000)
    assert run(["queue", "list", "--data", str(tmp_path)]) == 1
    assert "belongs to another user" in capsys.readouterr().err
    assert run(["queue", "list", "--data", str(tmp_path), "--namespace", "other"]) == 1
    assert "No namespace 'other' runs" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["queue", "show", "q"], ["namespace", "export"], ["send", "q", "x"]])
def test_a_namespace_that_does_not_answer_is_reported_without_a_pause(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(_: object, seconds: float) -> None:
        pytest.fail(f"somebody waits {seconds} s longer than needed")

    monkeypatch.setattr(RequestsTransport, "sleep", pause)
    # Port 1 of the loopback answers nobody.
    given = ["--connection-string", AZURE_LIKE, "--endpoint", "http://127.0.0.1:1"]
    assert run([*words, *given]) == 1
    said = capsys.readouterr().err
    assert said.endswith("Connection refused. Is the namespace running?\n")
    assert said.count("\n") == 1


def test_a_connection_string_that_asks_a_plain_namespace_for_tls_is_reported(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    asks_for_tls = served.ready["connection_string"].replace("UseDevelopmentEmulator=true", "")
    assert run(["queue", "list", "--connection-string", asks_for_tls]) == 1
    assert "--ca-file" in capsys.readouterr().err
    without_tls = f"https://127.0.0.1:{served.ready['http_port']}"
    assert run(["queue", "list", "--connection-string", asks_for_tls, "--endpoint", without_tls]) == 1
    assert "Add UseDevelopmentEmulator=true" in capsys.readouterr().err


def test_the_command_line_starts_without_the_official_client_and_the_server() -> None:
    """They take longer to import than most commands take to run."""
    listing = "import sys, twinbus.cli.app; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", listing], capture_output=True, check=True, text=True).stdout.split()
    )
    needless = {"azure.core", "uvloop", "pyarrow", "sqlite3", "pyspark", "twinbus.broker", "twinbus.client.namespace"}
    assert not loaded & needless


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip().count(".") == 2


def test_what_nobody_foresaw_is_one_line_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("twinbus.cli.namespaces.doctor.all_running", break_down)
    assert run(["doctor", "--data", str(tmp_path)]) == 1
    assert "TWINBUS_TRACEBACK=1" in capsys.readouterr().err
    monkeypatch.setenv("TWINBUS_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run(["doctor", "--data", str(tmp_path)])
