"""What only a store on a disk has to stand: opening, crashes, damage, a full disk."""

import errno
import gc
import os
import resource
import shutil
import sqlite3
import struct
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.contract.rows import DEFERRED, ELSEWHERE, HERE, SCHEDULED, UNLIMITED, everything, holding, numbers, row
from tests.store.held_tasks import HeldTask, HeldTasks
from twinbus.clock import NEVER
from twinbus.errors import ChangeRefused, StoreDamaged, StoreInUse, StoreUnavailable
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import (
    Activated,
    ActivatedTogether,
    Altered,
    AlteredTogether,
    Copied,
    DuplicatesForgotten,
    Enqueued,
    FragmentCreated,
    FragmentDeleted,
    Removed,
    SharedRows,
    fragment_key,
)
from twinbus.store.durable import JOINED_SIZE_MAX, ROWS_PER_STEP
from twinbus.store.folder import tables
from twinbus.store.folder.journal import segment_numbers, segment_path
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME, SQL, Snapshot, connect, prepare
from twinbus.store.journal_record import encode_changes
from twinbus.store.layers.located_changes import RowsAltered
from twinbus.store.layers.overlay import GONE, FragmentOverlay
from twinbus.store.layers.rows_below import rows_needed
from twinbus.store.row_ids import COUNTER_MASK
from twinbus.store.store_limits import StoreLimits

EIGHT_ENTRIES = StoreLimits(segment_entries_max=8)


def begin_checkpoint(store: FolderStore, number: int) -> None:
    """Five rows from this number on, in two commits: the first one fills half of the segment, the second one notices."""
    store.commit([Enqueued(HERE, [row(each) for each in range(number, number + 4)])])
    store.commit([Enqueued(HERE, [row(number + 4)])])


def table_numbers(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / FILE_NAME)) as tables:
        return [identity & COUNTER_MASK for (identity,) in tables.execute("SELECT id FROM messages ORDER BY id")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def crashed(folder: Path) -> Path:
    """The folder as it would be found if the process ended now."""
    copy = folder.with_name(folder.name + "-crashed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return copy


def test_large_commits_are_one_batch_and_their_memory_is_free_once_they_are_durable(folder: Path) -> None:
    contents = [bytes([number]) * 40_000 for number in (1, 2, 3)]
    rows = [row(number, content) for number, content in enumerate(contents, start=1)]
    bodies = [bytearray(b"".join(encode_changes([Enqueued(HERE, [each])]))) for each in rows]
    with closing(FolderStore(folder)) as store:
        store.commit([FragmentCreated(HERE)])
        before = store.next_sequence
        store.commit_records([memoryview(body) for body in bodies])
        assert store.next_sequence == before + 1
        for body in bodies:
            body[:] = bytes(len(body))
        assert [each.content for each in everything(store)] == contents
        with closing(FolderStore(crashed(folder))) as found:
            assert [each.content for each in everything(found)] == contents


def test_a_commit_may_have_more_large_pieces_than_the_system_writes_at_once(folder: Path) -> None:
    count = os.sysconf("SC_IOV_MAX") + 1
    rows = [row(number, bytes(JOINED_SIZE_MAX)) for number in range(1, count + 1)]
    with closing(FolderStore(folder)) as store:
        store.commit([FragmentCreated(HERE)])
        store.commit_records([b"".join(encode_changes([Enqueued(HERE, [each])])) for each in rows])
        assert numbers(everything(store)) == [*range(1, count + 1)]


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can be written past its first 600,000 bytes: what a full disk is to a process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents(folder: Path) -> list[int]:
    store = FolderStore(folder)
    found = numbers(everything(store))
    store.close()
    return found


def test_what_was_committed_is_there_after_a_close(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1), row(2))
    store.close()
    assert contents(folder) == [1, 2]


def test_what_was_committed_is_there_after_a_crash(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1), row(2))
    assert contents(crashed(folder)) == [1, 2]
    store.close()


def test_a_close_leaves_nothing_to_replay(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1, b"x" * 100_000))
    store.close()
    (number,) = segment_numbers(folder)
    assert segment_path(folder, number).stat().st_size < 1_000


MANY = [fragment_key(9, 0), *[fragment_key(number, 0) for number in range(10, 130)]]


def copied_to_many(folder: Path) -> FolderStore:
    """A store that has just taken a batch for many subscriptions."""
    store = FolderStore(folder)
    holding(store)
    store.commit([FragmentCreated(each) for each in MANY])
    store.checkpoint()
    copy_to_many(store, 1)
    return store


