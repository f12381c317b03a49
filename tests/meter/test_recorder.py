"""The thread that writes the operations log."""

import errno
import threading
from pathlib import Path

import pytest

from tests.meter.operation_rows import NOON, operation, read_log
from twinbus.meter.application_log import OperationsWriter
from twinbus.meter.operation import Operation
from twinbus.meter.recorder import AGE_MAX, BEHIND_MAX, OperationsRecorder
from twinbus.meter.rotation import RotationFailed, rotate, rotate_in_child
from twinbus.meter.spool import Spool, SpoolFacts, spool_files
from twinbus.testing.sim_clock import SimClock

HOUR = 3_600_000


def recorder(folder: Path) -> OperationsRecorder:
    made = OperationsRecorder(folder, "contoso", "node", rotate)
    made.start()
    return made


def flush(recorder: OperationsRecorder, now: int = NOON) -> BaseException | None:
    answers: list[BaseException | None] = []
    done = threading.Event()

    def flushed(error: BaseException | None) -> None:
        answers.append(error)
        done.set()

    recorder.flush(now, [], flushed)
    assert done.wait(20)
    return answers[0]


def test_what_was_handed_over_is_in_parquet_after_a_flush(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    made.hand(NOON, [operation(message_id="a")])
    made.hand(NOON + 1000, [operation(message_id="b")])
    assert flush(made) is None
    assert [row["message_id"] for row in read_log(tmp_path)] == ["a", "b"]
    made.stop(NOON, [])


@pytest.mark.rule("D1")
def test_a_recorder_that_is_stopped_leaves_nothing_unwritten(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    made.hand(NOON, [operation(message_id="a")])
    made.stop(NOON, [operation(message_id="b")])
    assert [row["message_id"] for row in read_log(tmp_path)] == ["a", "b"]
    assert not spool_files(tmp_path)


def test_what_a_killed_process_left_is_rotated_by_the_next(tmp_path: Path) -> None:
    left = Spool(tmp_path, SpoolFacts("contoso", "node", NOON, 9))
    left.append([operation(message_id="left")])
    left.close()
    made = recorder(tmp_path)
    made.stop(NOON, [])
    assert [row["message_id"] for row in read_log(tmp_path)] == ["left"]


@pytest.mark.parametrize("later", [AGE_MAX, HOUR, -1])
def test_a_spool_is_rotated_when_its_time_is_over(tmp_path: Path, later: int) -> None:
    made = recorder(tmp_path)
    made.hand(NOON, [operation()])
    made.hand(NOON + later, [])
    made.hand(NOON + later, [operation()])
    made.stop(NOON + later, [])
    assert len(list(tmp_path.glob("date=*/hour=*/*.parquet"))) == 2


def test_a_spool_that_is_young_goes_on_taking_rows(tmp_path: Path) -> None:
    made = recorder(tmp_path)
    for second in range(10):
        made.hand(NOON + second * 1000, [operation()])
    made.stop(NOON + 10_000, [])
    (path,) = tmp_path.glob("date=*/hour=*/*.parquet")
    assert path.name.startswith("node-")


def test_rows_that_a_full_disk_refuses_are_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Spool.append

    def full(spool: Spool, rows: list[Operation]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    made = recorder(tmp_path)
    monkeypatch.setattr(Spool, "append", full)
    made.hand(NOON, [operation(message_id="a")])
    assert isinstance(flush(made), OSError), "a bill without them would be taken for the whole one"
    assert made.is_behind
    monkeypatch.setattr(Spool, "append", append)
    made.hand(NOON + 1000, [operation(message_id="b")])
    assert flush(made) is None
    assert not made.is_behind
    assert [row["message_id"] for row in read_log(tmp_path)] == ["a", "b"]
    made.stop(NOON, [])


def test_a_spool_that_cannot_be_read_keeps_no_other_waiting(tmp_path: Path) -> None:
    """Somebody started the server as another user once."""
    (tmp_path / "_spool" / "a-other.spool").mkdir(parents=True)
    made = recorder(tmp_path)
    made.hand(NOON, [operation(message_id="a")])
    assert isinstance(flush(made), OSError)
    assert [row["message_id"] for row in read_log(tmp_path)] == ["a"]
    made.stop(NOON, [])


def test_a_rotation_that_fails_keeps_the_spool_for_the_next(tmp_path: Path) -> None:
    faults = [RotationFailed("the disk is full")]

    def rotate_later(folder: Path) -> None:
        if faults:
            raise faults.pop()
        rotate(folder)

    made = OperationsRecorder(tmp_path, "contoso", "node", rotate_later)
    made.start()
    made.hand(NOON, [operation()])
    assert isinstance(flush(made), RotationFailed)
    assert flush(made) is None
    assert len(read_log(tmp_path)) == 1
    made.stop(NOON, [])


def test_one_that_hangs_says_that_it_is_behind_and_takes_no_empty_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    append = Spool.append

    def slow(spool: Spool, rows: list[Operation]) -> None:
        may_go_on.wait(20)
        append(spool, rows)

    monkeypatch.setattr(Spool, "append", slow)
    made = recorder(tmp_path)
    for _ in range(BEHIND_MAX + 5):
        made.hand(NOON, [operation()])
    assert made.is_behind
    may_go_on.set()
    made.stop(NOON, [])
    assert len(read_log(tmp_path)) == BEHIND_MAX + 5


def test_a_process_of_its_own_rotates_as_well_and_says_what_went_wrong(tmp_path: Path) -> None:
    spool = Spool(tmp_path, SpoolFacts("contoso", "node", NOON, 9))
    spool.append([operation()])
    spool.close()
    blocked = tmp_path / "date=2023-11-15"
    blocked.write_text("in the way")
    with pytest.raises(RotationFailed, match="date=2023-11-15"):
        rotate_in_child(tmp_path)
    blocked.unlink()
    rotate_in_child(tmp_path)
    assert len(read_log(tmp_path)) == 1


def test_an_application_writes_a_log_of_its_own(tmp_path: Path) -> None:
    with OperationsWriter(tmp_path, "contoso", "checkout-7", clock=SimClock(), rotate=rotate) as writer:
        writer.record(operation(message_id="a"))
        writer.flush()
        assert [row["message_id"] for row in read_log(tmp_path)] == ["a"]
        writer.record(operation(message_id="b"))
    rows = read_log(tmp_path)
    assert {row["message_id"] for row in rows} == {"a", "b"}
    assert {row["namespace"] for row in rows} == {"contoso"}


def test_a_log_that_is_closed_has_nothing_left_to_flush(tmp_path: Path) -> None:
    writer = OperationsWriter(tmp_path, "contoso", "node", rotate=rotate)
    writer.record(operation())
    writer.close()
    writer.flush()
    assert len(read_log(tmp_path)) == 1
