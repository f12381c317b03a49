"""Gone is not empty: a store that was in use is refused if it is not there any more, until somebody accepts the loss."""

import os
import re
import shutil
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.contract.rows import HERE, everything, holding, numbers, row
from tests.store.held_tasks import HeldTasks
from tests.store.losing_disk import LosingDisk, watched
from tests.store.test_durable import crashed
from twinbus.errors import StoreDamaged, StoreGone, StoreUnavailable
from twinbus.store.changes import Enqueued
from twinbus.store.damage import Damage
from twinbus.store.folder import medium
from twinbus.store.folder.accepted_loss import SALVAGING_NAME, go_on_without
from twinbus.store.folder.checkpoint import write_checkpoint
from twinbus.store.folder.folder_check import check_folder
from twinbus.store.folder.identity import (
    COMMITS_SUFFIX,
    IDENTITY_NAME,
    accept_loss,
    accepted_mark,
    announce_new,
    restored,
)
from twinbus.store.folder.journal import FILE_HEADER, SegmentFile, segment_numbers, segment_path
from twinbus.store.folder.medium import FolderMedium
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME
from twinbus.store.store_limits import StoreLimits
from twinbus.store.transfer import NUMBERS_SKIPPED

NOBODY = 65_534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stores" / "00"


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    return tmp_path / "known-stores" / "00"


def used(folder: Path, witness: Path) -> None:
    announce_new(witness)
    store = FolderStore(folder, witness=witness)
    holding(store, row(1), row(2))
    store.close()


def refused(folder: Path, witness: Path, match: str) -> None:
    for _ in ("first", "again"):
        with pytest.raises(StoreGone, match=match):
            FolderStore(folder, witness=witness)
    (found,) = check_folder(folder, witness)
    assert (found.file, found.place) == (str(folder), "the folder")
    assert re.search(match, found.what)


def accepted(folder: Path, witness: Path) -> list[int]:
    accept_loss(witness)
    store = FolderStore(folder, witness=witness)
    found = numbers(everything(store))
    if not store.summaries():
        holding(store)
    following = store.summaries()[0].last_sequence_number + 1
    store.commit([Enqueued(HERE, [row(following)])])
    store.close()
    assert not accepted_mark(witness).exists()
    store = FolderStore(folder, witness=witness)
    assert numbers(everything(store)) == [*found, following]
    assert check_folder_after(store, folder, witness) == []
    return found


def check_folder_after(store: FolderStore, folder: Path, witness: Path) -> list[object]:
    store.close()
    return list(check_folder(folder, witness))


def test_a_store_that_was_announced_may_be_empty(folder: Path, witness: Path) -> None:
    announce_new(witness)
    for _ in ("created", "opened again"):
        FolderStore(folder, witness=witness).close()
    assert check_folder(folder, witness) == []


def test_a_folder_that_is_missing_is_refused_and_not_created(folder: Path, witness: Path) -> None:
    used(folder, witness)
    shutil.move(folder.parent, folder.parent.with_name("elsewhere"))
    refused(folder, witness, "missing or empty")
    assert not folder.exists()
    shutil.move(folder.parent.with_name("elsewhere"), folder.parent)
    store = FolderStore(folder, witness=witness)
    assert numbers(everything(store)) == [1, 2]
    store.close()


def test_an_empty_folder_in_the_place_of_a_store_is_refused(folder: Path, witness: Path) -> None:
    used(folder, witness)
    shutil.rmtree(folder)
    folder.mkdir()
    refused(folder, witness, "missing or empty")
    assert accepted(folder, witness) == []


def test_the_folder_of_another_store_is_refused(folder: Path, witness: Path) -> None:
    used(folder, witness)
    used(folder.with_name("01"), witness.with_name("01"))
    shutil.rmtree(folder)
    shutil.move(folder.with_name("01"), folder)
    refused(folder, witness, "another store")


