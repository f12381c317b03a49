"""A disk that is nearly full: no messages are taken, receivers go on, and what they leave behind makes room again."""

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from tests.contract.rows import HERE, everything, holding, numbers, row
from tests.store.held_tasks import HeldTasks
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Enqueued, FragmentCreated, Removed
from twinbus.store.folder import medium
from twinbus.store.folder.checkpoint import write_checkpoint
from twinbus.store.folder.journal import KEPT_AHEAD, SPARE_NAME, SegmentFile, segment_numbers, segment_path
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME
from twinbus.store.layers.overlay import Layer
from twinbus.store.layers.pace import Pace
from twinbus.store.room import (
    AGAIN_AT,
    LITTLE_AT,
    RESERVE_BYTES,
    RESERVE_PART,
    SEGMENT_BYTES_MIN,
    UNKNOWN_SPACE,
    Room,
    RoomLeft,
    Space,
)
from twinbus.store.store_limits import StoreLimits

LARGE = b"x" * 200_000
TOTAL = 100 << 30


class Disk:
    """What the system says about the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = TOTAL
        for name in ("statvfs", "fstatvfs"):
            monkeypatch.setattr(os, name, self._said)

    def _said(self, _: object) -> os.statvfs_result:
        return os.statvfs_result((1, 1, TOTAL, self.free, self.free, 1, 1, 1, 0, 255))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def looked(*free: float, total: float = TOTAL) -> RoomLeft:
    room = Room()
    for each in free:
        room.look(Space(each, total))
    return room.left


def test_there_is_no_room_below_the_reserve_and_until_there_is_half_as_much_again() -> None:
    assert looked(RESERVE_BYTES) is RoomLeft.LITTLE
    assert looked(RESERVE_BYTES - 1) is RoomLeft.NONE
    assert looked(RESERVE_BYTES - 1, RESERVE_BYTES * AGAIN_AT - 1) is RoomLeft.NONE
    assert looked(RESERVE_BYTES - 1, RESERVE_BYTES * AGAIN_AT) is RoomLeft.LITTLE


def test_there_is_little_room_below_some_times_the_reserve() -> None:
    assert looked(RESERVE_BYTES * LITTLE_AT) is RoomLeft.ENOUGH
    assert looked(RESERVE_BYTES * LITTLE_AT - 1) is RoomLeft.LITTLE


def test_the_reserve_of_a_small_disk_is_a_part_of_it() -> None:
    assert looked(1_000, total=1_000 * RESERVE_PART) is RoomLeft.LITTLE
    assert looked(999, total=1_000 * RESERVE_PART) is RoomLeft.NONE


def test_room_that_nobody_can_tell_is_never_short() -> None:
    room = Room()
    room.look(UNKNOWN_SPACE)
    assert room.left is RoomLeft.ENOUGH
    assert room.segment_bytes_max(64 << 20) == 64 << 20
    assert room.fits_checkpoint(1 << 40, 1 << 60)


def test_a_store_looks_at_its_disk_whenever_it_is_asked(tmp_path: Path, disk: Disk) -> None:
    store = FolderStore(tmp_path)
    assert store.room_left() is not RoomLeft.NONE
    disk.free = RESERVE_BYTES - 1
    assert store.room_left() is RoomLeft.NONE
    disk.free = TOTAL
    assert store.room_left() is not RoomLeft.NONE
    store.close()


def test_a_store_whose_folder_is_gone_does_not_break_when_it_is_asked_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)

    def gone(_: object) -> os.statvfs_result:
        raise FileNotFoundError

    monkeypatch.setattr(os, "statvfs", gone)
    assert store.room_left() is not RoomLeft.NONE
    store.close()


@pytest.mark.parametrize("is_closed", [False, True], ids=["has failed", "is closed"])
def test_a_store_that_takes_nothing_any_more_lacks_no_room(tmp_path: Path, disk: Disk, is_closed: bool) -> None:
    store = FolderStore(tmp_path)
    holding(store, row(1))
    if is_closed:
        store.close()
    else:
        segment_path(tmp_path, 1).unlink()
        with pytest.raises(StoreUnavailable):
            store.commit([Removed(HERE, [1])])
    disk.free = 0
    assert store.room_left() is RoomLeft.ENOUGH
    assert not store.is_pressed()
    store.close()


def test_the_journal_of_messages_that_are_gone_makes_room_while_others_are_settled(tmp_path: Path, disk: Disk) -> None:
    tasks = HeldTasks()
    store = FolderStore(tmp_path, start_task=tasks)
    holding(store, *(row(number, LARGE) for number in range(1, 51)))
    store.commit([Removed(HERE, list(range(1, 50)))])
    disk.free = RESERVE_BYTES - 1
    store.rest()
    tasks.run()
    store.rest()
    assert segment_numbers(tmp_path) == [2]
    assert not (tmp_path / SPARE_NAME).exists(), "what is kept for speed is given back too"
    assert (tmp_path / f"{FILE_NAME}-wal").stat().st_size == 0
    assert sum(file.stat().st_blocks for file in tmp_path.iterdir()) * 512 < 10 * len(LARGE)
    assert everything(store) == [row(50, LARGE)]
    store.close()


def test_with_room_the_spare_is_kept(tmp_path: Path, disk: Disk) -> None:
    tasks = HeldTasks()
    store = FolderStore(tmp_path, start_task=tasks)
    holding(store, row(1))
    store.rest()
    tasks.run()
    store.rest()
    assert (tmp_path / SPARE_NAME).exists()
    store.close()


def test_a_checkpoint_that_does_not_fit_is_not_begun_and_nothing_is_taken_until_one_does(
    tmp_path: Path, disk: Disk
) -> None:
    tasks = HeldTasks()
    store = FolderStore(tmp_path, start_task=tasks)
    holding(store, *(row(number, LARGE) for number in range(1, 501)))
    disk.free = 2 * 500 * len(LARGE)  # less than twice the messages with their facts, and more than the reserve
    assert store.room_left() is not RoomLeft.NONE
    store.rest()
    assert segment_numbers(tmp_path) == [1, 2]
    assert store.room_left() is RoomLeft.NONE
    tasks.run()
    store.commit([Removed(HERE, list(range(1, 101)))])
    assert store.room_left() is RoomLeft.NONE
    assert len(everything(store)) == 400, "receivers see everything meanwhile"
    store.rest()
    tasks.run()
    store.rest()
    assert store.room_left() is not RoomLeft.NONE
    assert segment_numbers(tmp_path)[0] > 1
    assert len(everything(store)) == 400
    store.close()


def test_what_a_store_without_space_for_a_checkpoint_has_is_all_there_when_it_is_opened_again(
    tmp_path: Path, disk: Disk
) -> None:
    store = FolderStore(tmp_path)
    holding(store, *(row(number, LARGE) for number in range(1, 501)))
    disk.free = 500 * len(LARGE)
    assert store.room_left() is not RoomLeft.NONE
    with pytest.raises(StoreUnavailable, match="no space for a checkpoint"):
        store.checkpoint()
    store.commit([Removed(HERE, [1])])
    store.close()
    assert len(segment_numbers(tmp_path)) > 1
    store = FolderStore(tmp_path)
    assert [each.sequence_number for each in everything(store)] == list(range(2, 501))
    disk.free = TOTAL
    store.rest()
    store.wait_for_checkpoint()
    assert store.room_left() is not RoomLeft.NONE
    assert len(everything(store)) == 499
    store.close()


def test_layers_that_reached_the_tables_before_space_ran_out_are_not_written_again(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = sqlite3.connect(tmp_path / "small")
    small.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as no_page:
        small.execute("CREATE TABLE t (x)")
    small.close()
    folder, tasks, written = tmp_path / "store", HeldTasks(), list[int]()
    store = FolderStore(folder, start_task=tasks)
    holding(store, row(1, LARGE * 10))
    disk.free = SEGMENT_BYTES_MIN
    for number in (2, 3):
        store.rest()
        tasks.run()
        store.commit([Enqueued(HERE, [row(number, LARGE)])])
    assert segment_numbers(folder) == [1, 2, 3]
    disk.free = TOTAL
    layers_max = 1

    def write(connection: sqlite3.Connection, layer: Layer, pace: Pace) -> None:
        if len(written) == layers_max:
            raise no_page.value
        written.append(layer.segment.number)
        write_checkpoint(connection, layer, pace)

    monkeypatch.setattr(medium, "write_checkpoint", write)
    for wanted in ([1], [1, 2, 3]):
        store.rest()
        tasks.run()
        store.rest()
        assert written == wanted
        assert (store.room_left() is RoomLeft.NONE) is (len(wanted) == 1)
        layers_max = 9
        tasks.run()
    assert [each.sequence_number for each in everything(store)] == [1, 2, 3]
    store.close()
    store = FolderStore(folder)
    assert [each.sequence_number for each in everything(store)] == [1, 2, 3]
    assert [summary.active_count for summary in store.summaries() if summary.fragment == HERE] == [3]
    store.close()


def test_segments_get_shorter_with_the_space_that_is_left(tmp_path: Path, disk: Disk) -> None:
    disk.free = 256 << 20
    store = FolderStore(tmp_path, StoreLimits())
    assert store.room_left() is not RoomLeft.NONE
    store.commit([FragmentCreated(HERE)])
    for number in range(1, 31):
        store.commit([Enqueued(HERE, [row(number, LARGE)])])
        store.wait_for_checkpoint()
    assert segment_numbers(tmp_path)[-1] > 1, "six megabytes are more than a share of a quarter of what is left"
    store.close()


def test_without_space_for_a_segment_the_last_one_goes_on(tmp_path: Path, disk: Disk) -> None:
    store = FolderStore(tmp_path)
    holding(store, *(row(number, LARGE) for number in range(1, 11)))
    disk.free = SEGMENT_BYTES_MIN - 1
    assert store.room_left() is RoomLeft.NONE
    for number in range(1, 10):
        store.commit([Removed(HERE, [number])])
        store.catch_up()
    assert segment_numbers(tmp_path) == [1], (
        "two megabytes are more than a share, and there is no room for the next segment"
    )
    assert numbers(everything(store)) == [10]
    disk.free = SEGMENT_BYTES_MIN
    assert store.room_left() is RoomLeft.NONE
    store.commit([Removed(HERE, [10])])
    store.catch_up()
    assert segment_numbers(tmp_path) == [1, 2]
    store.close()


def test_a_file_system_that_takes_no_more_files_stops_senders_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has bytes left, so only the next segment shows it."""
    store = FolderStore(tmp_path, StoreLimits(segment_entries_max=4))
    real = os.open

    def refuse(path: os.PathLike[str], flags: int, *mode: int) -> int:
        if flags & os.O_CREAT and not Path(path).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        holding(store, *(row(number) for number in range(1, 11)))
        for number in range(1, 9):
            store.commit([Removed(HERE, [number])])
            store.catch_up()
            store.rest()
            assert store.room_left() is RoomLeft.NONE
        assert numbers(everything(store)) == [9, 10]
    store.wait_for_checkpoint()  # a rest does nothing while the thread of the last one still tidies up
    store.rest()
    store.wait_for_checkpoint()
    assert segment_numbers(tmp_path) == [2]
    assert store.room_left() is RoomLeft.ENOUGH
    store.commit([Enqueued(HERE, [row(11)])])
    store.close()
    store = FolderStore(tmp_path)
    assert numbers(everything(store)) == [9, 10, 11]
    store.close()


def test_a_store_that_is_closed_where_no_more_files_are_taken_keeps_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    holding(store, row(1))
    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "create", raise_no_space)
        with pytest.raises(StoreUnavailable, match="no space for a checkpoint"):
            store.checkpoint()
        store.close()
    store = FolderStore(tmp_path)
    assert numbers(everything(store)) == [1]
    store.close()


def raise_no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_segment_has_space_ahead_for_what_removes_messages(tmp_path: Path, disk: Disk) -> None:
    disk.free = 0
    segment = SegmentFile.create(tmp_path, 1, first_sequence=1)
    segment.append([LARGE])
    size = segment_path(tmp_path, 1).stat().st_size
    assert segment.end + KEPT_AHEAD <= size <= segment.end + 2 * KEPT_AHEAD
    segment.close()