def copy_to_many(store: FolderStore, first_number: int) -> None:
    rows = SharedRows([row(0, b"%d" % number) for number in range(ROWS_PER_STEP // 20)])
    store.commit([Copied(each, first_number, rows) for each in MANY])


def test_a_commit_does_not_wait_until_a_very_long_one_before_it_is_applied(folder: Path) -> None:
    store = copied_to_many(folder)
    step_count = 0
    is_behind = True
    while is_behind:
        step_count += 1
        store.commit([Enqueued(HERE, [row(step_count)])])
        with pytest.raises(ChangeRefused):
            store.commit([Enqueued(HERE, [row(step_count)])])
        is_behind = store.catch_up()
    assert 2 <= step_count <= len(MANY) // 20 + 1, (
        "each commit applies a part, and so does a moment in which nobody waits"
    )
    assert numbers(everything(store)) == contents(crashed(folder)) == list(range(1, step_count + 1))
    assert {len(store.read(each, range(1, ROWS_PER_STEP))) for each in MANY} == {ROWS_PER_STEP // 20}
    store.close()


def test_what_a_very_long_commit_wrote_is_read_at_once(folder: Path) -> None:
    store = copied_to_many(folder)
    assert store.catch_up(), "the last fragment is not there yet"
    assert numbers(store.read(MANY[-1], [1, 2])) == [1, 2]
    assert not store.catch_up()
    store.close()


def test_only_one_very_long_commit_waits_to_be_applied(folder: Path) -> None:
    store = copied_to_many(folder)
    copy_to_many(store, ROWS_PER_STEP)
    assert store.catch_up(), "the first one was applied in part, and the second one not at all"
    store.commit([Enqueued(HERE, [row(1)])])
    assert not store.catch_up()
    store.close()


def test_what_waited_for_a_very_long_commit_is_applied_with_the_next_one_after_it(folder: Path) -> None:
    """Otherwise one commit would wait for each that comes, and the segment would never be sealed."""
    store = copied_to_many(folder)
    for number in range(1, len(MANY)):
        store.commit([Enqueued(HERE, [row(number)])])
    assert not store.catch_up()
    store.close()


def test_a_closed_store_refuses_all_work_even_what_needs_no_file(folder: Path) -> None:
    store = FolderStore(folder)
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.catch_up()


def test_a_closed_store_leaves_nothing_to_the_collector(folder: Path) -> None:
    """It comes seldom in a server, and a store that fails again and again is opened again each time."""
    store = FolderStore(folder)
    holding(store, row(1), row(2))
    assert numbers(everything(store)) == [1, 2]
    gc.disable()
    try:
        store.close()
        reference = weakref.ref(store)
        del store
        assert reference() is None
    finally:
        gc.enable()


def test_a_last_commit_torn_at_any_byte_is_absent_or_whole(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1), row(2))
    store.commit([])
    before = segment_path(folder, 1).read_bytes().rstrip(b"\0")
    store.commit([Removed(HERE, [1]), Enqueued(HERE, [row(3, b"\xff")])])
    after = segment_path(folder, 1).read_bytes().rstrip(b"\0")
    for length in range(len(before), len(after) + 1):
        copy = crashed(folder)
        os.truncate(segment_path(copy, 1), length)
        assert contents(copy) == ([2, 3] if length == len(after) else [1, 2]), length
    store.close()


def test_commits_go_on_behind_a_torn_one(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1), row(2, b"\xff"))
    length = len(segment_path(folder, 1).read_bytes().rstrip(b"\0"))
    copy = crashed(folder)
    store.close()
    os.truncate(segment_path(copy, 1), length - 1)
    store = FolderStore(copy)
    holding(store, row(7))
    store.close()
    assert contents(copy) == [7]


def test_damage_in_the_journal_is_reported_and_nothing_is_changed(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1, b"here it is"))
    store.commit([Enqueued(HERE, [row(2)])])
    copy = crashed(folder)
    store.close()
    damaged = segment_path(copy, 1).read_bytes().replace(b"here it is", b"here it was")
    segment_path(copy, 1).write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=f"{segment_path(copy, 1)}, offset"):
            FolderStore(copy)
    assert segment_path(copy, 1).read_bytes() == damaged


def test_a_missing_journal_segment_is_damage(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, EIGHT_ENTRIES, tasks)
    holding(store, *(row(number) for number in range(1, 20)))
    store.commit([Enqueued(HERE, [row(20)])])
    assert segment_numbers(folder) == [1, 2]
    copy = crashed(folder)
    segment_path(copy, 1).unlink()
    with pytest.raises(StoreDamaged, match="missing"):
        FolderStore(copy)
    store.close()
    segment_path(folder, segment_numbers(folder)[-1]).unlink()
    with pytest.raises(StoreDamaged, match="missing"):
        FolderStore(folder)


