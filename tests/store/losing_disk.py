"""A disk that loses what was not synced when the power goes, for everything that is written below one folder.

Writes of ours (`os`) and of SQLite (the methods of its files) go to the real files, where everybody reads them, and are noted until a
sync of the file makes them durable. `without_power` makes the folder that would be found afterwards. Of what was written since the last
sync, each write has a fate of its own:

    kept      it reached the disk all the same        torn      some of its sectors did
    dropped   it did not                              garbled   some of its sectors hold something else

Names are durable when their folder is synced: if it was not, the disk has all names as they were before, or all as they are now.
Bytes that were durable and were not changed since are never touched, even if they were written again: as SQLite does by default, the
journal assumes that, since appending writes the rest of the block before it again.
"""

import ctypes
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest

SECTOR = 512
FATES = ("kept", "dropped", "torn", "garbled")
NEW_SIZE = None
"""In the place of the bytes of a write: the file gets the size that the offset says."""


class _File:
    def __init__(self, content: bytes = b"") -> None:
        self.durable = bytearray(content)
        self.written: list[tuple[int, bytes | None]] = []

    def sync(self) -> None:
        for offset, data in self.written:
            _apply(self.durable, offset, data)
        self.written.clear()

    def found(self, random: Random, fates: Sequence[str]) -> bytes:
        content = bytearray(self.durable)
        for offset, data in self.written:
            fate = random.choice(fates)
            if data is None or fate in ("kept", "dropped"):
                if fate != "dropped":
                    _apply(content, offset, data)
                continue
            for start, piece in _sectors(offset, data):
                is_hit = random.random() < 0.5 and content[start : start + len(piece)] != piece
                if fate == "garbled":
                    _apply(content, start, random.randbytes(len(piece)) if is_hit else piece)
                elif not is_hit:
                    _apply(content, start, piece)
        return bytes(content)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is not None:
        content[offset : offset + len(data)] = data


