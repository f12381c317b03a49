"""Goal: files that SQLite keeps are for their owner alone, and making them so costs nobody a lock."""

import stat
import subprocess
import sys
from pathlib import Path

from tests.contract.rows import holding, row
from twinbus.store.folder.private_file import make_private
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


def test_a_program_that_looks_into_the_tables_leaves_their_log_to_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = FolderStore(folder)
    holding(store, row(1))
    store.checkpoint()
    log = folder / f"{FILE_NAME}-wal"
    assert log.exists()
    subprocess.run([sys.executable, "-c", READ_AND_CLOSE, folder / FILE_NAME], check=True, timeout=20)
    assert log.exists(), "the last one to close it deletes it, and that is the store"
    store.close()
