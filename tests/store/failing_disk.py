"""A disk whose syncs fail and whose power goes, for what a store writes by `os` into one folder.

As on Linux: what is written is in memory, where everybody reads it, until a sync brings it to the disk. A sync that fails
leaves it there and counts it as written, so the next one has nothing to do. Names are durable when their folder is synced.
Files that are written in other ways (the tables) are taken to be durable as they are.
"""

import errno
import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from twinbus.store.folder.journal import NAME_PREFIX, SPARE_NAME

PAGE = 4_096


class FailingDisk:
    """Begins before the folder is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._folder = folder
        self._fails_file = self._fails_folder = False
        self._written: defaultdict[int, set[int]] = defaultdict(set)  # pages by inode
        self._pages: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        self._sizes: dict[int, int] = {}
        self._names: dict[str, int] = {}
        self._pwrite, self._pwritev = os.pwrite, os.pwritev
        for name in ("pwrite", "pwritev"):
            monkeypatch.setattr(os, name, getattr(self, f"_write_{name}"))
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._sync)

    def fail_next_sync_of_a_file(self) -> None:
        self._fails_file = True

    def fail_next_sync_of_the_folder(self) -> None:
        self._fails_folder = True

    def without_power(self) -> Path:
        """The folder as it would be found if the power went now."""
        found = self._folder.with_name(self._folder.name + "-found")
        found.mkdir()
        for path in self._folder.iterdir():
            if not path.name.startswith((NAME_PREFIX, SPARE_NAME)):
                shutil.copy(path, found)
        for name, inode in self._names.items():
            content = bytearray(self._sizes.get(inode, 0))
            for page, data in self._pages[inode].items():
                content[page * PAGE : page * PAGE + len(data)] = data
            (found / name).write_bytes(content)
        return found

    def _write_pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        return self._wrote(descriptor, offset, self._pwrite(descriptor, data, offset))

    def _write_pwritev(self, descriptor: int, pieces: Sequence[bytes], offset: int) -> int:
        return self._wrote(descriptor, offset, self._pwritev(descriptor, pieces, offset))

    def _wrote(self, descriptor: int, offset: int, size: int) -> int:
        pages = range(offset // PAGE, (offset + size - 1) // PAGE + 1)
        self._written[os.fstat(descriptor).st_ino].update(pages)
        return size

    def _sync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISDIR(status.st_mode):
            pages = self._written.pop(status.st_ino, set())
            if self._fails_file:
                self._fails_file = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            kept = {page: data for page, data in self._pages[status.st_ino].items() if page * PAGE < status.st_size}
            kept.update({page: os.pread(descriptor, PAGE, page * PAGE) for page in pages})
            self._pages[status.st_ino], self._sizes[status.st_ino] = kept, status.st_size
        elif status.st_ino == self._folder.stat().st_ino:
            if self._fails_folder:
                self._fails_folder = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            entries = [entry for entry in os.scandir(self._folder) if entry.name.startswith((NAME_PREFIX, SPARE_NAME))]
            self._names = {entry.name: entry.inode() for entry in entries}
