"""Captures that die in every phase: then the lake has exactly the messages, and the run says up to which number.

The ledger is kept by sequence number: what was sent is looked up in the namespace, what was captured in the files.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyspark_servicebus
from tests.pairing.namespaces import NamespaceProcess
from tests.spark import dying_source
from tests.spark.conftest import WORKERS
from tests.spark.crash_job import STAGED
from tests.spark.dying_source import NOTE_OPTION, session_members, visit, write_note
from tests.spark.entities import Entities
from twinbus.client.blocking import BlockingNamespace
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.pipeline import capture as capture_module
from twinbus.pipeline.capture import Capture, CaptureMode, CaptureSettings, CaptureState, run_captures
from twinbus.pipeline.lake import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROWSING = ("planning", "planned", "logged", "reading", "writing", "written")
CONSUMING = (*BROWSING, "claimed", "deleting", "deleted")
BATCH_MESSAGES = 60
RUN_S_MAX = 150.0
RUNS_MAX = 5
SEEDS = int(os.environ.get("TWINBUS_KILL_SEEDS", "200"))


class Ledger:
    """One partitioned queue, its numbers, and a lake."""

    def __init__(self, entities: Entities, folder: Path) -> None:
        self._entities, self.folder = entities, folder
        self.queue = entities.queue(enable_partitioning=True)
        self.sent: list[int] = []
        self._bodies = 0

    def send(self, count: int) -> None:
        bodies = [f"m{number}" for number in range(self._bodies, self._bodies + count)]
        self._bodies += count
        known = set(self._numbers())
        self._entities.send(self.queue, bodies)
        self.sent += set(self._numbers()) - known

    def _numbers(self) -> list[int]:
        found: list[int] = []
        with BlockingNamespace.connect(self._entities.broker.connection_string) as namespace:
            extras = namespace.extras(self.queue)
            for head in namespace.run(extras.fragment_heads()):
                following: int | None = head.first_number
                while following is not None and following <= head.last_number:
                    page = namespace.run(extras.peek_range(following, head.last_number, with_bodies=False))
                    found += [message.sequence_number or 0 for message in page.messages]
                    following = page.next_number
        return found

    @property
    def captured(self) -> Counter[int]:
        """By a reader that knows nothing of captures."""
        import pyarrow.dataset

        if not any(self.folder.glob("lake/entity=*/date=*/**/*.parquet")):
            return Counter()
        lake = pyarrow.dataset.dataset(self.folder / "lake", partitioning="hive")
        return Counter(lake.to_table(columns=["sequenceNumber"])["sequenceNumber"].to_pylist())

    def check(self, mode: CaptureMode) -> None:
        assert len(self.sent) == self._bodies
        assert self.captured == Counter(self.sent)
        assert self._entities.broker.count(self.queue) == (len(self.sent) if mode is CaptureMode.BROWSE else 0)


@pytest.fixture(autouse=True)
def room_for_queues(broker: NamespaceProcess) -> Iterator[None]:
    yield
    broker.delete_queues()


@pytest.fixture
def ledger(entities: Entities, tmp_path: Path) -> Ledger:
    return Ledger(entities, tmp_path)


@pytest.fixture
def note(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sources and captures of this session come past the note."""
    file = tmp_path / "note"

    def write(messages: "DataFrame", *where: Any, **how: Any) -> None:
        visit(str(file), "writing", may_kill=False)
        write_batch(messages, *where, **how)
        visit(str(file), "written", may_kill=False)

    monkeypatch.setattr(capture_module, "write_batch", write)
    dying_source.register(spark)
    yield file
    pyspark_servicebus.register(spark)


def run_once(spark: "SparkSession", ledger: Ledger, mode: CaptureMode, note: Path, entities: Entities) -> Capture:
    options = {**entities.options, "maxMessagesPerTrigger": str(BATCH_MESSAGES), NOTE_OPTION: str(note)}
    one = Capture(spark, ledger.queue, CaptureSettings(f"{ledger.folder}/lake", mode, options))
    run_captures([one], threading.Event(), lambda: None, at_once=1)
    return one


