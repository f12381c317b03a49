"""How far something had come, beside it: a number in a file of its own, which is written after each change and never synced.

The end of what is written one after the other cannot be missed from the inside: a journal without its last commits, or a copy of
yesterday, looks like one that never had them. So what is lost is told by a witness. It is behind after a power cut, but never ahead
of what is durable, and a process that ends however it does leaves it as it is. One that cannot be read or written says nothing.
"""

import os
import zlib
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

from twinbus.store.folder.journal import give_to_owner, sync_folder

MARK: Final = Struct("=QI")


class CommitMark:
    """`number` is what the file said when it was opened, 0 if it says nothing."""

    def __init__(self, file: Path) -> None:
        self.number = read_mark(file)
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            give_to_owner(self._descriptor, file.parent)

    def set(self, number: int) -> None:
        facts = MARK.pack(number, 0)[:8]
        with suppress(OSError):
            os.pwrite(self._descriptor, facts + MARK.pack(0, zlib.crc32(facts))[8:], 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_mark(file: Path) -> int:
    try:
        data = file.read_bytes()
    except OSError:
        return 0
    number, crc = MARK.unpack(data) if len(data) == MARK.size else (0, 0)
    return number if zlib.crc32(data[:8]) == crc else 0


def remove_mark(file: Path) -> None:
    """What it speaks of is given up, or was taken back on purpose. Durable, as one that comes back would speak of it again."""
    if file.exists():
        file.unlink()
        sync_folder(file.parent)
