"""Goal: files that SQLite keeps are for their owner alone, and making them so costs nobody a lock; small ones are written whole, and an
error says which one it was."""

import os
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.rows import holding, row
from twinbus.store.folder.journal import SPARE_NAME, segment_path
from twinbus.store.folder.private_file import make_private, write_private
from twinbus.store.folder.store import FolderStore
from twinbus.store.folder.tables import FILE_NAME

READ_AND_CLOSE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
connection.close()
"""


def test_a_new_file_and_one_that_was_open_to_others_are_for_their_owner_alone(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.touch(0o644)
    for file in (new, old):
        make_private(file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_everything_that_a_store_keeps_is_for_its_owner_alone(tmp_path: Path) -> None:
    """While it is in use, and wherever others may read what is new."""
    mask = os.umask(0)
    try:
        with closing(FolderStore(tmp_path / "store")) as store:
            holding(store, row(1))
            store.checkpoint()
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "store").iterdir()}
    finally:
        os.umask(mask)
    assert {
        "lock",
        "identity",
        SPARE_NAME,
        FILE_NAME,
        f"{FILE_NAME}-wal",
        segment_path(tmp_path, 2).name,
    } <= modes.keys()
    assert modes == dict.fromkeys(modes, 0o600)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700


def test_a_program_that_looks_into_the_tables_leaves_their_log_to_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = FolderStore(folder)
    holding(store, row(1))
    store.checkpoint()
    log = folder / f"{FILE_NAME}-wal"
    assert log.exists()
    subprocess.run([sys.executable, "-c", READ_AND_CLOSE, folder / FILE_NAME], check=True, timeout=100)
    assert log.exists(), "the last one to close it deletes it, and that is the store"
    store.close()


WRITE_WITHOUT_ROOM = """
import resource, signal, sys
from pathlib import Path
from twinbus.store.folder.journal import SPARE_NAME, segment_path
from twinbus.store.folder.private_file import write_private
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    write_private(Path(sys.argv[1]), "after")
except OSError as fault:
    print(fault)
"""


def test_a_small_file_is_written_whole_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "key.draft").write_text("left by a crash")
    for text in ("one\n", "another one\n"):
        write_private(tmp_path / "key", text)
        assert (tmp_path / "key").read_text() == text
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_small_file_that_finds_no_room_is_named_and_stays_what_it_was(tmp_path: Path) -> None:
    """The system names no file then."""
    write_private(tmp_path / "key", "before")
    command = [sys.executable, "-c", WRITE_WITHOUT_ROOM, str(tmp_path / "key")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == f"[Errno 27] File too large: '{tmp_path / 'key'}'\n"
    assert (tmp_path / "key").read_text() == "before"


def test_what_the_system_names_itself_is_kept(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write_private(tmp_path / "missing" / "key", "text")
    assert raised.value.filename == str(tmp_path / "missing" / "key.draft")
