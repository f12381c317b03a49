"""Tables whose structure is damaged: with the loss accepted, every row that can still be read is served, and nothing else."""

import itertools
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.rows import HERE, holding, row
from tests.measured import Measured
from tests.store.losing_disk import LosingDisk, watched
from twinbus.errors import StoreDamaged, StoreUnavailable
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import (
    Change,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    SessionStateSet,
    StoredMessage,
    fragment_key,
)
from twinbus.store.folder import accepted_loss
from twinbus.store.folder import salvage as salvaging
from twinbus.store.folder.accepted_loss import go_on_without
from twinbus.store.folder.journal import FOLDER_MODE
from twinbus.store.folder.salvage import first_readable, salvage
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME, PAGE_BYTES, SCHEMA_VERSION, connect
from twinbus.store.row_ids import COUNTER_MASK
from twinbus.store.store_limits import StoreLimits

COUNT = 1_500
OTHER = fragment_key(9, 0)
ALL = tuple(MessageState)


def content_of(number: int) -> bytes:
    return f"{number}:".encode() * 60


def filled(folder: Path) -> None:
    """Its tables have some dozens of pages; the last few messages are in the journal alone."""
    store = FolderStore(folder, StoreLimits(segment_entries_max=100_000))
    holding(store)
    store.commit([FragmentCreated(OTHER), SessionStateSet(HERE, "s", b"state", 1), DuplicatesSeen(HERE, [("seen", 2)])])
    for first in range(1, COUNT, 100):
        store.commit([Enqueued(HERE, [row(number, content_of(number)) for number in range(first, first + 100)])])
    store.commit([Enqueued(OTHER, [row(number, content_of(number)) for number in range(1, 300)])])
    store.checkpoint()
    store.commit([Enqueued(OTHER, [row(300, content_of(300))])])
    store.close()


def leaf_pages(folder: Path, table: str) -> list[int]:
    connection = sqlite3.connect(folder / FILE_NAME)
    # The pages of a table, by its root: all of them are below it.
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    data = (folder / FILE_NAME).read_bytes()
    found, open_pages = [], [root]
    while open_pages:
        page = open_pages.pop()
        start = (page - 1) * PAGE_BYTES
        if data[start] in (10, 13):
            found.append(page)
        elif data[start] in (2, 5):
            count = int.from_bytes(data[start + 3 : start + 5], "big")
            cells = [int.from_bytes(data[start + 12 + 2 * n : start + 14 + 2 * n], "big") for n in range(count)]
            open_pages += [int.from_bytes(data[start + cell : start + cell + 4], "big") for cell in cells]
            open_pages.append(int.from_bytes(data[start + 8 : start + 12], "big"))
    return sorted(found)


def rows_on(folder: Path, page: int) -> int:
    start = (page - 1) * PAGE_BYTES
    return int.from_bytes((folder / FILE_NAME).read_bytes()[start + 3 : start + 5], "big")