def test_missing_tables_are_refused(folder: Path, witness: Path) -> None:
    used(folder, witness)
    (folder / FILE_NAME).unlink()
    refused(folder, witness, f"{FILE_NAME} is missing")
    assert accepted(folder, witness) == []
    assert list(folder.glob("set-aside-1/journal-*"))


@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_missing_journals_are_refused(folder: Path, witness: Path, is_checkpointed: bool) -> None:
    announce_new(witness)
    store = FolderStore(folder, witness=witness)
    holding(store, row(1), row(2))
    if is_checkpointed:
        store.checkpoint()
    copy = crashed(folder)
    store.close()
    shutil.rmtree(folder)
    shutil.move(copy, folder)
    for number in segment_numbers(folder):
        segment_path(folder, number).unlink()
    with pytest.raises(StoreDamaged, match="is missing") as refused:
        FolderStore(folder, witness=witness)
    assert check_folder(folder, witness) == [Damage(str(folder), "the journal", str(refused.value))]
    assert accepted(folder, witness) == ([1, 2] if is_checkpointed else [])


def with_three_commits(folder: Path, witness: Path) -> None:
    """As a crash leaves them, all in the journal."""
    announce_new(witness)
    store = FolderStore(folder, witness=witness)
    holding(store, row(1))
    for number in (2, 3):
        store.commit([Enqueued(HERE, [row(number)])])
    copy = crashed(folder)
    store.close()
    shutil.rmtree(folder)
    shutil.move(copy, folder)


def ends_of_batches(folder: Path, number: int) -> list[int]:
    segment = SegmentFile.open(folder, number)
    assert segment is not None
    ends = [segment.end, *[batch.place + len(batch.body) for batch in segment.batches()]]
    segment.close()
    return ends


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("behind", ["nothing", "zeros"])
def test_commits_that_are_missing_at_the_end_of_the_journal_are_refused(
    folder: Path, witness: Path, kept: int, behind: str
) -> None:
    with_three_commits(folder, witness)
    (last,) = segment_numbers(folder)
    ends = ends_of_batches(folder, last)
    path = segment_path(folder, last)
    size = path.stat().st_size
    os.truncate(path, ends[kept])
    if behind == "zeros":
        os.truncate(path, size)
    missing = len(ends) - 1 - kept
    before = path.read_bytes()
    for _ in ("first", "again"):
        with pytest.raises(StoreDamaged, match=f"its last {missing} commits are missing"):
            FolderStore(folder, witness=witness)
    assert path.read_bytes() == before
    (found,) = check_folder(folder, witness)
    assert f"its last {missing} commits are missing" in found.what
    accept_loss(witness)
    with closing(FolderStore(folder, witness=witness)) as store:
        assert numbers(everything(store)) == list(range(1, kept + 1))
        if kept:
            assert store.summaries()[0].last_sequence_number == kept + NUMBERS_SKIPPED


def test_a_last_segment_that_is_missing_is_refused(folder: Path, witness: Path) -> None:
    with_two_segments(folder, witness)
    segment_path(folder, 2).unlink()
    with pytest.raises(StoreDamaged, match="commits are missing"):
        FolderStore(folder, witness=witness)
    assert check_folder(folder, witness) != []


def test_a_store_that_was_taken_back_is_refused_until_that_is_said(folder: Path, witness: Path) -> None:
    used(folder, witness)
    shutil.copytree(folder, folder.with_name("yesterday"))
    with closing(FolderStore(folder, witness=witness)) as store:
        store.commit([Enqueued(HERE, [row(3)])])
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("yesterday"), folder)
    with pytest.raises(StoreDamaged, match="run 'twinbus store restored'"):
        FolderStore(folder, witness=witness)
    restored(witness)
    for _ in ("taken back", "opened again"):
        with closing(FolderStore(folder, witness=witness)) as store:
            assert numbers(everything(store)) == [1, 2]