@pytest.mark.rule("C1.2")
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("mode", "phases"),
    [
        (CaptureMode.CONSUME, ("claimed", "written", "deleting", "deleted")),
        (CaptureMode.BROWSE, ("planned", "reading", "writing")),
        pytest.param(CaptureMode.CONSUME, CONSUMING, marks=pytest.mark.nightly),
        pytest.param(CaptureMode.BROWSE, BROWSING, marks=pytest.mark.nightly),
    ],
)
def test_a_capture_that_dies_in_every_phase_is_complete_in_the_end_and_says_so(
    spark: "SparkSession", entities: Entities, ledger: Ledger, note: Path, mode: CaptureMode, phases: Sequence[str]
) -> None:
    """A query fails when the process of its source is killed; a task whose worker is killed is tried again."""
    for place, phase in enumerate(phases):
        ledger.send(BATCH_MESSAGES + 7)
        write_note(note, phase, 1 + place % 2, takes_all=False)
        one = run_once(spark, ledger, mode, note, entities)
        assert not note.exists(), f"nobody came to {phase}"
        assert one.tally.state is (CaptureState.DONE if phase == "reading" else CaptureState.FAILED), phase
        if phase in ("planned", "claimed"):
            assert one.tally.last_error is not None
            assert one.tally.last_error.startswith("The Python process of the stream's source ended unexpectedly")
        assert one.tally.complete is not None
        reached = {each.fragment: each.up_to for each in one.tally.complete}
        done = {number for number in ledger.sent if number <= reached[number >> SEQUENCE_BITS]}
        assert done <= set(ledger.captured)
    one = run_once(spark, ledger, mode, note, entities)
    assert one.tally.state is CaptureState.DONE
    assert one.tally.complete is not None
    assert all(each.is_all for each in one.tally.complete)
    ledger.check(mode)


@pytest.mark.rule("C1.2")
@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_capture_whose_python_processes_die_anywhere_holds_each_message_once(
    seed: int, spark: "SparkSession", entities: Entities, ledger: Ledger, note: Path
) -> None:
    """Of one JVM that stays, so that there can be many; with the JVM it is the test below."""
    dice = random.Random(seed)
    mode = CaptureMode.BROWSE if seed % 2 else CaptureMode.CONSUME
    phases = BROWSING if mode is CaptureMode.BROWSE else CONSUMING
    # Every phase has its turn, whatever the dice say, and comes twice.
    ledger.send(dice.randrange(BATCH_MESSAGES + 1, 3 * BATCH_MESSAGES))
    write_note(note, phases[seed // 2 % len(phases)], dice.randrange(1, 3), takes_all=False)
    run_once(spark, ledger, mode, note, entities)
    assert not note.exists(), "nobody died"
    ledger.send(dice.randrange(BATCH_MESSAGES))
    one = run_once(spark, ledger, mode, note, entities)
    assert one.tally.state is CaptureState.DONE
    assert one.tally.complete is not None
    assert all(each.is_all for each in one.tally.complete)
    ledger.check(mode)


# With the driver, as a program


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[NamespaceProcess]:
    process = NamespaceProcess(tmp_path, "bus")
    yield process
    process.kill()


def run_program(ledger: Ledger, namespace: NamespaceProcess, mode: CaptureMode, note: Path) -> int:
    """The exit code, that of a kill if it was killed."""
    path = os.pathsep.join(filter(None, (str(WORKERS), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "BUS": namespace.connection_string, "PYTHONPATH": path, "DEATH_NOTE": str(note)}
    job = "browse" if mode is CaptureMode.BROWSE else "capture"
    command = [sys.executable, "-m", "tests.spark.crash_job", job, ledger.queue, "", str(ledger.folder)]
    with (ledger.folder / "job.log").open("ab") as errors:
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
    try:
        return process.wait(RUN_S_MAX)
    finally:
        for _ in range(100):
            left = session_members(process.pid)
            for pid in left:
                dying_source.kill(pid)
            if not left:
                break
            time.sleep(0.05)
        process.wait()


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_capture_whose_whole_machine_dies_anywhere_holds_each_message_once(
    seed: int, namespace: NamespaceProcess, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    mode = CaptureMode.BROWSE if seed % 2 else CaptureMode.CONSUME
    phases = [*(BROWSING if mode is CaptureMode.BROWSE else CONSUMING), *STAGED]
    ledger, note = Ledger(Entities(namespace), tmp_path), tmp_path / "note"
    for death in range(2):
        ledger.send(dice.randrange(200, 800))
        # Every phase has its turn, whatever the dice say.
        phase = phases[(seed // 2 + death * 5) % len(phases)]
        write_note(note, phase, dice.randrange(1, 4), takes_all=True)
        run_program(ledger, namespace, mode, note)
        note.unlink(missing_ok=True)
    for _ in range(RUNS_MAX):
        if run_program(ledger, namespace, mode, note) == 0:
            break
    ledger.check(mode)
