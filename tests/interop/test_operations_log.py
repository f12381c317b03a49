"""The operations log of a namespace that is a process: stopped, killed, and asked over HTTP."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.running_server import wait_until
from tests.meter.operation_rows import read_log
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.client.namespace_http import NamespaceRefused, ask
from twinbus.meter.spool import spool_files

STOP_WAIT_S = 40


class Served:
    """`twinbus serve`, with one queue."""

    def __init__(self, data: Path, *options: str) -> None:
        self.operations = data / "contoso" / "operations"
        command = [sys.executable, "-m", "twinbus", "serve", "contoso", "--data", str(data), "--json", *options]
        command += ["--amqp-port", "0", "--http-port", "0", "--stores", "2", "--processes", "1", "--queue", "orders"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": "src"}
        )
        assert self._process.stdout is not None
        self.facts: dict[str, Any] = json.loads(self._process.stdout.readline())

    @property
    def connection_string(self) -> str:
        return str(self.facts["connection_string"])

    def ask(self, method: str, path: str) -> Any:
        return ask(self.connection_string, f"http://127.0.0.1:{self.facts['http_port']}", method, path)

    def send(self, *message_ids: str) -> None:
        with BlockingNamespace.connect(self.connection_string) as namespace:
            payloads = [encode_message(b"x", message_id=each) for each in message_ids]
            assert namespace.sender("orders").send(payloads) == [None] * len(payloads)

    def end(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
            self._process.wait(STOP_WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    started = Served(tmp_path)
    yield started
    started.end(signal.SIGKILL)


def sent(operations: Path) -> Counter[object]:
    return Counter(row["message_id"] for row in read_log(operations) if row["cause"] == "send")


@pytest.mark.rule("D1.1")
def test_nothing_is_missing_from_the_log_of_a_namespace_that_was_stopped(served: Served) -> None:
    served.send("a", "b", "c")
    served.end(signal.SIGTERM)
    assert sent(served.operations) == Counter("abc")
    assert not spool_files(served.operations)


@pytest.mark.rule("D1")
def test_a_namespace_that_was_killed_has_lost_nothing_that_was_a_second_old(served: Served, tmp_path: Path) -> None:
    served.send("a", "b")
    wait_until(lambda: any(b'"b"' in path.read_bytes() for path in spool_files(served.operations)))
    served.end(signal.SIGKILL)
    again = Served(tmp_path)
    try:
        again.send("c")
        again.end(signal.SIGTERM)
    finally:
        again.end(signal.SIGKILL)
    assert sent(served.operations) == Counter("abc")


def test_a_flush_writes_everything_so_far_to_parquet_for_managers(served: Served) -> None:
    served.send("a")
    assert served.ask("POST", "/$meter/flush") == {"operations": str(served.operations)}
    assert sent(served.operations) == Counter("a")
    served.facts["connection_string"] = served.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x")
    with pytest.raises(NamespaceRefused):
        served.ask("POST", "/$meter/flush")


def test_a_namespace_that_is_not_metered_keeps_no_log(tmp_path: Path) -> None:
    served = Served(tmp_path, "--no-meter")
    try:
        served.send("a")
        with pytest.raises(NamespaceRefused):
            served.ask("POST", "/$meter/flush")
        served.end(signal.SIGTERM)
    finally:
        served.end(signal.SIGKILL)
    assert not served.operations.exists()