def test_a_blank_segment_is_damage(folder: Path) -> None:
    store = FolderStore(folder, EIGHT_ENTRIES, HeldTasks())
    holding(store, *(row(number) for number in range(1, 20)))
    store.commit([Enqueued(HERE, [row(20)])])
    assert segment_numbers(folder) == [1, 2]
    for number in (1, 2):
        copy = crashed(folder)
        segment_path(copy, number).write_bytes(bytes(5_000))
        with pytest.raises(StoreDamaged, match=f"{segment_path(copy, number)} has lost its file header"):
            FolderStore(copy)
    store.close()
    (last,) = segment_numbers(folder)
    assert last > 1
    segment_path(folder, last).write_bytes(b"")
    with pytest.raises(StoreDamaged, match="has lost its file header"):
        FolderStore(folder)


def test_a_bad_last_batch_of_a_finished_segment_is_damage(folder: Path) -> None:
    store = FolderStore(folder, EIGHT_ENTRIES, HeldTasks())
    holding(store, *(row(number) for number in range(1, 20)))
    store.commit([Enqueued(HERE, [row(20)])])
    copy = crashed(folder)
    store.close()
    finished = segment_path(copy, 1).read_bytes().rstrip(b"\0")
    segment_path(copy, 1).write_bytes(finished[:-1])
    with pytest.raises(StoreDamaged, match="does not follow"):
        FolderStore(copy)


def test_what_the_disk_changed_in_the_journal_since_it_was_written_does_not_reach_the_tables(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, EIGHT_ENTRIES, tasks)
    holding(store, *(row(number, b"content") for number in range(1, 20)))
    path = segment_path(folder, 1)
    path.write_bytes(path.read_bytes().replace(b"content", b"contenu", 1))
    with pytest.raises(StoreDamaged, match=f"{path}, offset .*: a batch is not what was written"):
        store.checkpoint()
    store.close()
    assert table_numbers(folder) == []


def test_a_checkpoint_is_hurried_when_the_segment_after_it_is_three_quarters_full(folder: Path) -> None:
    tasks = HeldTasks()
    with closing(FolderStore(folder, EIGHT_ENTRIES, tasks)) as store:
        holding(store, *(row(number) for number in range(1, 20)))
        hurried = []
        for number in range(20, 27):
            store.commit([Enqueued(HERE, [row(number)])])
            store.catch_up()
            hurried.append(tasks.newest is not None and store._checkpoint_thread()._is_hurried)
        assert hurried == [False, False, True, True, True, True, True], "a commit of one row is two entries of eight"


def test_what_a_journal_file_held_before_it_served_again_does_not_come_back(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, EIGHT_ENTRIES, tasks)
    holding(store, *(row(number, b"old" * 1_000) for number in range(1, 20)))
    for first in (20, 40, 60):
        store.commit([Enqueued(HERE, [row(number, b"old" * 1_000) for number in range(first, first + 10)])])
        tasks.run()
        store.commit([Removed(HERE, list(range(1, first)))])
    newest = segment_path(folder, segment_numbers(folder)[-1]).read_bytes()
    assert newest.count(b"oldold"), "the file served before"
    assert contents(crashed(folder)) == numbers(everything(store)) == list(range(60, 70))
    store.close()


def test_a_crash_between_a_checkpoint_and_the_deletion_of_its_segment_repeats_nothing(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, EIGHT_ENTRIES, tasks)
    holding(store, *(row(number) for number in range(1, 20)))
    store.commit([Removed(HERE, [3]), Altered(HERE, 4, DEFERRED, 1, 0, NEVER)])
    sealed = segment_path(folder, 1).read_bytes()
    begin_checkpoint(store, 20)
    tasks.run()
    store.commit([Removed(HERE, [5])])
    copy = crashed(folder)
    segment_path(copy, 1).write_bytes(sealed)
    expected = everything(store)
    reopened = FolderStore(copy)
    assert everything(reopened) == expected
    assert segment_numbers(copy) == [2, 3]
    reopened.close()
    store.close()


