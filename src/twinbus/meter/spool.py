"""Operations on their way to Parquet: rows are appended to a file and can be read back, even after a crash.

    magic 8, then frames: length 4 | crc32 4 | JSON
    the first frame holds namespace, node, start and seed; every other one is a list of rows

A frame is one write. A process that is killed leaves at most the last frame torn, the rows of the last second, and the reader
drops it. The operating system has everything before it; nothing is synced, so a power failure may lose some seconds more. A
complete frame with a wrong checksum is damage that no crash explains.

The writer holds a lock on the file that ends with its process, so everyone else can tell whether it is still written to.
"""

import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from struct import Struct
from typing import Any

from twinbus.clock import Millis
from twinbus.meter.log_format import ulid
from twinbus.meter.operation import Operation

FOLDER_NAME = "_spool"
SUFFIX = ".spool"
MAGIC = b"TWINBUSO"
FRAME = Struct("=II")
PIECE_COUNT = 100
FRAME_SIZE_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SpoolFacts:
    namespace: str
    node: str  # who writes it
    started_at: Millis
    seed: int

    @property
    def name(self) -> str:
        """Names the spool and all files written from it."""
        return f"{self.node}-{ulid(self.started_at, self.seed)}"


class Spool:
    """A file that rows are appended to. When a write fails it raises OSError, and the file stays as it was before."""

    def __init__(self, operations: Path, facts: SpoolFacts) -> None:
        folder = operations / FOLDER_NAME
        folder.mkdir(0o750, parents=True, exist_ok=True)
        self.path = folder / (facts.name + SUFFIX)
        self.facts = facts
        self.size = 0
        draft = self.path.with_suffix(".new")
        self._descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # It gets its name only once it is locked: nobody may take it for a spool that was left behind.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self._write(MAGIC + _frame([facts.namespace, facts.node, facts.started_at, facts.seed]))
            draft.rename(self.path)
        except OSError:
            os.close(self._descriptor)
            draft.unlink(missing_ok=True)
            raise

    def append(self, rows: Sequence[Operation]) -> None:
        self._write(_frame(rows))

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], self.size + written)
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(data)


class End(Enum):
    WHOLE = "whole"
    TORN = "torn"
    DAMAGED = "damaged"


class SpoolHeld(Exception):
    """Another process still appends to it or rotates it."""


class SpoolReader:
    """Reads back what was appended, and locks the file until it is closed. `end` is known once all rows are read."""

    def __init__(self, path: Path) -> None:
        """Raises SpoolHeld."""
        self.end = End.WHOLE
        self.facts: SpoolFacts | None = None
        """None if the file was cut off before them; then it has no rows either."""
        self._file = path.open("rb")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise SpoolHeld(str(path)) from None
        if (magic := self._file.read(len(MAGIC))) != MAGIC:
            self.end = End.TORN if MAGIC.startswith(magic) else End.DAMAGED
        elif (first := self._next_frame()) is not None:
            self.facts = SpoolFacts(*first)

    def rows(self) -> Iterator[Operation]:
        while self.facts is not None and (frame := self._next_frame()) is not None:
            for row in frame:
                yield Operation(*row)

    def close(self) -> None:
        self._file.close()

    def _next_frame(self) -> list[Any] | None:
        head = self._file.read(FRAME.size)
        if len(head) < FRAME.size:
            self.end = End.TORN if head else End.WHOLE
            return None
        length, checksum = FRAME.unpack(head)
        # Bounded, whatever a bad length says.
        body = self._file.read(min(length, FRAME_SIZE_MAX))
        if len(body) < length:
            self.end = End.TORN
            return None
        if zlib.crc32(body) != checksum:
            self.end = End.DAMAGED
            return None
        found: list[Any] = json.loads(body)
        return found


def spool_files(operations: Path) -> list[Path]:
    """Sorted by name, so those of one node are in the order of their start."""
    return sorted((operations / FOLDER_NAME).glob(f"*{SUFFIX}"))


def _frame(content: Sequence[object]) -> bytes:
    # In pieces: while one piece is encoded, no other thread of the process runs.
    pieces = [
        json.dumps(content[start : start + PIECE_COUNT], separators=(",", ":"))[1:-1]
        for start in range(0, len(content), PIECE_COUNT)
    ]
    body = f"[{','.join(pieces)}]".encode()
    return FRAME.pack(len(body), zlib.crc32(body)) + body
