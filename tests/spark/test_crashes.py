"""`kill -9` of the driver, of a Python worker and of the namespace while messages are moved and captured.

Method: a job runs as a program; something of it is killed at a random time; it is started again until it says that it
is done. Then every message that was sent is where it belongs, once.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pairing.namespaces import NamespaceProcess
from tests.spark.conftest import WORKERS
from tests.spark.crash_job import capture
from tests.spark.entities import Entities

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 1_500
RUN_S_MAX = 150.0
RUNS_MAX = 6
KILL_WITHIN_S = 3.0
SESSION_FIELD, STATE_FIELD = 3, 0  # of /proc/PID/stat, behind the name
ROUNDS = int(os.environ.get("TWINBUS_SOAK_ROUNDS", "1"))


class JobProcess:
    """One run of the job, the leader of a session: all that it starts can be found, and killed together."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        command = [sys.executable, "-m", "tests.spark.crash_job", *arguments]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        try:
            return self._process.wait(RUN_S_MAX)
        finally:
            self.kill()

    def kill(self) -> None:
        for pid in self.members():
            _kill(pid)
        self._process.wait()

    def kill_a_worker(self, dice: random.Random) -> None:
        workers = [pid for pid in self.members() if b"pyspark.daemon" in _command_line(pid)]
        if workers:
            _kill(dice.choice(workers))

    def members(self) -> list[int]:
        """All processes of the session, also those of which the parent has died."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _session(pid) == self._process.pid]


def _session(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[STATE_FIELD] == "Z" else int(fields[SESSION_FIELD])


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class Trial:
    """Messages in a queue, and a job that is killed and started again."""

    def __init__(self, job: str, namespace: NamespaceProcess, folder: Path, seed: int) -> None:
        self._job, self._namespace, self._folder = job, namespace, folder
        self._dice = random.Random(seed)
        self._entities = Entities(namespace)
        self.source = self._entities.queue(enable_partitioning=True)
        self.target = self._entities.queue(requires_duplicate_detection=True)
        self.sent: list[str] = []

    def send(self, count: int) -> None:
        bodies = [f"m{len(self.sent) + number}" for number in range(count)]
        self._entities.send(self.source, bodies)
        self.sent += bodies

    def start(self) -> JobProcess:
        path = os.pathsep.join(filter(None, (str(WORKERS), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "BUS": self._namespace.connection_string, "PYTHONPATH": path}
        arguments = [self._job, self.source, self.target, str(self._folder)]
        return JobProcess(arguments, environment, self._folder / "job.log")

    def run_and_kill(self, victim: str) -> None:
        job = self.start()
        try:
            self._wait_for_a_batch(job)
            time.sleep(self._dice.uniform(0, KILL_WITHIN_S))
            match victim:
                case "driver":
                    job.kill()
                case "worker":
                    job.kill_a_worker(self._dice)
                case "namespace":
                    self._namespace.kill()
                    self._namespace.start()
            if victim != "driver":
                job.wait()
        finally:
            job.kill()

    def _wait_for_a_batch(self, job: JobProcess) -> None:
        """Until the run has committed one, so that there are more to come and something to repeat."""
        before, deadline = self._committed(), time.monotonic() + RUN_S_MAX
        while self._committed() == before and job.is_running:
            assert time.monotonic() < deadline, "the job commits nothing"
            time.sleep(0.02)

    def _committed(self) -> int:
        """Looks at nothing but checkpoints: folders beside them come and go while they are listed."""
        places = ("checkpoint/commits/*", "lake/_checkpoints/*/commits/*")
        return sum(file.name.isdigit() for place in places for file in self._folder.glob(place))

    @property
    def is_done(self) -> bool:
        return self._namespace.count(self.source) == 0

    def run_to_the_end(self) -> None:
        """A run may fail because of what was killed before it; the next one goes on."""
        for _ in range(RUNS_MAX):
            if self.start().wait() == 0:
                return
        raise AssertionError((self._folder / "job.log").read_text()[-3000:])

    def captured(self) -> Counter[str]:
        """By a reader that knows nothing of captures."""
        import pyarrow.dataset

        lake = pyarrow.dataset.dataset(self._folder / "lake", partitioning="hive")
        return Counter(lake.to_table(columns=["messageId"])["messageId"].to_pylist())

    def check(self) -> None:
        expected = Counter(self.sent)
        left = self._namespace.count(self.source)
        match self._job:
            case "forward":
                assert Counter(self._namespace.take_all(self.target)) == expected
                assert left == 0
            case "capture":
                assert self.captured() == expected
                assert left == 0
            case "browse":
                assert self.captured() == expected
                assert left == len(self.sent)


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[NamespaceProcess]:
    process = NamespaceProcess(tmp_path, "bus")
    yield process
    process.kill()


def try_out(job: str, victims: list[str], namespace: NamespaceProcess, folder: Path, seed: int) -> None:
    trial = Trial(job, namespace, folder, seed)
    for victim in victims:
        trial.send(COUNT // len(victims))
        trial.run_and_kill(victim)
    trial.run_to_the_end()
    trial.check()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_capture_that_is_killed_holds_each_message_once(
    spark: "SparkSession", broker: NamespaceProcess, tmp_path: Path
) -> None:
    """Who goes on is another driver, that of all tests: what it goes on with is on the disk and in the namespace."""
    trial = Trial("capture", broker, tmp_path, seed=1)
    trial.send(COUNT // 2)
    trial.run_and_kill("driver")
    assert not trial.is_done
    assert capture(spark, trial.source, str(tmp_path), "consume", {"connectionString": broker.connection_string}) == 0
    trial.check()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("victim", ["driver", "worker", "namespace"])
@pytest.mark.parametrize("job", ["forward", "capture", "browse"])
def test_nothing_is_lost_or_doubled_whatever_is_killed(
    job: str, victim: str, seed: int, namespace: NamespaceProcess, tmp_path: Path
) -> None:
    try_out(job, [victim, victim], namespace, tmp_path, seed)
