"""`twinbus rehearse` as a command: its report, its exit codes, Ctrl-C, and namespaces that exist already."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rehearsal.runs import processes_of
from twinbus.cli.app import run
from twinbus.testing.local_namespace import LocalNamespace

STOP_WAIT_S = 30.0
"""Less than a namespace gets that does not hear that it is to stop."""
EXISTING = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    with LocalNamespace(tmp_path / "one", "one") as one, LocalNamespace(tmp_path / "two", "two") as two:
        yield one, two


def places(pair: tuple[LocalNamespace, LocalNamespace]) -> list[str]:
    one, two = pair
    return [
        *("--primary", one.connection_string, "--primary-endpoint", one.endpoint),
        *("--secondary", two.connection_string, "--secondary-endpoint", two.endpoint),
    ]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_namespaces_that_exist_are_rehearsed_with_what_is_allowed_and_left_as_they_were(
    pair: tuple[LocalNamespace, LocalNamespace], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair[0].create_queue("own")
    script = tmp_path / "script.toml"
    script.write_text('duration = 3\n[[fault]]\nkind = "disconnect"\nat = 1\n')
    options = ["--script", str(script), "--allow", "disconnect", "--engine", "process", "--rate", "20", "--json"]
    page = tmp_path / "report.html"
    assert run(["rehearse", *places(pair), *options, "--report", str(page)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["is_balanced"]
    assert report["paired"]["planned"] == report["unpaired"]["planned"] == 60
    assert [fault["text"] for fault in report["faults"]] == ["every connection to the primary is dropped"]
    assert [queue.name for queue in pair[0].administration.list_queues()] == ["own"]
    assert list(pair[0].administration.list_topics()) == []
    assert list(pair[1].administration.list_queues()) == []
    assert page.read_text().count("<svg") == 5
    assert "SharedAccessKey" not in page.read_text() + json.dumps(report)


def test_a_fault_that_is_not_allowed_is_not_played(
    pair: tuple[LocalNamespace, LocalNamespace], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.toml"
    script.write_text('duration = 3\n[[fault]]\nkind = "store-down"\nat = 1\nfor = 1\n')
    assert run(["rehearse", *places(pair), "--script", str(script), "--engine", "process"]) == 1
    assert "Not allowed here: store-down" in capsys.readouterr().err
    assert list(pair[0].administration.list_queues()) == []


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_ctrl_c_in_an_outage_leaves_no_process_and_no_folder_behind(tmp_path: Path) -> None:
    script, temporary = tmp_path / "script.toml", tmp_path / "temporary"
    script.write_text('duration = 60\njitter = 0\n[[fault]]\nkind = "kill"\nat = 0.5\nfor = 30\n')
    temporary.mkdir()
    command = [sys.executable, "-m", "twinbus", "rehearse", "--engine", "process", "--script", str(script)]
    rehearsing = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
    )
    assert rehearsing.stdout is not None
    for line in rehearsing.stdout:
        if "fault" in line:
            break
    assert processes_of(temporary)
    rehearsing.send_signal(signal.SIGINT)
    _, errors = rehearsing.communicate(timeout=STOP_WAIT_S)
    assert rehearsing.returncode == 130
    assert "Traceback" not in errors
    assert processes_of(temporary) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--primary", "primary"], "both --primary and --secondary"),
        (["--allow", "kill"], "--allow is for existing namespaces"),
        (["--allow", "flood"], "flood"),
        (["--primary", EXISTING, "--secondary", EXISTING, "--allow", "disconnect"], "script has no disconnect"),
        (["--rate", "0"], "messages a second"),
        (["--rate", "9999"], "messages a second"),
        (["--duration", "0"], "--duration"),
        (["--script", "none.toml"], "none.toml cannot be read"),
        (["--script", "hanging"], "No such file or directory. Name a file, or one of outage, "),
        (["--prices", "none.toml"], "price sheet"),
        (["--report", "no-such-folder/report.html"], "cannot be written"),
        (
            ["--primary", EXISTING, "--secondary", EXISTING, "--allow", "kill"],
            "only does this to a namespace that it started",
        ),
    ],
)
def test_wrong_use_is_reported_in_one_line_before_anything_starts(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    endpoints = ["--primary-endpoint", "http://127.0.0.1:1", "--secondary-endpoint", "http://127.0.0.1:1"]
    assert run(["rehearse", "--engine", "process", *words, *endpoints]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