def overwrite(folder: Path, page: int, data: bytes) -> None:
    with open(folder / FILE_NAME, "r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(data)


def read(folder: Path, content: Callable[[int], bytes] = content_of) -> dict[tuple[int, int], StoredMessage]:
    """What a store serves: rows that turn out to be damaged when they are read are set aside, and it is opened again."""
    for _ in range(30):
        store = FolderStore(folder)
        try:
            keys = [summary.fragment for summary in store.summaries()]
            rows = [(key, each) for key in keys for each in store.scan(key, 0, 9_999, 1 << 30, ALL)]
            assert sum(summary.active_count for summary in store.summaries()) == len(rows)
        except StoreUnavailable:
            continue
        finally:
            store.close()
        assert all(each.content == content(each.sequence_number) for _, each in rows)
        return {(key, each.sequence_number): each for key, each in rows}
    raise AssertionError("it is never whole")


def test_what_was_set_aside_before_is_kept_when_tables_are_salvaged(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    filled(folder)
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE messages SET due_at = due_at - 1 WHERE id = (SELECT min(id) FROM messages)")
    with closing(FolderStore(folder)) as store, pytest.raises(StoreUnavailable, match="set aside"):
        store.check(-1)
    pages = leaf_pages(folder, "contents")
    overwrite(folder, pages[len(pages) // 2], b"\xff" * PAGE_BYTES)
    go_on_without(folder)
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        assert connection.execute("SELECT count(*) FROM damaged WHERE place LIKE 'message 1 (%'").fetchone() == (1,)
    with closing(FolderStore(folder)) as store:
        assert store.damage() == [], "its loss was accepted with the rest"


@pytest.mark.parametrize("table", ["messages", "contents"])
def test_a_page_that_is_gone_costs_its_own_rows_alone(tmp_path: Path, table: str) -> None:
    folder = tmp_path / "store"
    filled(folder)
    pages = leaf_pages(folder, table)
    assert len(pages) > 5
    overwrite(folder, pages[len(pages) // 2], b"\xff" * PAGE_BYTES)
    if table == "messages":
        with pytest.raises(StoreDamaged):
            FolderStore(folder)
    go_on_without(folder)
    rows = read(folder)
    assert COUNT + 300 - 400 < len(rows) < COUNT + 300
    assert (OTHER, 300) in rows, "the journal goes on where the tables end"
    store = FolderStore(folder)
    assert store.session_state(HERE, "s") == b"state"
    assert store.duplicates(HERE) == [("seen", 2)]
    store.close()


def large(number: int) -> bytes:
    return bytes([number]) * 3 * PAGE_BYTES


def few(folder: Path, *changes: Change) -> None:
    """Six messages, all of them in the tables."""
    with closing(FolderStore(folder)) as store:
        holding(store, *[row(number, large(number)) for number in range(1, 7)])
        if changes:
            store.commit(changes)
        store.checkpoint()


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        connection.execute(statement)


def salvaged(folder: Path) -> Path:
    fresh = folder.with_name("fresh")
    fresh.mkdir()
    salvage(folder, fresh)
    return fresh


def ids(folder: Path, table: str = "contents") -> list[int]:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        return [number & COUNTER_MASK for (number,) in connection.execute(f"SELECT id FROM {table} ORDER BY id")]


@pytest.mark.parametrize("lost", [[3], [5], [2, 4]])
def test_a_content_on_pages_of_its_own_costs_no_other(tmp_path: Path, lost: list[int]) -> None:
    few(tmp_path / "store")
    data = (tmp_path / "store" / FILE_NAME).read_bytes()
    for number in lost:
        page = data.index(bytes([number]) * (PAGE_BYTES - 4)) // PAGE_BYTES + 1
        overwrite(tmp_path / "store", page, b"\xff" * PAGE_BYTES)
    assert ids(salvaged(tmp_path / "store")) == [number for number in range(1, 7) if number not in lost]


def test_a_page_that_is_gone_is_one_place_of_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows were on it: a limit of places is not one of rows."""
    folder = tmp_path / "store"
    filled(folder)
    pages = leaf_pages(folder, "contents")
    lost = rows_on(folder, pages[len(pages) // 2])
    overwrite(folder, pages[len(pages) // 2], b"\xff" * PAGE_BYTES)
    monkeypatch.setattr(salvaging, "PLACES_MAX", 2)
    assert lost > 10
    assert len(ids(salvaged(folder))) == COUNT + 300 - lost


def test_of_states_of_sessions_those_before_and_behind_the_damage_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    few(folder, *[SessionStateSet(HERE, f"s{number:03}", b"x" * 600, 1) for number in range(200)])
    pages = leaf_pages(folder, "session_states")
    assert len(pages) > 4
    lost = rows_on(folder, pages[len(pages) // 2])
    overwrite(folder, pages[len(pages) // 2], b"\xff" * PAGE_BYTES)
    with closing(sqlite3.connect(salvaged(folder) / FILE_NAME)) as connection:
        found = [key for (key,) in connection.execute("SELECT session_key FROM session_states ORDER BY session_key")]
    assert found[0].upper() == '"S000"'
    assert found[-1].upper() == '"S199"'
    assert len(found) == 200 - lost


def test_a_text_that_cannot_be_written_again_costs_its_row_alone(tmp_path: Path) -> None:
    few(tmp_path / "store")
    change(tmp_path / "store", "UPDATE messages SET session_id = CAST(x'FF' AS TEXT) WHERE id & 255 = 2")
    assert ids(salvaged(tmp_path / "store"), "messages") == [1, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (f"PRAGMA user_version = {SCHEMA_VERSION + 1}", "another version"),
        ("UPDATE fragments SET last_number = 99", "facts of fragment"),
        ("UPDATE journal SET position = position + 1", "position of the journal"),
    ],
)
def test_from_facts_that_are_not_what_was_written_nothing_is_salvaged(
    tmp_path: Path, statement: str, reason: str
) -> None:
    few(tmp_path / "store")
    change(tmp_path / "store", statement)
    with pytest.raises(StoreDamaged, match=reason):
        salvaged(tmp_path / "store")


def test_what_is_salvaged_is_in_the_file_of_the_tables_whoever_looks_into_it(tmp_path: Path) -> None:
    """Not in their log: it does not go where the file goes."""
    few(tmp_path / "store")
    (tmp_path / "fresh").mkdir()
    (tmp_path / "alone").mkdir()
    with closing(connect(tmp_path / "fresh", 1 << 20)) as looking:
        looking.execute("SELECT count(*) FROM sqlite_master").fetchone()
        salvage(tmp_path / "store", tmp_path / "fresh")
        shutil.copy(tmp_path / "fresh" / FILE_NAME, tmp_path / "alone")
    assert ids(tmp_path / "alone") == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("folder", ["salvaged", "set-aside-1"])
def test_what_is_salvaged_and_set_aside_is_for_the_owner_alone(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    few(store)
    overwrite(store, leaf_pages(store, "contents")[0], b"\xff" * PAGE_BYTES)
    with monkeypatch.context() as patched:
        patched.setattr(accepted_loss, "_put_aside", crash)
        with pytest.raises(Crash):
            go_on_without(store)
    if folder == "set-aside-1":
        go_on_without(store)
    assert (store / folder).stat().st_mode & 0o777 == FOLDER_MODE


def test_tables_whose_disk_fails_are_not_set_aside(tmp_path: Path) -> None:
    """They may be as good as before: whoever accepts the loss tries again."""
    folder = tmp_path / "store"
    few(folder)
    (folder / f"{FILE_NAME}-wal").mkdir()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        go_on_without(folder)
    assert not list(folder.glob("set-aside-*"))
    assert (folder / FILE_NAME).exists()


def test_the_file_as_it_was_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    filled(folder)
    page = leaf_pages(folder, "messages")[2]
    overwrite(folder, page, bytes(PAGE_BYTES))
    damaged = (folder / FILE_NAME).read_bytes()
    go_on_without(folder)
    assert (folder / "set-aside-1" / FILE_NAME).read_bytes() == damaged
    assert not (folder / "salvaged").exists()


def test_without_the_facts_of_its_fragments_nothing_is_salvaged(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    filled(folder)
    overwrite(folder, leaf_pages(folder, "fragments")[0], b"\xff" * PAGE_BYTES)
    go_on_without(folder)
    assert not (folder / FILE_NAME).exists()
    assert (folder / "set-aside-1" / FILE_NAME).exists()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(40))
def test_whatever_pages_are_damaged_what_is_served_is_what_was_written(
    tmp_path: Path, seed: int, measured: Measured
) -> None:
    chance = random.Random(seed)
    folder = tmp_path / "store"
    filled(folder)
    page_count = (folder / FILE_NAME).stat().st_size // PAGE_BYTES
    for page in chance.sample(range(2, page_count + 1), chance.randint(1, 4)):
        overwrite(folder, page, chance.choice([bytes(PAGE_BYTES), chance.randbytes(PAGE_BYTES), chance.randbytes(40)]))
    go_on_without(folder)
    if not (folder / FILE_NAME).exists():
        measured("salvaged tables", {"files that had nothing to start from": 1})
        return
    rows = read(folder)
    measured("salvaged tables", {"files": 1, "rows served": len(rows), "rows lost": COUNT + 300 - len(rows)})


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("sidecars", [(), ("-shm", "-wal")], ids=["closed", "with a log"])
def test_a_process_that_ends_while_tables_are_salvaged_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sidecars: tuple[str, ...]
) -> None:
    damaged, expected = tmp_path / "damaged", tmp_path / "expected"
    filled(damaged)
    pages = leaf_pages(damaged, "messages")
    overwrite(damaged, pages[len(pages) // 2], b"\xff" * PAGE_BYTES)
    shutil.copytree(damaged, expected)
    go_on_without(expected)
    wanted = read(expected)
    assert wanted
    rename, moves_left = Path.rename, 0

    def crashing(path: Path, target: Path) -> Path:
        nonlocal moves_left
        if not moves_left:
            raise Crash
        moves_left -= 1
        return rename(path, target)

    for moves in itertools.count():
        folder = tmp_path / str(moves)
        shutil.copytree(damaged, folder)
        for sidecar in sidecars:
            (folder / f"{FILE_NAME}{sidecar}").touch()
        moves_left = moves
        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", crashing)
            try:
                go_on_without(folder)
                break
            except Crash:
                pass
        go_on_without(folder)
        assert read(folder) == wanted
        assert not [path.name for path in folder.iterdir() if path.name.startswith("salvag")]
    assert moves >= 3


def test_a_power_cut_while_tables_are_salvaged_or_afterwards_costs_nothing(tmp_path: Path) -> None:
    folder, wanted = tmp_path / "store", [1, 2, 4, 5, 6]
    few(folder)
    place = (folder / FILE_NAME).read_bytes().index(bytes([3]) * (PAGE_BYTES - 4))
    overwrite(folder, place // PAGE_BYTES + 1, b"\xff" * PAGE_BYTES)
    disk = LosingDisk(folder)
    cuts: list[Path] = []

    def cut() -> None:
        cuts.append(tmp_path / str(len(cuts)))
        disk.without_power(cuts[-1], random.Random(len(cuts)), ["dropped"])

    with watched(disk):
        disk.on_event = cut
        go_on_without(folder)
    for _ in range(4):
        cut()
    assert len(cuts) > 20
    for place, found in enumerate(cuts):
        if place < len(cuts) - 4:
            go_on_without(found)
        assert [number for _, number in read(found, large)] == wanted, place


def test_tables_that_were_put_back_meanwhile_are_not_replaced_by_what_was_salvaged_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process ended after it had salvaged tables; then somebody put back a copy, which is damaged in another place."""
    folder, copy = tmp_path / "store", tmp_path / "copy"
    filled(folder)
    pages = leaf_pages(folder, "messages")
    shutil.copytree(folder, copy)
    overwrite(folder, pages[0], b"\xff" * PAGE_BYTES)
    overwrite(copy, pages[-1], b"\xff" * PAGE_BYTES)
    with monkeypatch.context() as patched:
        patched.setattr(accepted_loss, "_put_aside", crash)
        with pytest.raises(Crash):
            go_on_without(folder)
    assert (folder / "salvaged").exists()
    shutil.copy(copy / FILE_NAME, folder / FILE_NAME)
    go_on_without(folder)
    go_on_without(copy)
    assert read(folder) == read(copy)


def crash(_: Path) -> None:
    raise Crash


@pytest.mark.parametrize("low", range(1, 12))
@pytest.mark.parametrize("first", range(2, 14))
def test_rows_are_read_again_from_the_first_number_behind_the_damage(low: int, first: int) -> None:
    high = 12

    def is_readable(number: int) -> bool:
        assert low < number <= high, "before that there is no damage, and behind it nothing"
        return number >= first

    found = first_readable(is_readable, low, high)
    assert found == max(low + 1, first)
