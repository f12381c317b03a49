"""`twinbus pipeline syphon` as a process that is killed in the middle, again and again, and told to stop."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import NamespaceProcess
from tests.pipeline.syphon.backlog import Backlog
from tests.spark.syphon_process import START_S, running
from twinbus.pipeline.syphon.key_folder import KeyFolder

COUNT = 6_000
RATE = 1_500
ROUNDS = int(os.environ.get("TWINBUS_SOAK_ROUNDS", "3"))


@pytest.fixture
def spaces(tmp_path: Path) -> Iterator[Spaces]:
    made = Spaces(NamespaceProcess(tmp_path, "primary"), NamespaceProcess(tmp_path, "secondary"))
    yield made
    made.primary.kill()
    made.secondary.kill()


@pytest.fixture
def backlog(spaces: Spaces) -> Iterator[Backlog]:
    with KeyFolder() as keys:
        yield Backlog(spaces, keys)


def wait_for_more(backlog: Backlog, path: str, count: int) -> None:
    """Longer than for other things: a driver has a JVM to start first."""
    wanted = min(COUNT, backlog.spaces.primary.count(path) + count)
    deadline = time.monotonic() + START_S
    while backlog.spaces.primary.count(path) < wanted:
        assert time.monotonic() < deadline, "the job moved nothing"
        time.sleep(0.05)


@pytest.mark.rule("C1.1")
@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_driver_that_is_killed_again_and_again_loses_nothing(spaces: Spaces, backlog: Backlog, seed: int) -> None:
    """The driver alone, whose JVM ends with it, or everything at once; the destination detects duplicates."""
    random = Random(seed)
    path = spaces.primary.create_queue(requires_duplicate_detection=True)
    bodies = backlog.fill(path, COUNT)
    for _ in range(2):
        with running(backlog, "--rate", str(RATE)) as process:
            wait_for_more(backlog, path, random.randrange(1, COUNT // 4))
            if random.random() < 0.5:
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
    with running(backlog) as process:
        assert process.wait(START_S) == 0
    assert backlog.waiting_count() == 0
    assert sorted(spaces.primary.take_all(path)) == sorted(bodies)


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("who", ["primary", "secondary"])
def test_a_namespace_that_is_killed_under_the_job_loses_nothing(
    spaces: Spaces, backlog: Backlog, who: str, seed: int
) -> None:
    random, victim = Random(seed), getattr(spaces, who)
    path = spaces.primary.create_queue(requires_duplicate_detection=True)
    bodies = backlog.fill(path, COUNT)
    with running(backlog, "--rate", str(RATE)) as process:
        for _ in range(2):
            wait_for_more(backlog, path, random.randrange(1, COUNT // 4))
            victim.kill()
            victim.revive()
        assert process.wait(START_S) == 0
    assert backlog.waiting_count() == 0
    assert sorted(spaces.primary.take_all(path)) == sorted(bodies)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_job_that_is_told_to_stop_moves_or_gives_back_what_it_took(spaces: Spaces, backlog: Backlog) -> None:
    path = spaces.primary.create_queue()
    bodies = backlog.fill(path, COUNT)
    with running(backlog, "--rate", "500", "--budget", "10m") as process:
        wait_for_more(backlog, path, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == 0
        assert process.stdout is not None
        (said,) = json.loads(process.stdout.read().splitlines()[-1])
    home = spaces.primary.take_all(path)
    assert said["moved"] == len(home) < COUNT
    assert sorted(home + backlog.waiting()) == sorted(bodies)
