import errno
import fcntl
import os
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from twinbus.errors import ArgumentError, StoreDamaged, StoreInUse
from twinbus.server.data.copy_marks import read_mark
from twinbus.server.data.data_folder import DataFolder, open_store
from twinbus.server.data.folder_lock import LOCK_NAME, holder_of, take
from twinbus.store.folder.store import FolderStore


def test_a_folder_in_use_is_refused_with_the_process_that_has_it(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "data")
    with pytest.raises(StoreInUse, match=r"in use by process \d+"):
        DataFolder(tmp_path / "data")
    first.close()
    DataFolder(tmp_path / "data").close()


def test_a_folder_can_be_had_although_somebody_looks_whether_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataFolder(tmp_path).close()
    looking = os.open(tmp_path / LOCK_NAME, os.O_RDONLY)
    assert take(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(looking))
    DataFolder(tmp_path).close()


def test_the_holder_of_a_folder_is_known_by_its_lock(tmp_path: Path) -> None:
    assert holder_of(tmp_path / "nowhere") is None
    folder = DataFolder(tmp_path)
    assert holder_of(tmp_path) == os.getpid()
    folder.close()
    assert holder_of(tmp_path) is None
    folder = DataFolder(tmp_path)
    (tmp_path / LOCK_NAME).write_text("")  # it has the lock, and has not said who it is
    assert holder_of(tmp_path) is None
    folder.close()