def test_a_witness_that_is_behind_or_cannot_be_read_says_nothing(folder: Path, witness: Path) -> None:
    """It is not synced, so a power cut leaves anything of it."""
    with_three_commits(folder, witness)
    commits = witness.with_name(witness.name + COMMITS_SUFFIX)
    whole = commits.read_bytes()
    flipped = bytes([whole[0] ^ 1, *whole[1:]])
    for found in (b"", bytes(len(whole)), whole[:-1], flipped, None):
        if found is None:
            commits.unlink()
            commits.mkdir()
        else:
            commits.write_bytes(found)
        copy = crashed(folder)
        with closing(FolderStore(copy, witness=witness)) as store:
            assert numbers(everything(store)) == [1, 2, 3]
        shutil.rmtree(copy)


def test_a_loss_of_commits_that_was_accepted_is_not_found_again_after_a_power_cut(
    folder: Path, witness: Path, tmp_path: Path
) -> None:
    with_three_commits(folder, witness)
    (last,) = segment_numbers(folder)
    os.truncate(segment_path(folder, last), ends_of_batches(folder, last)[0])
    disk = LosingDisk(tmp_path)
    with watched(disk):
        accept_loss(witness)
        FolderStore(folder, witness=witness).close()
    with TemporaryDirectory() as elsewhere:
        found = Path(elsewhere) / "found"
        disk.without_power(found, Random(1), ["dropped"])
        FolderStore(found / "stores" / "00", witness=found / "known-stores" / "00").close()


def test_a_segment_that_the_tables_hold_already_is_no_journal(folder: Path, witness: Path) -> None:
    """A crash may leave it behind, and the one after it may be lost."""
    announce_new(witness)
    store = FolderStore(folder, witness=witness)
    holding(store, row(1), row(2))
    left_behind = segment_path(folder, 1).read_bytes()
    store.checkpoint()
    copy = crashed(folder)
    store.close()
    shutil.rmtree(folder)
    shutil.move(copy, folder)
    for number in segment_numbers(folder):
        segment_path(folder, number).unlink()
    segment_path(folder, 1).write_bytes(left_behind)
    with pytest.raises(StoreDamaged, match="is missing"):
        FolderStore(folder, witness=witness)
    assert accepted(folder, witness) == [1, 2]


def test_a_folder_of_a_version_without_identities_is_taken_as_it_is(folder: Path, witness: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1))
    store.close()
    (folder / IDENTITY_NAME).unlink()
    store = FolderStore(folder, witness=witness)
    assert numbers(everything(store)) == [1]
    store.close()
    shutil.rmtree(folder)
    refused(folder, witness, "missing or empty")


def test_an_older_namespace_whose_store_is_missing_is_refused(folder: Path, witness: Path) -> None:
    refused(folder, witness, "its namespace has been in use")


def test_a_damaged_journal_is_served_up_to_the_damage_once_that_is_accepted(folder: Path, witness: Path) -> None:
    announce_new(witness)
    store = FolderStore(folder, witness=witness)
    holding(store, row(1))
    store.commit([Enqueued(HERE, [row(2)])])
    store.commit([Enqueued(HERE, [row(3, b"a damaged one")])])
    store.commit([Enqueued(HERE, [row(4)])])
    copy = crashed(folder)
    store.close()
    shutil.rmtree(folder)
    shutil.move(copy, folder)
    file = segment_path(folder, 1)
    file.write_bytes(file.read_bytes().replace(b"a damaged one", b"A DAMAGED ONE"))
    found = file.read_bytes()
    with pytest.raises(StoreDamaged, match="followed by good ones"):
        FolderStore(folder, witness=witness)
    assert "followed by good ones" in str(check_folder(folder, witness)[0])
    assert accepted(folder, witness) == [1, 2]
    assert (folder / "set-aside-1" / file.name).read_bytes() == found


