"""Jobs as processes of their own, which are asked to end by a signal while they work."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.pairing.namespaces import SERVE
from tests.spark.entities import Entities
from tests.spark.syphon_process import START_S
from twinbus.client.blocking import BlockingNamespace

COUNT = 400
ENDED_S = 60.0


@contextmanager
def running(entities: Entities, *words: str) -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own, with its JVM and workers: what is left of it is ended with it."""
    broker = entities.broker
    where = ["--connection-string", broker.connection_string, "--endpoint", f"http://127.0.0.1:{broker.http_port}"]
    command = [sys.executable, "-c", SERVE, "pipeline", *words, *where, "--json", "--master", "local[2]"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def count(entities: Entities, path: str) -> int:
    with BlockingNamespace.connect(entities.broker.connection_string) as namespace:
        return sum(head.active for head in namespace.run(namespace.extras(path).fragment_heads()))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ended(process: subprocess.Popen[str]) -> tuple[int, Any]:
    said, errors = process.communicate(timeout=ENDED_S)
    assert said, errors
    return process.returncode, json.loads(said.splitlines()[-1])


@pytest.mark.spark
@pytest.mark.timeout(2 * START_S)
def test_a_replay_that_gets_a_signal_finishes_its_page_and_says_where_it_stands(
    entities: Entities,
) -> None:
    queue = entities.queue()
    entities.send(queue, [str(n) for n in range(COUNT)])
    entities.dead_letter(queue, COUNT, "Tired")
    with running(entities, "replay", queue, "--dead-letters", "--rate", "20") as process:
        wait_until(lambda: count(entities, queue) > 0)
        process.send_signal(signal.SIGTERM)
        code, (tally,) = ended(process)
    assert code == 130
    assert 0 < tally["replayed"] == count(entities, queue) < COUNT
    assert tally["left"] == count(entities, f"{queue}/$DeadLetterQueue") == COUNT - tally["replayed"]


@pytest.mark.spark
@pytest.mark.timeout(2 * START_S)
def test_a_capture_that_gets_a_signal_finishes_its_batch_and_says_where_it_stands(
    entities: Entities, tmp_path: Path
) -> None:
    queue = entities.queue()
    entities.send(queue, [str(n) for n in range(COUNT)])
    lake = tmp_path / "lake"
    words = ("capture", queue, "--lake", str(lake), "--every", "100ms", "--batch-messages", "20")
    with running(entities, *words) as process:
        wait_until(lambda: any(lake.rglob("*.parquet")))
        process.send_signal(signal.SIGTERM)
        code, (tally,) = ended(process)
    assert code == 0
    assert tally["state"] == "stopped"
    assert 0 < tally["messages"] <= COUNT
