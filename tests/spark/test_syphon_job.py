"""The syphon as a Spark job between two real namespaces: outages, poison, rivals and a worker that dies."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import NamespaceProcess, until
from tests.pipeline.syphon.backlog import Backlog, in_order
from twinbus.clock import SteadyClock
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.syphon.service import Tally
from twinbus.pairing.syphon.tasks import BulkSyphon, SyphonThread
from twinbus.pipeline.stop_request import StopRequest
from twinbus.pipeline.syphon.driver import SyphonFailed, SyphonJob
from twinbus.pipeline.syphon.key_folder import KeyFolder
from twinbus.pipeline.syphon.reports import LaneReport, LaneStatus
from twinbus.pipeline.syphon.syphon_settings import SyphonSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 2_000


@pytest.fixture(scope="module")
def two_namespaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spaces]:
    folder = tmp_path_factory.mktemp("pair")
    spaces = Spaces(NamespaceProcess(folder, "primary"), NamespaceProcess(folder, "secondary"))
    yield spaces
    spaces.primary.kill()
    spaces.secondary.kill()


@pytest.fixture
def spaces(two_namespaces: Spaces) -> Iterator[Spaces]:
    yield two_namespaces
    two_namespaces.primary.revive()
    two_namespaces.secondary.revive()


@pytest.fixture
def keys() -> Iterator[KeyFolder]:
    with KeyFolder() as folder:
        yield folder


class Job:
    """A job over some backlogs that drains until they are empty, and what it reported."""

    def __init__(
        self, spark: "SparkSession", backlogs: Sequence[Backlog], metrics: Path | None = None, **settings: object
    ) -> None:
        self.rounds: list[list[LaneReport]] = []
        self.stop = StopRequest()
        self._job = SyphonJob(
            spark,
            [backlog.pair() for backlog in backlogs],
            SyphonSettings(**settings),  # type: ignore[arg-type]
            SteadyClock(),
            self.stop,
            None if metrics is None else str(metrics),
            lambda reports: self.rounds.append(list(reports)),
        )

    def run(self) -> None:
        self._job.run(until_empty=True)

    def moved(self) -> list[int]:
        return [tally.moved for tally in self._job.tallies]

    def waiting(self) -> list[int | None]:
        return [tally.waiting for tally in self._job.tallies]

    def statuses(self, number: int) -> set[LaneStatus]:
        return {report.status for report in self.rounds[number]}


@pytest.mark.rule("C1.1")
def test_a_job_drains_several_pairs_in_order_and_appends_its_metrics(
    spark: "SparkSession", spaces: Spaces, keys: KeyFolder, tmp_path: Path
) -> None:
    path = spaces.primary.create_queue()
    backlogs = [Backlog(spaces, keys, queue_count=3), Backlog(spaces, keys)]
    bodies = [backlog.fill(path, COUNT, prefix=f"{number}-") for number, backlog in enumerate(backlogs)]
    job = Job(spark, backlogs, tmp_path / "metrics")
    job.run()
    assert job.moved() == [COUNT, COUNT]
    assert {report.task for report in job.rounds[0]} == {0, 1}
    home = spaces.primary.take_all(path)
    assert sorted(home) == sorted(bodies[0] + bodies[1])
    for backlog, sent in zip(backlogs, bodies, strict=True):
        assert all(in_order(home, backlog.share(index, sent)) for index in range(len(backlog.queues)))
    metrics = spark.read.parquet(str(tmp_path / "metrics"))
    totals = {row["pair"]: row["moved"] for row in metrics.groupBy("pair").sum("moved").toDF("pair", "moved").collect()}
    assert totals == {backlog.name: COUNT for backlog in backlogs}


@pytest.mark.rule("B8")
def test_a_destination_that_was_down_is_probed_and_gets_its_messages_when_it_is_back(
    spark: "SparkSession", spaces: Spaces, keys: KeyFolder
) -> None:
    path = spaces.primary.create_queue()
    backlog = Backlog(spaces, keys)
    bodies = backlog.fill(path, COUNT)
    spaces.primary.kill()
    job = Job(spark, [backlog])
    working = threading.Thread(target=job.run)
    working.start()
    until(lambda: bool(job.rounds))
    assert job.statuses(0) == {LaneStatus.DESTINATION_DOWN}
    spaces.primary.revive()
    working.join(60)
    assert not working.is_alive()
    taken_in_vain = [sum(report.left for report in reports) for reports in job.rounds]
    assert taken_in_vain[0] <= 400  # a page of each queue or two, and then nothing before the probe is answered
    assert sum(taken_in_vain[1:]) <= COUNT  # none overtakes those whose locks have not ended yet
    home = spaces.primary.take_all(path)
    assert sorted(home) == sorted(bodies)
    assert all(in_order(home, backlog.share(index, bodies)) for index in range(2))


def test_a_job_with_the_wrong_primary_stops_at_its_poison_quota(
    spark: "SparkSession", spaces: Spaces, keys: KeyFolder
) -> None:
    backlog = Backlog(spaces, keys)
    backlog.fill("no-such-queue", 200)
    job = Job(spark, [backlog], poison_quota=20)
    with pytest.raises(SyphonFailed, match=r"poison quota of 20 .*no-such-queue"):
        job.run()
    assert sum(backlog.dead_reasons().values()) == 20


def test_a_job_that_is_stopped_says_how_much_waits(spark: "SparkSession", spaces: Spaces, keys: KeyFolder) -> None:
    path = spaces.primary.create_queue()
    backlog = Backlog(spaces, keys)
    backlog.fill(path, COUNT)
    job = Job(spark, [backlog], rate=500.0, budget_s=1.0)
    working = threading.Thread(target=job.run)
    working.start()
    until(lambda: spaces.primary.count(path) > 0)
    job.stop.ask()
    working.join(60)
    (moved,) = job.moved()
    assert 0 < moved < COUNT
    assert job.waiting() == [COUNT - moved]


def test_several_lanes_on_one_queue_move_every_message_once(
    spark: "SparkSession", spaces: Spaces, keys: KeyFolder
) -> None:
    path = spaces.primary.create_queue()
    backlog = Backlog(spaces, keys, queue_count=1)
    bodies = backlog.fill(path, COUNT)
    job = Job(spark, [backlog], lanes_per_queue_max=4, lane_target=COUNT // 4)
    job.run()
    assert sorted(report.lane for report in job.rounds[0]) == [0, 1, 2, 3]
    assert job.moved() == [COUNT]
    assert sorted(spaces.primary.take_all(path)) == sorted(bodies)


def test_a_connection_string_that_an_executor_does_not_have_ends_the_job(
    spark: "SparkSession", spaces: Spaces, keys: KeyFolder
) -> None:
    backlog = Backlog(spaces, keys)
    backlog.fill("orders", 2)
    Path(backlog.places.primary.given).unlink()
    with pytest.raises(SyphonFailed, match=f"The pair '{backlog.name}': connectionStringFile: .* cannot be read here"):
        Job(spark, [backlog]).run()
    assert backlog.waiting_count() == 2


@pytest.mark.rule("B8.1", "C3.1")
def test_a_job_and_an_in_process_syphon_compete_and_every_message_comes_home_once(
    spark: "SparkSession", spaces: Spaces, keys: KeyFolder
) -> None:
    path = spaces.primary.create_queue()
    backlog = Backlog(spaces, keys)
    bodies = backlog.fill(path, COUNT)
    other = Tally()
    options = SendAvailabilityPairedNamespaceOptions(on_event=other.count, syphon_messages_per_second_max=1_000)
    primary, secondary = spaces.primary.connection_string, spaces.secondary.connection_string
    rival = SyphonThread(BulkSyphon(primary, secondary, backlog.queues, options, SteadyClock()))
    job = Job(spark, [backlog], rate=1_000.0)
    rival.start()
    try:
        job.run()
    finally:
        rival.stop()
    assert job.moved()[0] + other.moved == COUNT
    assert sorted(spaces.primary.take_all(path)) == sorted(bodies)


def test_a_worker_that_dies_in_the_middle_of_a_page_loses_nothing(
    spark: "SparkSession", spaces: Spaces, keys: KeyFolder
) -> None:
    """Its queues rest until its locks have ended; what it had sent and not completed is a duplicate, and detected."""
    path = spaces.primary.create_queue(requires_duplicate_detection=True)
    backlog = Backlog(spaces, keys)
    bodies = backlog.fill(path, COUNT)
    job = Job(spark, [backlog], rate=1_000.0)
    working = threading.Thread(target=job.run)
    working.start()
    until(lambda: spaces.primary.count(path) > 100)
    os.kill(_busiest_worker(), signal.SIGKILL)
    working.join(60)
    assert not working.is_alive()
    assert LaneStatus.LOST in job.statuses(0)
    assert backlog.waiting_count() == 0
    assert sorted(spaces.primary.take_all(path)) == sorted(bodies)


def _busiest_worker() -> int:
    """Workers are forked by a daemon of Spark. Those that wait for a task have no sockets to a namespace."""
    parents = {int(entry.name): _parent(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    daemons = {pid for pid in parents if b"pyspark.daemon" in _command(pid) and _is_ours(pid, parents)}
    workers = [pid for pid, parent in parents.items() if parent in daemons]
    return max(workers, key=_socket_count)


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parents.get(pid, 0)
    return False


def _socket_count(pid: int) -> int:
    try:
        return sum(os.readlink(file).startswith("socket:") for file in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0