def test_commits_go_on_while_a_checkpoint_is_under_way(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, EIGHT_ENTRIES, tasks)
    holding(store, *(row(number) for number in range(1, 10)))
    store.commit([Removed(HERE, [1])])
    begin_checkpoint(store, 10)
    assert tasks.newest is not None
    assert tasks.newest.is_alive()
    store.commit([Removed(HERE, [2])])
    assert numbers(everything(store)) == list(range(3, 15))
    assert contents(crashed(folder)) == list(range(3, 15))
    store.close()


class EndingTask(HeldTask):
    """Once it is told to end, it does so just after somebody has seen that it runs."""

    is_ending = False

    def is_alive(self) -> bool:
        is_alive = super().is_alive()
        if self.is_ending:
            self.join()
        return is_alive


def test_a_checkpoint_may_end_while_a_commit_looks_whether_it_runs(folder: Path) -> None:
    tasks: list[EndingTask] = []

    def start_task(work: Callable[[], None]) -> EndingTask:
        tasks.append(EndingTask(work))
        return tasks[-1]

    store = FolderStore(folder, EIGHT_ENTRIES, start_task)
    holding(store, *(row(number) for number in range(1, 10)))
    store.commit([Removed(HERE, [1])])
    begin_checkpoint(store, 10)
    (task,) = tasks
    task.is_ending = True
    store.commit([Removed(HERE, [2])])
    assert not task.is_alive()
    assert numbers(everything(store)) == list(range(3, 15))
    store.close()


def test_what_is_received_while_a_sealed_segment_waits_never_reaches_the_tables(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, EIGHT_ENTRIES, tasks)
    holding(store, *(row(number, b"content") for number in range(1, 10)))
    store.commit([Removed(HERE, [1, 2, 3, 4, 5])])
    assert tasks.newest is None, "it waits"
    begin_checkpoint(store, 10)
    tasks.run()
    assert table_numbers(folder) == [6, 7, 8, 9]
    assert numbers(everything(store)) == list(range(6, 15))
    assert contents(crashed(folder)) == list(range(6, 15))
    store.checkpoint()
    assert table_numbers(folder) == list(range(6, 15))
    store.close()


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_checkpoint_that_ends_early_for_any_reason_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def end(*_: object) -> None:
        raise error

    tasks = HeldTasks()
    store = FolderStore(folder, EIGHT_ENTRIES, tasks)
    holding(store, *(row(number) for number in range(1, 10)))
    begin_checkpoint(store, 10)
    monkeypatch.setattr("twinbus.store.folder.medium.write_checkpoint", end)
    tasks.run()
    with pytest.raises(error):
        store.wait_for_checkpoint()
    with pytest.raises(StoreUnavailable):
        everything(store)
    monkeypatch.undo()
    store.close()
    assert contents(folder) == list(range(1, 15))


def test_a_checkpoint_keeps_a_row_whose_content_a_later_segment_refers_to(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, EIGHT_ENTRIES, tasks)
    scheduled = [row(number, b"%d" % number, state=SCHEDULED, due_at=5) for number in range(1, 10)]
    holding(store, *scheduled)
    store.commit([Activated(HERE, 1, 10, 7, NEVER), Activated(HERE, 2, 11, 7, NEVER), Removed(HERE, [11])])
    store.commit([Altered(HERE, 3, DEFERRED, 1, 0, NEVER), Altered(HERE, 4, DEFERRED, 1, 0, NEVER)])
    store.commit([Removed(HERE, [4])])
    tasks.run()
    expected = {3: b"3", 10: b"1", **{number: b"%d" % number for number in range(5, 10)}}
    assert 2 not in table_numbers(folder)
    assert {found.sequence_number: found.content for found in everything(store)} == expected
    reopened = FolderStore(crashed(folder))
    assert {found.sequence_number: found.content for found in everything(reopened)} == expected
    reopened.close()
    store.close()


def test_what_is_due_is_looked_for_behind_what_is_gone_also_after_a_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, StoreLimits(segment_entries_max=100), tasks)
    count = 400
    holding(store, *[row(number, b"x", state=SCHEDULED, due_at=5) for number in range(1, count + 1)])
    store.checkpoint()
    passed_count = 0
    times = Snapshot._times

    def noticed(self: Snapshot, name: str, at: int, number: int, count_max: int) -> list[tuple[int, int]]:
        nonlocal passed_count
        found = times(self, name, at, number, count_max)
        passed_count += sum([number < first for _, number in found])
        return found

    monkeypatch.setattr(Snapshot, "_times", noticed)
    for first in range(1, count, 4):
        found, _ = store.due(HERE, 6, 4)
        assert found == list(range(first, first + 4))
        store.commit([ActivatedTogether(HERE, found, count + first, 7, [NEVER] * 4)])
        store.catch_up()
        tasks.run()
    assert segment_numbers(folder)[0] > 3, "several checkpoints"
    assert passed_count <= count, "each once"
    store.close()