def with_two_segments(folder: Path, witness: Path) -> None:
    """As a crash leaves it: rows 1, 2 and 3 to 9 in batches of the first segment, 10 and 11 in the second."""
    announce_new(witness)
    store = FolderStore(folder, StoreLimits(segment_entries_max=8), HeldTasks(), witness=witness)
    holding(store, row(1))
    store.commit([Enqueued(HERE, [row(2, b"the second")])])
    store.commit([Enqueued(HERE, [row(number) for number in range(3, 10)])])
    store.commit([Enqueued(HERE, [row(10)])])
    store.commit([Enqueued(HERE, [row(11)])])
    assert segment_numbers(folder) == [1, 2]
    copy = crashed(folder)
    store.close()
    shutil.rmtree(folder)
    shutil.move(copy, folder)


def set_aside(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("set-aside-*/*"))


def held_open(folder: Path) -> list[str]:
    files = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return [file for file in files if file.startswith(str(folder))]


def test_behind_a_damaged_segment_nothing_is_served_once_that_is_accepted(folder: Path, witness: Path) -> None:
    with_two_segments(folder, witness)
    first, second = segment_path(folder, 1), segment_path(folder, 2)
    first.write_bytes(first.read_bytes().replace(b"the second", b"THE SECOND"))
    with pytest.raises(StoreDamaged):
        FolderStore(folder, witness=witness)
    assert accepted(folder, witness) == [1]
    assert set_aside(folder) == [f"set-aside-1/{first.name}", f"set-aside-1/{second.name}"]


def test_a_segment_without_its_header_is_left_out_once_that_is_accepted(folder: Path, witness: Path) -> None:
    with_two_segments(folder, witness)
    second = segment_path(folder, 2)
    second.write_bytes(bytes(FILE_HEADER.size) + second.read_bytes()[FILE_HEADER.size :])
    with pytest.raises(StoreDamaged):
        FolderStore(folder, witness=witness)
    assert accepted(folder, witness) == list(range(1, 10))
    assert set_aside(folder) == [f"set-aside-1/{second.name}"]


def test_a_segment_that_does_not_follow_is_left_out_once_that_is_accepted(folder: Path, witness: Path) -> None:
    with_two_segments(folder, witness)
    first, second = segment_path(folder, 1), segment_path(folder, 2)
    first.write_bytes(first.read_bytes().rstrip(b"\0")[:-1])
    with pytest.raises(StoreDamaged, match="does not follow"):
        FolderStore(folder, witness=witness)
    assert accepted(folder, witness) == [1, 2]
    assert set_aside(folder) == [f"set-aside-1/{second.name}"]


def test_a_segment_that_is_damaged_further_on_is_served_up_to_there_once_that_is_accepted(
    folder: Path, witness: Path
) -> None:
    with_two_segments(folder, witness)
    second = segment_path(folder, 2)
    data = bytearray(second.read_bytes())
    data[len(data.rstrip(b"\0")) - 1] ^= 1
    second.write_bytes(data)
    with pytest.raises(StoreDamaged, match="in the last batch"):
        FolderStore(folder, witness=witness)
    accept_loss(witness)
    store = FolderStore(folder, witness=witness)
    assert numbers(everything(store)) == list(range(1, 11))
    store.close()


def test_without_its_first_segment_a_journal_is_left_out_once_that_is_accepted(folder: Path, witness: Path) -> None:
    with_two_segments(folder, witness)
    segment_path(folder, 1).unlink()
    with pytest.raises((StoreDamaged, StoreGone)):
        FolderStore(folder, witness=witness)
    assert accepted(folder, witness) == []
    assert set_aside(folder) == [f"set-aside-1/{segment_path(folder, 2).name}"]


def test_what_is_set_aside_later_takes_the_place_of_nothing(folder: Path, witness: Path) -> None:
    with_two_segments(folder, witness)
    second = segment_path(folder, 2)
    second.write_bytes(bytes(5_000) + b"newer")
    for number in (1, 2, 3):
        (folder / f"set-aside-{number}").mkdir()
        (folder / f"set-aside-{number}" / second.name).write_bytes(b"older")
    accept_loss(witness)
    FolderStore(folder, witness=witness).close()
    contents = [(folder / f"set-aside-{number}" / second.name).read_bytes()[-5:] for number in (1, 2, 3, 4)]
    assert contents == [b"older", b"older", b"older", b"newer"]