def _sectors(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    start = offset
    while start < offset + len(data):
        end = min(start // SECTOR * SECTOR + SECTOR, offset + len(data))
        yield start, data[start - offset : end - offset]
        start = end


class LosingDisk:
    """Begins with what is in the folder, which is durable. `on_event` is called before every write and every sync."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.on_event: Callable[[], None] = lambda: None
        self._files: dict[int, _File] = {}  # by inode
        self._names: dict[Path, dict[str, int | _File]] = {}
        """By folder: what was there when it was last synced."""
        for folder in [root, *[path for path in root.rglob("*") if path.is_dir()]] if root.exists() else []:
            for entry in os.scandir(folder):
                if entry.is_file():
                    self._files[entry.inode()] = _File(Path(entry.path).read_bytes())
            self._names[folder] = self._listed(folder)

    def without_power(self, found: Path, random: Random, fates: Sequence[str] = FATES) -> None:
        for folder in [self.root, *[path for path in self.root.rglob("*") if path.is_dir()]]:
            here = found / folder.relative_to(self.root)
            here.mkdir(parents=True)
            names = self._names.get(folder, {})
            if "dropped" not in fates or random.random() < 0.5:
                names = self._listed(folder)
            for name, file in names.items():
                if isinstance(file, _File):
                    (here / name).write_bytes(file.found(random, fates))

    def _listed(self, folder: Path) -> dict[str, int | _File]:
        files = [entry for entry in os.scandir(folder) if entry.is_file() and not entry.name.endswith("-shm")]
        return {entry.name: self._files.setdefault(entry.inode(), _File()) for entry in files}

    # What is written

    def created(self, path: Path) -> None:
        """The number of a file that was removed may be that of a new one."""
        self._files[path.stat().st_ino] = _File()

    def wrote(self, inode: int, offset: int, data: bytes | None) -> None:
        self.on_event()
        self._files.setdefault(inode, _File()).written.append((offset, data))

    def synced(self, inode: int) -> None:
        self.on_event()
        self._files.setdefault(inode, _File()).sync()

    def synced_names(self, folder: Path) -> None:
        self.on_event()
        self._names[folder] = self._listed(folder)

    def holds(self, path: str | os.PathLike[str] | None) -> bool:
        return path is not None and str(path).startswith(str(self.root))


@contextmanager
def watched(disk: LosingDisk) -> Iterator[LosingDisk]:
    """Until the end, everything that is written below the folder of the disk is noted."""
    with pytest.MonkeyPatch.context() as patch:
        _watch_calls(disk, patch)
        with _watched_sqlite(disk):
            yield disk


def _watch_calls(disk: LosingDisk, patch: pytest.MonkeyPatch) -> None:
    real = {
        name: getattr(os, name)
        for name in (
            "open",
            "write",
            "pwrite",
            "pwritev",
            "ftruncate",
            "truncate",
            "posix_fallocate",
            "fsync",
            "fdatasync",
        )
    }

    def inode(descriptor: int) -> int | None:
        status = os.fstat(descriptor)
        is_ours = stat.S_ISREG(status.st_mode) and disk.holds(os.readlink(f"/proc/self/fd/{descriptor}"))
        return status.st_ino if is_ours else None

    def note(descriptor: int, offset: int, data: bytes | None) -> None:
        if (number := inode(descriptor)) is not None:
            disk.wrote(number, offset, data)

    def open_(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        is_new = bool(flags & os.O_CREAT) and disk.holds(path) and not os.path.exists(path)
        descriptor: int = real["open"](path, flags, *rest, **named)
        if is_new:
            disk.created(Path(path))
        return descriptor

    def write(descriptor: int, data: bytes) -> int:
        note(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR), bytes(data))
        count: int = real["write"](descriptor, data)
        return count

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        note(descriptor, offset, bytes(data))
        count: int = real["pwrite"](descriptor, data, offset)
        return count

    def pwritev(descriptor: int, pieces: Sequence[bytes], offset: int) -> int:
        note(descriptor, offset, b"".join(pieces))
        count: int = real["pwritev"](descriptor, pieces, offset)
        return count

    def ftruncate(descriptor: int, size: int) -> None:
        note(descriptor, size, NEW_SIZE)
        real["ftruncate"](descriptor, size)

    def truncate(path: Any, size: int) -> None:
        if disk.holds(path):
            disk.wrote(os.stat(path).st_ino, size, NEW_SIZE)
        real["truncate"](path, size)

    def fallocate(descriptor: int, offset: int, size: int) -> None:
        if offset + size > os.fstat(descriptor).st_size:
            note(descriptor, offset + size, NEW_SIZE)
        real["posix_fallocate"](descriptor, offset, size)

    def sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if (number := inode(descriptor)) is not None:
            disk.synced(number)
        elif disk.holds(path) and os.path.isdir(path):
            disk.synced_names(Path(path))

    watched_calls = [open_, write, pwrite, pwritev, ftruncate, truncate, fallocate, sync, sync]
    for name, call in zip(real, watched_calls, strict=True):
        patch.setattr(os, name, call)


# SQLite: the methods of a file are a table of pointers, of which those that write are replaced in every file that is opened.

_METHOD_COUNT = 18
_WRITE, _TRUNCATE, _SYNC = 3, 4, 5
_XOPEN_AT = 40
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_Write = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_Truncate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_Open = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_KEPT: list[Any] = []
"""Callbacks live as long as the process: connections may be closed late."""


def _library() -> Any:
    try:
        library = ctypes.CDLL("libsqlite3.so.0")
    except OSError:
        pytest.skip("SQLite is no library of its own here")
    library.sqlite3_vfs_find.restype = ctypes.c_void_p
    library.sqlite3_libversion.restype = ctypes.c_char_p
    if library.sqlite3_libversion().decode() != sqlite3.sqlite_version or _POINTER != 8:
        pytest.skip("Python has a SQLite of its own")
    return library


@contextmanager
def _watched_sqlite(disk: LosingDisk) -> Iterator[None]:
    place = ctypes.c_void_p.from_address(_library().sqlite3_vfs_find(None) + _XOPEN_AT)
    assert place.value is not None
    original = place.value
    real_open = _Open(original)
    opened = 0

    def open_(vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        nonlocal opened
        opened += 1
        path = None if name is None else ctypes.string_at(name).decode()
        is_new = disk.holds(path) and path is not None and not os.path.exists(path)
        status = int(real_open(vfs, name, file, flags, out))
        if status == 0 and path is not None and disk.holds(path):
            if is_new:
                disk.created(Path(path))
            _replace_methods(disk, Path(path), file)
        return status

    callback = _Open(open_)
    _KEPT.append(callback)
    place.value = ctypes.cast(callback, ctypes.c_void_p).value
    try:
        with TemporaryDirectory() as elsewhere:
            sqlite3.connect(Path(elsewhere) / "tables").close()
        if not opened:
            pytest.skip("Python has a SQLite of its own")
        yield
    finally:
        place.value = original


def _replace_methods(disk: LosingDisk, path: Path, file: int) -> None:
    inode = path.stat().st_ino
    pointer = ctypes.c_void_p.from_address(file)
    assert pointer.value is not None
    table = (ctypes.c_void_p * (_METHOD_COUNT + 1)).from_buffer_copy(
        ctypes.string_at(pointer.value, _POINTER * (_METHOD_COUNT + 1))
    )
    real_write, real_truncate = _Write(table[_WRITE] or 0), _Truncate(table[_TRUNCATE] or 0)
    is_name_synced = False

    def write(file: int, data: int, size: int, offset: int) -> int:
        disk.wrote(inode, offset, ctypes.string_at(data, size))
        return int(real_write(file, data, size, offset))

    def truncate(file: int, size: int) -> int:
        disk.wrote(inode, size, NEW_SIZE)
        return int(real_truncate(file, size))

    def sync(file: int, flags: int) -> int:
        nonlocal is_name_synced
        disk.synced(inode)
        if not is_name_synced and path.name.endswith(("-wal", "-journal")):
            # With the first sync of a log SQLite syncs its folder too.
            is_name_synced = True
            disk.synced_names(path.parent)
        return 0

    callbacks = (_Write(write), _Truncate(truncate), _Sync(sync))
    for index, callback in zip((_WRITE, _TRUNCATE, _SYNC), callbacks, strict=True):
        table[index] = ctypes.cast(callback, ctypes.c_void_p).value
    _KEPT.append((table, callbacks, real_write, real_truncate))
    pointer.value = ctypes.addressof(table)