def test_what_a_checkpoint_brings_is_found_before_what_is_gone(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, *[row(number, b"x", state=SCHEDULED, due_at=5, expires_at=50) for number in range(1, 9)])
    store.checkpoint()
    store.commit([Removed(HERE, [1, 2]), ActivatedTogether(HERE, [3, 4], 9, 6, [8, 8])])
    store.checkpoint()
    store.commit([Removed(HERE, [5, 9])])
    assert store.due(HERE, 5, 2) == ([6, 7], 5)
    assert store.expired(HERE, 9, 2) == ([10], NEVER)
    earlier = [row(11, b"x", state=SCHEDULED, due_at=4), row(12, b"x", expires_at=7)]
    store.commit([Enqueued(HERE, earlier), Altered(HERE, 8, SCHEDULED, 0, 3, 50)])
    for _ in range(2):
        assert store.due(HERE, 5, 5) == ([8, 11, 6, 7], NEVER)
        assert store.expired(HERE, 9, 2) == ([12, 10], NEVER)
        store.checkpoint()
    store.close()


def test_what_was_asked_about_and_is_gone_since_does_not_become_active(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, *[row(number, b"x", state=SCHEDULED, due_at=5) for number in range(1, 5)])
    store.checkpoint()
    assert store.facts(HERE, [1, 2, 3, 4]).numbers == (1, 2, 3, 4)
    store.commit([Removed(HERE, [1]), ActivatedTogether(HERE, [1, 2], 5, 6, [NEVER, NEVER])])
    store.commit([ActivatedTogether(HERE, [2, 3], 7, 6, [NEVER, NEVER])])
    assert numbers(everything(store)) == [4, 6, 8]
    store.close()


def test_what_was_asked_about_and_is_removed_is_not_there_for_what_follows_in_the_commit(folder: Path) -> None:
    with closing(FolderStore(folder)) as store:
        holding(store, row(1))
        store.checkpoint()
        store.commit([Enqueued(HERE, [row(2)])])
        assert store.facts(HERE, [1, 2]).numbers == (1, 2)
        store.commit([Removed(HERE, [1, 2]), AlteredTogether(HERE, [1, 2], DEFERRED, 0)])
        assert everything(store) == []


def test_a_store_at_rest_writes_what_is_sealed_and_what_came_after_it(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, EIGHT_ENTRIES, tasks)
    holding(store, *(row(number) for number in range(1, 10)))
    store.commit([Enqueued(HERE, [row(10)])])
    store.rest()
    tasks.run()
    assert table_numbers(folder) == list(range(1, 11))
    store.close()


def test_a_store_at_rest_keeps_nothing_in_memory_and_in_its_journal_that_the_tables_hold(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, start_task=tasks)
    holding(store, row(1))
    assert store.rest(), "what is written has to be let go"
    tasks.run()
    assert segment_numbers(folder) == [1, 2]
    assert not store.rest()
    assert segment_numbers(folder) == [2]
    tasks.run()
    assert not store.rest(), "nothing was left to be written"
    store.close()


def test_a_commit_waits_for_the_checkpoint_once_the_next_segment_is_past_its_hard_limit(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, StoreLimits(segment_entries_max=8, backlog_factor=2), tasks)
    holding(store, *(row(number) for number in range(1, 10)))
    store.commit([Enqueued(HERE, [row(number) for number in range(10, 24)])])
    store.commit([Enqueued(HERE, [row(24)])])
    first = tasks.newest
    assert first is not None
    assert first.is_alive()
    store.commit([Enqueued(HERE, [row(25)])])
    assert not first.is_alive()
    assert segment_numbers(folder) == [2, 3]
    assert numbers(everything(store)) == list(range(1, 26))
    store.close()


def test_a_store_says_that_it_falls_behind_before_commits_have_to_wait(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, StoreLimits(segment_entries_max=8, backlog_factor=2), tasks)
    holding(store, *(row(number) for number in range(1, 10)))
    store.commit([Enqueued(HERE, [row(number) for number in range(10, 21)])])
    assert not store.is_pressed()
    store.commit([Enqueued(HERE, [row(21)])])
    assert store.is_pressed()
    assert tasks.newest is not None
    assert tasks.newest.is_alive()
    tasks.run()
    assert not store.is_pressed()
    store.close()
    assert not store.is_pressed()