def test_tables_that_are_scribbled_over_are_set_aside_once_that_is_accepted(folder: Path, witness: Path) -> None:
    used(folder, witness)
    (folder / FILE_NAME).write_bytes(b"scribble" * 10_000)
    with pytest.raises(StoreDamaged):
        FolderStore(folder, witness=witness)
    assert check_folder(folder, witness) == [Damage(str(folder / FILE_NAME), "the file", "file is not a database")]
    assert accepted(folder, witness) == []
    assert (folder / "set-aside-1" / FILE_NAME).read_bytes() == b"scribble" * 10_000
    assert not (folder / SALVAGING_NAME).exists()


def test_a_copy_that_somebody_put_beside_a_file_is_left_alone(folder: Path, witness: Path) -> None:
    """As before a repair."""
    with_three_commits(folder, witness)
    (last,) = segment_numbers(folder)
    copies = []
    for path in (segment_path(folder, last), folder / FILE_NAME, witness):
        for copy in (path.with_name(f"{path.name}.bak"), path.with_name(f"{path.name}~")):
            shutil.copy(path, copy)
            copies.append(copy)
    assert check_folder(folder, witness) == []
    assert accepted(folder, witness) == [1, 2, 3]
    assert all(copy.exists() for copy in copies[:2])


def test_a_loss_can_be_accepted_where_even_the_folder_of_the_witnesses_is_gone(tmp_path: Path) -> None:
    witness = tmp_path / "gone" / "00"
    for _ in range(2):
        accept_loss(witness)
        assert accepted_mark(witness).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act for another user")