def test_the_key_is_generated_once_and_readable_by_the_owner_alone(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    key = folder.root_rule(None).primary_key
    assert len(key) == 44
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    folder.close()
    again = DataFolder(tmp_path)
    assert again.root_rule(None).primary_key == key
    with pytest.raises(ArgumentError, match="another key"):
        again.root_rule("SAS_KEY_VALUE")
    again.close()


def test_a_flipped_bit_in_the_key_is_noticed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    key = folder.root_rule(None).primary_key
    whole = (tmp_path / "key").read_bytes()
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        (tmp_path / "key").write_bytes(data)
        try:
            assert folder.root_rule(None).primary_key == key, f"bit {bit % 8} of byte {bit // 8}"
        except StoreDamaged as damage:
            refused = str(damage)
            continue
    assert str(tmp_path / "key") in refused
    folder.close()


@pytest.mark.parametrize("text", ["only a key", "only a key\n"])
def test_a_key_that_a_person_wrote_needs_no_checksum(tmp_path: Path, text: str) -> None:
    folder = DataFolder(tmp_path)
    (tmp_path / "key").write_text(text)
    assert folder.root_rule(None).primary_key == "only a key"
    folder.close()


@pytest.mark.parametrize("text", ["", "x", "3x"])
def test_a_number_of_stores_that_is_not_one_is_damage_with_its_file(tmp_path: Path, text: str) -> None:
    folder = DataFolder(tmp_path)
    folder.store_paths(3)
    (tmp_path / "store-count").write_text(text)
    with pytest.raises(StoreDamaged, match="store-count is damaged"):
        folder.store_paths(3)
    folder.close()


def test_a_flipped_bit_in_the_number_of_stores_is_noticed(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.store_paths(16)
    whole = (tmp_path / "store-count").read_bytes()
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        (tmp_path / "store-count").write_bytes(data)
        with suppress(StoreDamaged):
            assert len(folder.store_paths(16)) == 16
    folder.close()


def test_a_number_of_stores_that_a_person_wrote_needs_no_checksum(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.store_paths(3)
    (tmp_path / "store-count").write_text("3\n")
    assert len(folder.store_paths(3)) == 3
    folder.close()


def test_the_number_of_stores_is_fixed_at_the_first_start(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    assert [path.name for path in folder.store_paths(3)] == ["00", "01", "02"]
    with pytest.raises(ArgumentError, match="--stores 3"):
        folder.store_paths(16)
    folder.close()


def test_a_number_of_stores_that_is_missing_is_not_decided_again(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    for count in (2, 3):  # the first start need not have come to its end
        assert len(folder.store_paths(count)) == count
        (tmp_path / "store-count").unlink()
        assert not folder.was_in_use
    (first, *_) = folder.store_paths(3)
    open_store(first).close()
    (tmp_path / "store-count").unlink()
    assert folder.was_in_use
    with pytest.raises(StoreDamaged, match="store-count is missing, and the namespace has been in use"):
        folder.store_paths(2)
    assert not (tmp_path / "store-count").exists()
    folder.close()


def test_what_is_decided_at_the_first_start_survives_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace that comes back with another key or another number of stores is another namespace."""
    synced_inodes: set[int] = set()
    durable: dict[Path, set[str]] = {}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        status = os.fstat(descriptor)
        synced_inodes.add(status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            folder = Path(os.readlink(f"/dev/fd/{descriptor}"))
            durable[folder] = {
                path.name for path in folder.iterdir() if path.is_dir() or path.stat().st_ino in synced_inodes
            }

    monkeypatch.setattr(os, "fsync", fsync)
    place = tmp_path / "above" / "data"
    folder = DataFolder(place)
    folder.root_rule(None)
    folder.store_paths(3)
    folder.close()
    assert "above" in durable[tmp_path]
    assert "data" in durable[place.parent]
    assert {"key", "store-count", "stores"} <= durable[place]


def test_what_is_created_is_open_to_the_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        folder = DataFolder(tmp_path / "above" / "data")
        (store,) = folder.store_paths(1)
        FolderStore(store).close()
        folder.close()
    finally:
        os.umask(mask)
    for path in (tmp_path / "above", folder.path, store.parent, store):
        assert path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("text", ["", "\n", "  \n"])
def test_a_key_that_is_empty_is_damage_with_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    folder = DataFolder(tmp_path)
    with pytest.raises(StoreDamaged, match=r"key is damaged: it is empty"):
        folder.root_rule(None)
    folder.close()


@pytest.mark.parametrize("found", [bytes(60), b"\xa5" * 60, b"key\x01\n"])
def test_a_key_that_is_no_text_is_damage_with_its_file(tmp_path: Path, found: bytes) -> None:
    """It has no checksum, but nobody wrote it either: a power cut may leave zeros."""
    (tmp_path / "key").write_bytes(found)
    folder = DataFolder(tmp_path)
    with pytest.raises(StoreDamaged, match=r"key is damaged: the key is not the one that was written"):
        folder.root_rule(None)
    folder.close()


WRITE_WITH_LITTLE_ROOM = """
import resource, signal, sys
from pathlib import Path
from twinbus.store.folder.private_file import write_private
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    write_private(Path(sys.argv[1]), "x" * 44)
except OSError as fault:
    print(fault.errno)
"""


def test_a_disk_that_takes_only_a_part_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("the old key\n")
    command = [sys.executable, "-c", WRITE_WITH_LITTLE_ROOM, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{errno.EFBIG}\n"
    assert file.read_text() == "the old key\n"


LOCK_WITHOUT_ROOM = """
import resource, signal, sys
from pathlib import Path
from twinbus.errors import StoreUnavailable
from twinbus.server.data.copy_marks import read_mark
from twinbus.server.data.data_folder import DataFolder, open_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    DataFolder(Path(sys.argv[1]))
except StoreUnavailable as refused:
    sys.stderr.write(str(refused))
"""


def test_a_folder_without_room_for_a_byte_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOCK_WITHOUT_ROOM, str(tmp_path / "data")]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    assert (
        done.stderr
        == f"The data folder {tmp_path}/data cannot be written: File too large. Choose another one with --data."
    )


def test_a_mark_that_is_no_text_is_damage_with_its_file(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.copy_mark_file.write_bytes(b"\xff")
    with pytest.raises(StoreDamaged, match=r"copy\.json is damaged"):
        read_mark(folder.copy_mark(), str(folder.copy_mark_file))
    folder.close()
