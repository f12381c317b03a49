"""Draining the backlog with the Spark job, in a session on this machine."""

import contextlib
import os
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from twinbus.clock import SteadyClock
from twinbus.pairing.syphon.service import find_backlog
from twinbus.pipeline.failures import one_line_failures
from twinbus.pipeline.java import choose_java
from twinbus.pipeline.session import QUICK_START, SparkMissing, spark_session
from twinbus.pipeline.stop_request import StopRequest
from twinbus.pipeline.syphon.driver import SyphonJob, count_cores
from twinbus.pipeline.syphon.key_folder import KeyFolder
from twinbus.pipeline.syphon.pairs import PairToSyphon
from twinbus.pipeline.syphon.rounds import PairPlaces
from twinbus.pipeline.syphon.syphon_settings import SyphonSettings
from twinbus.rehearsal.drain import Drained
from twinbus.rehearsal.stage import Stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
from twinbus.pipeline.java import JavaMissing
from twinbus.rehearsal.drain import Drain, ProcessDrain
from twinbus.rehearsal.rehearsal_settings import Engine

# Executors read keys from files, so they have to be on this machine.
MASTER = "local[*]"
STDERR = 2
SETTINGS = {**QUICK_START, "spark.log.level": "OFF"}


def require_spark() -> None:
    if not all(find_spec(package) for package in ("pyspark", "pyarrow", "pandas")):
        raise SparkMissing("Spark is not installed: pip install 'twinbus[spark,jre]', or use --engine process.")


class SparkDrain:
    """Uses a Spark session that is already running in this process, and leaves it running."""

    def __init__(self) -> None:
        """Raises SparkMissing or JavaMissing before anything is started."""
        require_spark()
        choose_java(os.environ)
        self._session: SparkSession | None = None
        self._is_ours = False

    def prepare(self) -> None:
        """Starts Spark, which takes seconds: before the first message, because it would slow down everything measured."""
        self._session = _running_session()
        if self._session is None:
            self._is_ours = True
            with _hushed():
                self._session = spark_session("twinbus rehearse", master=MASTER, settings=SETTINGS)
            _warm_up(self._session)

    def drain(self, stage: Stage) -> Drained:
        assert self._session is not None, "prepare comes first"
        begun = time.monotonic()
        with KeyFolder() as keys, stage.secondary.administration() as administration, one_line_failures():
            primary, secondary = stage.primary.connection_string, stage.secondary.connection_string
            backlog = find_backlog(primary, secondary, administration, stage.name)
            pair = PairToSyphon(stage.name, PairPlaces(keys.keep(primary), keys.keep(secondary)), backlog)
            stop = StopRequest(keys.path / "stop")
            job = SyphonJob(self._session, [pair], SyphonSettings(), SteadyClock(), stop)
            try:
                job.run(until_empty=True)
            except BaseException:
                stop.ask()
                raise
        tally = job.tallies[0]
        return Drained(tally.moved, tally.dead_lettered, time.monotonic() - begun)

    def close(self) -> None:
        if self._session is not None and self._is_ours:
            self._session.stop()
        self._session = None


def _warm_up(session: "SparkSession") -> None:
    """The first job with Python code takes seconds longer; they must not count for the drain."""

    def pass_on(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import twinbus.pipeline.syphon.task  # noqa: F401

        yield from batches

    tasks = count_cores(session)
    frame: Any = session.range(0, tasks, 1, tasks)
    with one_line_failures():
        frame.mapInArrow(pass_on, "id bigint").collect()


def _running_session() -> "SparkSession | None":
    if find_spec("pyspark") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """A JVM that is started inside discards its warnings for as long as it lives: they would disturb the live view."""
    errors = os.dup(STDERR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, STDERR)
        yield
    finally:
        os.dup2(errors, STDERR)
        os.close(errors)
        os.close(nowhere)


def choose_engine(wanted: Engine | None) -> tuple[Engine, Drain]:
    """For None, Spark if it can run and otherwise the process. Raises if Spark is wanted and cannot run."""
    if wanted is Engine.PROCESS:
        return Engine.PROCESS, ProcessDrain()
    try:
        return Engine.SPARK, SparkDrain()
    except (SparkMissing, JavaMissing):
        if wanted is not None:
            raise
    return Engine.PROCESS, ProcessDrain()