@pytest.mark.parametrize("lost", ["the folder", "the tables", "a segment", "a batch"])
def test_what_root_repairs_belongs_to_the_owner_of_the_namespace(folder: Path, witness: Path, lost: str) -> None:
    """Who serves it has to read the mark of the loss, and to write what is made."""
    with_three_commits(folder, witness)
    if lost == "the folder":
        shutil.rmtree(folder)
    elif lost == "a batch":
        data = bytearray(segment_path(folder, 1).read_bytes())
        data[ends_of_batches(folder, 1)[1] - 1] ^= 1
        segment_path(folder, 1).write_bytes(data)
    else:
        (folder / FILE_NAME if lost == "the tables" else segment_path(folder, 1)).unlink()
    top = folder.parent.parent
    for each in (top, *top.rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    accept_loss(witness)
    assert {each.stat().st_uid for each in top.rglob("*")} == {NOBODY}
    FolderStore(folder, witness=witness).close()
    assert {each.name for each in top.rglob("*") if each.stat().st_uid != NOBODY} == set()


def test_accepting_a_loss_where_nothing_is_lost_changes_nothing(folder: Path, witness: Path) -> None:
    used(folder, witness)
    assert accepted(folder, witness) == [1, 2]
    store = FolderStore(folder, witness=witness)
    assert numbers(everything(store)) == [1, 2, 3]
    store.close()


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("lost", ["a batch", "a segment", "all segments", "a header"])
def test_numbers_that_are_lost_are_not_given_out_again(
    folder: Path, witness: Path, lost: str, *, is_killed: bool
) -> None:
    """Clients may hold them: of messages that they deferred or scheduled, or have read up to."""
    announce_new(witness)
    store = FolderStore(folder, StoreLimits(segment_entries_max=8), HeldTasks(), witness=witness)
    holding(store, row(1))
    store.checkpoint()
    store.commit([Enqueued(HERE, [row(2, b"the second")])])
    store.commit([Enqueued(HERE, [row(number) for number in range(3, 10)])])
    store.commit([Enqueued(HERE, [row(10)])])
    copy = crashed(folder)
    store.close()
    shutil.rmtree(folder)
    shutil.move(copy, folder)
    first, second = (segment_path(folder, number) for number in segment_numbers(folder))
    if lost == "a batch":
        first.write_bytes(first.read_bytes().replace(b"the second", b"THE SECOND"))
    elif lost == "a header":
        second.write_bytes(bytes(FILE_HEADER.size) + second.read_bytes()[FILE_HEADER.size :])
    else:
        for path in [first, second] if lost == "all segments" else [first]:
            path.unlink()
    accept_loss(witness)
    if is_killed:
        unopened = FolderMedium(folder, witness)
        unopened.hold()
        unopened.release()
        accept_loss(witness)
    store = FolderStore(folder, witness=witness)
    left = store.summaries()[0].last_sequence_number
    assert left - NUMBERS_SKIPPED == numbers(everything(store))[-1]
    store.close()
    store = FolderStore(folder, witness=witness)
    assert store.summaries()[0].last_sequence_number == left
    store.close()


@pytest.mark.parametrize("lost", ["the end of the last segment", "a segment between others"])
def test_that_numbers_may_be_lost_is_noted_before_anything_is_set_aside(folder: Path, witness: Path, lost: str) -> None:
    with_two_segments(folder, witness)
    second = segment_path(folder, 2)
    if lost == "a segment between others":
        second.rename(segment_path(folder, 3))
    else:
        data = bytearray(second.read_bytes())
        data[len(data.rstrip(b"\0")) - 1] ^= 1
        second.write_bytes(data)
    noted: list[list[str]] = []
    go_on_without(folder, lambda: noted.append(set_aside(folder)))
    assert noted == [[]]
    assert len(set_aside(folder)) == 1


def test_a_segment_that_the_tables_hold_already_is_no_loss(folder: Path) -> None:
    """A crash may leave it behind; the one after it follows the tables."""
    store = FolderStore(folder)
    holding(store, row(1))
    left_behind = segment_path(folder, 1).read_bytes()
    store.checkpoint()
    store.commit([Enqueued(HERE, [row(2)])])
    copy = crashed(folder)
    store.close()
    assert segment_numbers(copy) == [2]
    segment_path(copy, 1).write_bytes(left_behind)
    noted: list[str] = []
    go_on_without(copy, lambda: noted.append("lost"))
    assert (noted, set_aside(copy)) == ([], [])


@pytest.mark.parametrize("damage", ["does not follow", "damaged further on"])
def test_what_is_set_aside_is_logged_and_not_held_open(
    folder: Path, witness: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    with_two_segments(folder, witness)
    first, second = segment_path(folder, 1), segment_path(folder, 2)
    if damage == "does not follow":
        first.write_bytes(first.read_bytes().rstrip(b"\0")[:-1])
    else:
        data = bytearray(second.read_bytes())
        data[len(data.rstrip(b"\0")) - 1] ^= 1
        second.write_bytes(data)
    go_on_without(folder)
    (record,) = (record for record in caplog.records if record.message == "file_set_aside")
    assert record.__dict__["fields"] == {"file": str(second), "to": str(folder / "set-aside-1" / second.name)}
    assert held_open(folder) == []


@pytest.mark.parametrize("damage", ["does not follow", "a damaged batch", "a missing segment"])
def test_a_store_that_is_refused_is_not_held_open(folder: Path, witness: Path, damage: str) -> None:
    with_two_segments(folder, witness)
    first = segment_path(folder, 1)
    if damage == "does not follow":
        first.write_bytes(first.read_bytes().rstrip(b"\0")[:-1])
    elif damage == "a damaged batch":
        first.write_bytes(first.read_bytes().replace(b"the second", b"THE SECOND"))
    else:
        first.unlink()
    with pytest.raises(StoreDamaged):
        FolderStore(folder, witness=witness)
    assert held_open(folder) == []
    assert len(check_folder(folder, witness)) == 1
    assert held_open(folder) == []


def test_what_is_set_aside_is_not_found_again_after_a_power_cut(folder: Path, witness: Path, tmp_path: Path) -> None:
    with_two_segments(folder, witness)
    second = segment_path(folder, 2)
    second.write_bytes(bytes(FILE_HEADER.size) + second.read_bytes()[FILE_HEADER.size :])
    with watched(LosingDisk(folder)) as disk:
        go_on_without(folder)
    for seed in range(4):
        found = tmp_path / "found" / str(seed)
        disk.without_power(found, Random(seed), ("dropped",))
        with closing(FolderStore(found)) as store:
            assert numbers(everything(store)) == [*range(1, 10)]


def test_tables_that_lose_their_name_take_no_checkpoint(folder: Path, witness: Path) -> None:
    announce_new(witness)
    store = FolderStore(folder, witness=witness)
    holding(store, row(1))
    (folder / FILE_NAME).rename(folder / "moved")
    with pytest.raises(StoreUnavailable, match="removed while in use"):
        store.checkpoint()
    store.close()
    assert segment_path(folder, 1).stat().st_size > FILE_HEADER.size
    refused(folder, witness, f"{FILE_NAME} is missing")
    (folder / "moved").rename(folder / FILE_NAME)
    store = FolderStore(folder, witness=witness)
    assert numbers(everything(store)) == [1]
    store.close()


def test_that_tables_have_lost_their_name_is_found_when_space_is_given_back(folder: Path) -> None:
    tasks = HeldTasks()
    store = FolderStore(folder, start_task=tasks)
    assert not store.rest()
    (folder / FILE_NAME).rename(folder / "moved")
    tasks.run()
    with pytest.raises(StoreUnavailable, match="removed while in use"):
        store.rest()
    store.close()


def test_a_checkpoint_into_tables_that_lose_their_name_meanwhile_does_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment that it was made of is kept: what is written without a name is gone with the process."""
    store = FolderStore(folder)
    holding(store, row(1))

    def written(*arguments: Any) -> None:
        write_checkpoint(*arguments)
        (folder / FILE_NAME).rename(folder / "moved")

    monkeypatch.setattr(medium, "write_checkpoint", written)
    with pytest.raises(StoreUnavailable, match="removed while in use"):
        store.checkpoint()
    store.close()
    assert segment_path(folder, 1).stat().st_size > FILE_HEADER.size


def test_other_tables_in_the_place_of_those_in_use_take_no_checkpoint(folder: Path) -> None:
    store = FolderStore(folder)
    holding(store, row(1))
    shutil.copy(folder / FILE_NAME, folder / "copy")
    os.replace(folder / "copy", folder / FILE_NAME)
    with pytest.raises(StoreUnavailable, match="removed while in use"):
        store.checkpoint()
    store.close()


@pytest.mark.parametrize("is_witness", [True, False])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_wrong_bit_in_an_identity_is_refused_and_nothing_is_lost_once_that_is_accepted(
    folder: Path, witness: Path, is_witness: bool, bit: int
) -> None:
    used(folder, witness)
    damaged = witness if is_witness else folder / IDENTITY_NAME
    data = bytearray(damaged.read_bytes())
    data[3] ^= 1 << bit
    damaged.write_bytes(data)
    with pytest.raises(StoreGone):
        FolderStore(folder, witness=witness)
    assert accepted(folder, witness) == [1, 2]


def test_a_loss_that_was_accepted_once_is_not_accepted_again_after_a_power_cut(
    tmp_path: Path, folder: Path, witness: Path
) -> None:
    """What is damaged later would be given up without a question."""
    used(folder, witness)
    accept_loss(witness)
    with watched(LosingDisk(tmp_path)) as disk:
        FolderStore(folder, witness=witness).close()
    for seed in range(5):
        with TemporaryDirectory() as other:
            found = Path(other) / "found"
            disk.without_power(found, Random(seed), ("dropped",))
            assert (found / witness.relative_to(tmp_path)).read_bytes() == witness.read_bytes()
            assert not accepted_mark(found / witness.relative_to(tmp_path)).exists()
