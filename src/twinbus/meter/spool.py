"""Operations on their way to Parquet: rows in, appended to a file; the same rows back, also after a crash.

    magic 8, then frames: length 4 | crc32 4 | JSON
    the first frame names namespace, node, start and seed; every other one is a list of rows

A frame is one write. Whoever is killed leaves at most the last one torn, and that is cut off: the rows of the last
second. The operating system has all before it; nothing is forced to the disk, so a machine that loses its power may
lose some seconds more. A bad frame that is whole is damage that no crash explains.

Who appends holds the file by a lock that ends with the process, so everybody else can tell whether it is still
written to.
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
from twinbus.meter.operation import Operation
from twinbus.meter.ulid import PLACE_BITS, ulid

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
        """Of the spool and of all files made of it."""
        return f"{self.node}-{ulid(self.started_at, self.seed << PLACE_BITS)}"


class Spool:
    """A file that takes rows. Raises OSError where the disk does; what was to be appended then is not there."""

    def __init__(self, operations: Path, facts: SpoolFacts) -> None:
        folder = operations / FOLDER_NAME
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / (facts.name + SUFFIX)
        self.facts = facts
        self.size = 0
        draft = self.path.with_suffix(".new")
        self._descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # It has its name only when it is held: nobody may take it for one that was left behind.
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
    """Somebody still appends to it, or makes Parquet of it."""


class SpoolReader:
    """Gives back what was appended, and holds the file until it is closed. `end` is known once all rows are read."""

    def __init__(self, path: Path) -> None:
        """Raises SpoolHeld."""
        self.end = End.WHOLE
        self.facts: SpoolFacts | None = None
        """None where the file was cut off before it said so; it has no rows then."""
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
        # No more than there is, whatever a bad length says.
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
    """Those of one node are in the order of their start."""
    return sorted((operations / FOLDER_NAME).glob(f"*{SUFFIX}"))


def _frame(content: Sequence[object]) -> bytes:
    # In pieces: while a piece is encoded, no other thread of the process gets a turn.
    pieces = [
        json.dumps(content[start : start + PIECE_COUNT], separators=(",", ":"))[1:-1]
        for start in range(0, len(content), PIECE_COUNT)
    ]
    body = f"[{','.join(pieces)}]".encode()
    return FRAME.pack(len(body), zlib.crc32(body)) + body
