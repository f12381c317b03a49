"""Whole jobs, with driver, JVM and workers, that are killed over any frame to or from a namespace; then the ledger is exact.

The commands are those that people type. What their tasks do is killed far more often, without a JVM, in
tests/pipeline/kills; captures also die in phases that no namespace sees, in test_capture_kills.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import SERVE, NamespaceProcess
from tests.pipeline.kills.doomed_program import DoomedProgram
from tests.pipeline.kills.tripwire import Tripwire
from tests.pipeline.syphon.backlog import Backlog
from tests.spark.conftest import WORKERS
from tests.spark.entities import Entities
from twinbus.pipeline.session import QUICK_START
from twinbus.pipeline.syphon.key_folder import KeyFolder

SEEDS = int(os.environ.get("TWINBUS_KILL_SEEDS", "200"))
COUNT = 600
DEATHS = 2
RUN_S_MAX = 200.0
LOCK = timedelta(seconds=5)

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(1_800)]


class Trial:
    """A namespace behind a wire, and jobs that reach it over the wire alone."""

    def __init__(self, bus: NamespaceProcess, wire: Tripwire, folder: Path, seed: int) -> None:
        self.bus, self.entities = bus, Entities(bus)
        self._wire, self._folder = wire, folder
        self._guarded = wire.guard(bus.connection_string)
        self.dice = Random(seed)
        self.bodies = [f"m{number}" for number in range(COUNT)]

    def job(self, *words: str) -> DoomedProgram:
        settings = [word for name, value in QUICK_START.items() for word in ("--conf", f"{name}={value}")]
        where = ["--connection-string", self._guarded, "--endpoint", f"http://127.0.0.1:{self.bus.http_port}"]
        return self.program("-c", SERVE, "pipeline", *words, *where, "--master", "local[2,4]", *settings)

    def program(self, *command: str, **environment: str) -> DoomedProgram:
        path = os.pathsep.join(filter(None, (str(WORKERS), os.environ.get("PYTHONPATH"))))
        more = {"PYTHONPATH": path, "BUS": self._guarded, **environment}
        return DoomedProgram(self._wire, command, self._folder / "job.log", more, RUN_S_MAX)

    def die_and_finish(self, doomed: DoomedProgram, frames: int) -> None:
        doomed.run_and_die(self.dice, frames, DEATHS)
        doomed.run_to_the_end()


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceProcess]:
    process = NamespaceProcess(tmp_path_factory.mktemp("bus"), "bus")
    yield process
    process.kill()


@pytest.fixture(autouse=True)
def room_for_queues(bus: NamespaceProcess) -> Iterator[None]:
    yield
    bus.delete_queues()


@pytest.fixture
def wire() -> Iterator[Tripwire]:
    made = Tripwire()
    yield made
    made.close()


@pytest.fixture
def trial(bus: NamespaceProcess, wire: Tripwire, tmp_path: Path, seed: int) -> Trial:
    return Trial(bus, wire, tmp_path, seed)


@pytest.mark.rule("C1.3")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_replay_of_dead_letters_that_is_killed_brings_each_home_once(seed: int, trial: Trial) -> None:
    queue = trial.entities.queue(requires_duplicate_detection=True, lock_duration=LOCK)
    trial.entities.send(queue, trial.bodies)
    trial.entities.dead_letter(queue, COUNT, "Tired")
    # At least: the busier the machine, the more messages share a settlement.
    trial.die_and_finish(trial.job("replay", queue, "--dead-letters"), 640)
    assert sorted(trial.bus.take_all(queue)) == sorted(trial.bodies)
    assert trial.bus.count(queue) == 0


@pytest.mark.rule("C1.3")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_capture_and_the_replay_of_its_lake_that_are_killed_keep_each_message_once(
    seed: int, trial: Trial, tmp_path: Path
) -> None:
    queue = trial.entities.queue(enable_partitioning=True)
    again = trial.entities.queue(requires_duplicate_detection=True)
    trial.entities.send(queue, trial.bodies)
    lake = ("--lake", str(tmp_path / "lake"))
    capture = ("capture", queue, *lake, "--available-now", "--consume", "--batch-messages", "200")
    trial.die_and_finish(trial.job(*capture), 78)
    assert trial.bus.count(queue) == 0
    trial.die_and_finish(trial.job("replay", queue, *lake, "--to", again), 13)
    assert sorted(trial.bus.take_all(again)) == sorted(trial.bodies)


@pytest.mark.rule("C1.2")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_stream_from_queue_to_queue_that_is_killed_forwards_each_message_once(
    seed: int, trial: Trial, tmp_path: Path
) -> None:
    queue = trial.entities.queue(enable_partitioning=True)
    target = trial.entities.queue(requires_duplicate_detection=True)
    trial.entities.send(queue, trial.bodies)
    doomed = trial.program("-m", "tests.spark.crash_job", "forward", queue, target, str(tmp_path))
    trial.die_and_finish(doomed, 101)
    assert sorted(trial.bus.take_all(target)) == sorted(trial.bodies)
    assert trial.bus.count(queue) == 0


@pytest.mark.rule("C1.1")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_syphon_that_is_killed_brings_each_message_home_once(
    seed: int, trial: Trial, wire: Tripwire, tmp_path: Path
) -> None:
    spare = NamespaceProcess(tmp_path, "spare")
    try:
        home = trial.entities.queue(requires_duplicate_detection=True)
        with KeyFolder() as keys:
            backlog = Backlog(Spaces(trial.bus, spare), keys)
            backlog.fill(home, COUNT)
            command = [
                *("-c", SERVE, "pipeline", "syphon", "--once", "--json", "--primary-name", backlog.name),
                *("--primary", "env:BUS", "--secondary", "env:SPARE_BUS", "--master", "local[2,4]"),
                *("--secondary-endpoint", f"http://127.0.0.1:{spare.http_port}"),
            ]
            guarded = wire.guard(spare.connection_string)
            trial.die_and_finish(trial.program(*command, SPARE_BUS=guarded), 700)
            assert backlog.waiting_count() == 0
        assert sorted(trial.bus.take_all(home)) == sorted(trial.bodies)
    finally:
        spare.kill()