def test_what_comes_and_goes_inside_one_segment_never_reaches_the_tables(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, *(row(number, b"x" * 10_000) for number in range(1, 200)))
    store.commit([Removed(HERE, list(range(1, 200)))])
    store.close()
    assert (folder / FILE_NAME).stat().st_size < 1_000_000


def test_many_rows_survive_many_statements_of_a_checkpoint(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, *(row(number, b"%d" % number * 300) for number in range(1, 2_500)))
    store.checkpoint()
    store.commit([Removed(HERE, list(range(1, 2_400)))])
    store.checkpoint()
    assert [found.content for found in everything(store)] == [b"%d" % number * 300 for number in range(2_400, 2_500)]
    store.close()


def test_a_content_larger_than_a_statement_takes_is_kept(folder: Path) -> None:
    large = os.urandom(3 << 20)
    store = FolderStore(folder)
    holding(store, row(1, large), row(2, b"small"), row(3, large))
    assert [found.content for found in everything(store)] == [large, b"small", large]
    store.close()
    store = FolderStore(folder)
    assert [found.content for found in everything(store)] == [large, b"small", large]
    store.close()


def test_a_folder_is_free_again_although_a_file_of_it_could_not_be_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network file system says that it lost what was written before."""
    store = FolderStore(folder)
    holding(store, row(1))
    store.checkpoint()
    close, failures = os.close, [OSError(errno.EIO, "Input/output error")]

    def fail_once(descriptor: int) -> None:
        close(descriptor)
        if failures:
            raise failures.pop()

    with monkeypatch.context() as broken:
        broken.setattr(os, "close", fail_once)
        with pytest.raises(OSError, match="Input/output error"):
            store.close()
    store = FolderStore(folder)
    assert everything(store) == [row(1)]
    store.close()


def test_a_folder_is_open_once(folder: Path) -> None:
    store = FolderStore(folder)
    with pytest.raises(StoreInUse, match=str(folder)):
        FolderStore(folder)
    store.close()
    FolderStore(folder).close()


def test_tables_of_another_version_are_refused(folder: Path) -> None:
    FolderStore(folder).close()
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(StoreDamaged, match="schema version 7"):
        FolderStore(folder)


def test_a_sqlite_older_than_the_oldest_that_will_do_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SQLITE_VERSION_MIN", sqlite3.sqlite_version_info)
    FolderStore(folder).close()
    major, minor, patch = sqlite3.sqlite_version_info
    monkeypatch.setattr(tables, "SQLITE_VERSION_MIN", (major, minor, patch + 1))
    with pytest.raises(StoreDamaged, match=f"SQLite {sqlite3.sqlite_version} is too old"):
        FolderStore(folder)


def test_tables_that_are_no_database_are_damage(folder: Path) -> None:
    FolderStore(folder).close()
    (folder / FILE_NAME).write_bytes(b"scribble" * 10_000)
    with pytest.raises(StoreDamaged):
        FolderStore(folder)


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        FolderStore(tmp_path / "file" / "store")


def test_a_removed_folder_makes_the_store_unavailable(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1))
    shutil.rmtree(folder)
    with pytest.raises(StoreUnavailable):
        store.commit([Enqueued(HERE, [row(2)])])
    with pytest.raises(StoreUnavailable):
        everything(store)
    store.close()


@pytest.mark.parametrize("said", ["the disk is gone", ""])
def test_a_store_that_failed_says_why_when_it_is_used_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(said)

    store = FolderStore(folder)
    holding(store, row(1))
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        with pytest.raises(StoreUnavailable):
            store.commit([Enqueued(HERE, [row(2)])])
    with pytest.raises(StoreUnavailable, match=rf"cannot be used: {said or 'OSError'}\. Reopen it"):
        everything(store)
    store.close()


def test_tables_that_the_disk_cannot_read_say_so(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, *(row(number, b"x" * 3_000) for number in range(1, 2_000)))
    store.checkpoint()
    os.truncate(folder / f"{FILE_NAME}-wal", 64)
    with pytest.raises(StoreUnavailable, match=r"failed: disk I/O error\. Repair the disk and reopen the store"):
        everything(store)
    store.close()


def test_another_folder_in_the_place_of_a_removed_one_does_not_hide_that(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1))
    shutil.rmtree(folder)
    other = FolderStore(folder)
    with pytest.raises(StoreUnavailable, match="removed while in use"):
        store.commit([Enqueued(HERE, [row(2)])])
    other.close()
    store.close()


def test_a_full_disk_fails_the_commit_and_leaves_the_store_as_it_was(folder: Path) -> None:
    with full_disk():
        store = FolderStore(folder)
        holding(store, row(1))
        with pytest.raises(StoreUnavailable):
            store.commit([Enqueued(HERE, [row(2, b"x" * 700_000)]), Removed(HERE, [1])])
        with pytest.raises(StoreUnavailable):
            store.commit([Enqueued(HERE, [row(2)])])
        store.close()
        assert contents(folder) == [1]


def test_a_disk_that_fills_up_during_a_checkpoint_loses_nothing(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, *(row(number, b"x" * 1_000) for number in range(1, 2_000)))
    with full_disk():
        with pytest.raises(StoreUnavailable):
            store.checkpoint()
        with pytest.raises(StoreUnavailable):
            store.commit([Removed(HERE, [1])])
        store.close()
    assert contents(folder) == list(range(1, 2_000))


def test_a_disk_that_is_full_when_the_store_is_closed_loses_nothing(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, *(row(number, b"x" * 1_000) for number in range(1, 2_000)))
    with full_disk():
        store.close()
    assert contents(folder) == list(range(1, 2_000))


def test_a_scan_skips_a_long_run_of_removed_rows(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, *(row(number) for number in range(1, 5_001)))
    store.checkpoint()
    store.commit([Removed(HERE, list(range(1, 4_999)))])
    assert numbers(store.scan(HERE, 0, 2, UNLIMITED, [MessageState.ACTIVE])) == [4_999, 5_000]
    store.close()


@pytest.mark.parametrize("numbers", [[1], [1, 3, 5], [2, 3, 4], [1, 5, 3], [4, 3, 2], []])
def test_no_rows_of_the_tables_are_found_but_those_that_are_asked_for(folder: Path, numbers: list[int]) -> None:
    with closing(FolderStore(folder)) as store:
        holding(store, *(row(number, b"content %d" % number) for number in range(1, 6)))
        store.checkpoint()
        with store._tables().snapshot(HERE) as found:
            sums = found.sums(numbers)
            assert found.contents(sums) == {number: b"content %d" % number for number in numbers}
            assert sorted(found.rows(numbers)) == sorted(numbers)


def test_rows_that_a_commit_depends_on_are_looked_for_together_except_those_that_are_known(folder: Path) -> None:
    with closing(FolderStore(folder)) as store:
        holding(store, *(row(number) for number in range(1, 4)))
        store.checkpoint()
        store.commit([Altered(HERE, 2, DEFERRED, 0, 0, NEVER)])
        store.summaries()  # which is applied by then
        changes = [RowsAltered(HERE, [1, 2, 3], DEFERRED, 0), RowsAltered(fragment_key(9, 0), [1], DEFERRED, 0)]
        assert rows_needed(changes, store._layers[-1]) == {HERE: [1, 3]}


def test_a_fragment_key_of_the_largest_kind_is_kept(folder: Path) -> None:
    store = FolderStore(folder)
    store.commit([FragmentCreated((1 << 40) - 1)])
    store.close()
    store = FolderStore(folder)
    assert [summary.fragment for summary in store.summaries()] == [(1 << 40) - 1]
    store.close()


def test_nothing_is_remembered_of_fragments_that_are_gone(folder: Path) -> None:
    store = FolderStore(folder)
    for number in range(1, 200):
        key = fragment_key(number, 0)
        store.commit([FragmentCreated(key), Enqueued(key, [row(1)])])
        assert store.due(key, 0, 1) == ([], NEVER)
        assert store.session_list(key).by_name == []
        store.commit([FragmentDeleted(key)])
        assert store.due(key, 0, 1) == ([], NEVER), "asked for before that was known"
    copy = crashed(folder)
    reopened = FolderStore(copy)
    for each in (store, reopened):
        assert each.summaries() == []
        assert not each._last_numbers
        assert not each._fronts
        assert not each._session_lists._kept
        each.close()


@pytest.mark.parametrize("is_below", [False, True])
def test_fragments_that_are_gone_are_one_object_until_the_next_checkpoint(folder: Path, is_below: bool) -> None:
    """A client that creates and deletes entities leaves thousands, and a busy store waits long for its next checkpoint."""
    with closing(FolderStore(folder)) as store:
        holding(store, row(1))
        if is_below:
            store.checkpoint()
        store.commit([FragmentDeleted(HERE), FragmentDeleted(ELSEWHERE)])
        # A broker may say something of them once more.
        store.commit([Removed(HERE, [1]), DuplicatesForgotten(HERE, 1), Activated(ELSEWHERE, 1, 2, 0, NEVER)])
        top = store._layers[-1].fragments
        assert top[HERE] is top[ELSEWHERE] is GONE
        assert not GONE.removed
        assert GONE.forgotten_until == -1
        assert everything(store) == []
        assert contents(crashed(folder)) == []
        holding(store, row(1, b"again"))
        assert [each.content for each in everything(store)] == [b"again"]
        assert contents(crashed(folder)) == [1]


def test_rows_that_are_gone_give_their_space_to_new_ones(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store)
    for first in range(1, 601, 100):
        some = range(first, first + 100)
        store.commit([Enqueued(HERE, [row(number, b"x" * 10_000) for number in some])])
        store.checkpoint()
        store.commit([Removed(HERE, list(some))])
        store.checkpoint()
    store.close()
    assert (folder / FILE_NAME).stat().st_size < 3_000_000


def test_opening_takes_a_torn_commit_out_of_the_file(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1), row(2, b"never acknowledged"))
    copy = crashed(folder)
    store.close()
    torn = segment_path(copy, 1).read_bytes().rstrip(b"\0").replace(b"acknowledged", b"acknow" + bytes(6))
    segment_path(copy, 1).write_bytes(torn)
    reopened = FolderStore(copy)
    assert b"acknow" not in segment_path(copy, 1).read_bytes()
    reopened.close()


def test_a_value_that_fits_in_no_row_fails_the_commit_whole_and_ends_the_opening(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1))
    with pytest.raises((OverflowError, struct.error)):
        store.commit([Removed(HERE, [1]), Enqueued(HERE, [row(2, expires_at=NEVER + 1)])])
    with pytest.raises(StoreUnavailable):
        everything(store)
    store.close()
    assert contents(folder) == [1]


def test_many_rows_of_one_time_are_found_without_passing_over_those_before(tmp_path: Path) -> None:
    """A million messages may be scheduled for the same moment: each piece would read all pieces before it."""
    connection = connect(tmp_path, 1 << 20)
    prepare(connection, tmp_path)
    parameters = {"slot": 1, "at": 5, "id": 7, "count_max": 10}
    for name in ("scheduled_after", "mortal_after"):
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", parameters)]
        time_column = "due_at" if name == "scheduled_after" else "expires_at"
        assert any(f"(slot=? AND {time_column}=? AND id>?)" in step for step in plan)
        assert not any("messages" in step and "SCAN" in step for step in plan)
    connection.close()


def test_a_page_of_altered_rows_looks_at_no_more_of_them_than_it_shows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim of a whole entity alters every row, and is then read in pages."""
    with closing(FolderStore(folder)) as store:
        store.commit([FragmentCreated(HERE), Enqueued(HERE, [row(number) for number in range(1, 201)])])
    looked_at: list[int] = []
    lifted_after = FragmentOverlay.lifted_after

    def noted(overlay: FragmentOverlay, number: int) -> Iterator[int]:
        for found in lifted_after(overlay, number):
            looked_at.append(found)
            yield found

    monkeypatch.setattr(FragmentOverlay, "lifted_after", noted)
    with closing(FolderStore(folder)) as store:
        store.commit([Altered(HERE, number, DEFERRED, 0, 0, NEVER) for number in range(1, 201)])
        looked_at.clear()
        found = store.scan(HERE, 50, 10, UNLIMITED, (DEFERRED,))
        assert [each.sequence_number for each in found] == list(range(51, 61))
        assert len(looked_at) <= 12


def test_a_row_that_was_altered_and_activated_since_the_last_checkpoint_is_there_after_a_crash(tmp_path: Path) -> None:
    """The row that it was made of has to reach the tables: the journal says how it was made."""
    tasks = HeldTasks()
    store = FolderStore(tmp_path / "store", StoreLimits(segment_entries_max=4), tasks)
    holding(store)
    store.commit([Enqueued(HERE, [row(number, b"old", state=SCHEDULED, due_at=1) for number in (1, 2, 3)])])
    store.commit([Altered(HERE, 1, SCHEDULED, 1, 2, NEVER, b"new")])
    store.commit([Activated(HERE, 1, 4, 3, NEVER)])
    store.commit([Removed(HERE, [1])])
    store.commit([Removed(HERE, [2])])
    tasks.run()
    shutil.copytree(tmp_path / "store", tmp_path / "found")
    found = FolderStore(tmp_path / "found")
    assert [(each.sequence_number, each.content) for each in found.read(HERE, [1, 2, 3, 4])] == [
        (3, b"old"),
        (4, b"new"),
    ]
    found.close()
    store.close()
