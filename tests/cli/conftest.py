"""One namespace served by `twinbus serve` for all commands to talk to, and the commands run in this process."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.quick_sdk import quick_sdk
from twinbus.cli.app import run
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.connecting.trust import CA_FILE_VARIABLE

STOP_WAIT_S = 30.0


@dataclass
class Served:
    data: Path
    process: "subprocess.Popen[str]"
    ready: dict[str, Any]

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        """A test that failed half-way leaves no process behind."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(STOP_WAIT_S)


def serve(data: Path, name: str, *options: str) -> Served:
    """Start a namespace on free ports and wait until it says that it is ready.

    Without a log of operations, of which a process of its own makes Parquet before the namespace ends.
    """
    command = [
        sys.executable,
        "-m",
        "twinbus",
        "serve",
        name,
        "--data",
        str(data),
        "--amqp-port",
        "0",
        "--http-port",
        "0",
        "--processes",
        "1",
    ]
    process = subprocess.Popen(
        [*command, "--stores", "2", "--no-meter", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return Served(data, process, json.loads(process.stdout.readline()))


@pytest.fixture(scope="module", autouse=True)
def _quick_sdk() -> Iterator[None]:
    with quick_sdk():
        yield


@pytest.fixture(autouse=True)
def _own_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--ca-file` is for the rest of the process; here that is one test."""
    monkeypatch.setenv(CA_FILE_VARIABLE, "")


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """A command that serves configures the logs of the process; here that is one test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("data"), "primary") as served:
        yield served
        assert served.stop() == 0


@dataclass
class Commands:
    """Runs command lines against the served namespace and keeps what they printed."""

    served: Served
    capsys: pytest.CaptureFixture[str]
    errors: str = ""

    def text(self, *words: str, code: int = 0) -> str:
        place = ["--data", str(self.served.data)]
        assert run([*words, *place]) == code
        printed = self.capsys.readouterr()
        self.errors = printed.err
        return printed.out

    def json(self, *words: str) -> Any:
        return json.loads(self.text(*words, "--json"))

    def blocking(self) -> BlockingNamespace:
        """A client of our own to the same namespace."""
        return BlockingNamespace.connect(self.served.ready["connection_string"])

    def failure(self, *words: str) -> str:
        """The one line that a failing command prints."""
        assert self.text(*words, code=1) == ""
        assert self.errors.count("\n") == 1
        return self.errors


@pytest.fixture
def commands(served: Served, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(served, capsys)
