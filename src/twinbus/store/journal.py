"""A journal segment: batches of records in, the same batches back after a crash.

    file header:  magic 8 | segment number 8 | salt 8 | first batch sequence 8 | crc32 4
    batch header: magic 4 | crc32 4 | body length 8 | batch sequence 8 | salt 8, then the body

A batch is one write and one sync, so at most the last batch of the newest segment can be torn,
and it was never acknowledged: it is cut off. A bad batch with a good one behind it is damage
that no crash explains, and nothing is touched then. Where a sync fails, the batch may be read from
memory as if it were on the disk, and no later sync would bring it there: so nothing is appended to a
segment that was opened before its last batch was written once more. The salt is drawn anew for each segment, so
that neither message content nor what a file held before can pass for a batch.

A sync is quick where it changes nothing but the file's own blocks. So space is allocated ahead, and a
file whose segment is in the tables becomes the spare that the next one overwrites: syncs that have to
wait for the file system's own journal also wait for all that a checkpoint writes meanwhile.
"""

import contextlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from twinbus.errors import StoreDamaged, StoreUnavailable

FILE_MAGIC = b"TWINBUSJ"
FILE_HEADER = Struct("=8sQQQI")
BATCH_MAGIC = b"\xabTWB"
BATCH_HEADER = Struct("=4sIQQQ")
CRC_COVERS_FROM = 8
ALLOCATION_MIN = 4 << 20
ALLOCATION_MAX = 32 << 20
SPARE_BYTES_MAX = 64 << 20
SEARCH_STEP = 1 << 20
NAME_PREFIX = "journal-"
SPARE_NAME = "spare"


class Batch(NamedTuple):
    place: int  # where its body begins
    body: bytes


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{NAME_PREFIX}{number:012}"


def segment_numbers(folder: Path) -> list[int]:
    return sorted(int(path.name.removeprefix(NAME_PREFIX)) for path in folder.glob(f"{NAME_PREFIX}*"))


class Segment:
    """One file of the journal; the newest takes batches, an older one only gives them back."""

    def __init__(self, path: Path, descriptor: int, number: int, salt: int, first_sequence: int) -> None:
        self.number = number
        self.end = FILE_HEADER.size
        self.next_sequence = first_sequence
        self._tail = 0  # where the last batch begins that `batches` found, header included; the file's own if none
        self._path = path
        self._descriptor = descriptor
        self._salt = salt
        self._allocated = 0

    @classmethod
    def create(cls, folder: Path, number: int, first_sequence: int) -> "Segment":
        path, spare = segment_path(folder, number), folder / SPARE_NAME
        salt = int.from_bytes(os.urandom(8), "little")
        facts = FILE_HEADER.pack(FILE_MAGIC, number, salt, first_sequence, 0)
        header = FILE_HEADER.pack(FILE_MAGIC, number, salt, first_sequence, zlib.crc32(facts))
        descriptor = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        segment = cls(path, descriptor, number, salt, first_sequence)
        try:
            segment._allocated = os.fstat(descriptor).st_size
            if segment._allocated > SPARE_BYTES_MAX:
                # Not when it retired: somebody may have been reading it then.
                segment._allocated = SPARE_BYTES_MAX
                os.ftruncate(descriptor, SPARE_BYTES_MAX)
            os.pwrite(descriptor, header, 0)
            os.fsync(descriptor)
            spare.rename(path)
            sync_folder(folder)
        except BaseException:
            segment.close()
            raise
        return segment

    @classmethod
    def open(cls, folder: Path, number: int) -> "Segment | None":
        """The segment on disk, or None where its creation was cut short and it never took a batch."""
        path = segment_path(folder, number)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        segment: Segment | None = None
        try:
            header = os.pread(descriptor, FILE_HEADER.size, 0)
            if len(header) == FILE_HEADER.size:
                magic, written_number, salt, first_sequence, crc = FILE_HEADER.unpack(header)
                facts = FILE_HEADER.pack(magic, written_number, salt, first_sequence, 0)
                if (magic, written_number, crc) == (FILE_MAGIC, number, zlib.crc32(facts)):
                    segment = cls(path, descriptor, number, salt, first_sequence)
                    return segment
            is_blank = not any(os.pread(descriptor, SEARCH_STEP, FILE_HEADER.size))
        finally:
            if segment is None:
                os.close(descriptor)
        if is_blank:
            return None
        raise StoreDamaged(f"{path}: the file header is not one of journal segment {number}. Restore the file.")

    @property
    def body_place(self) -> int:
        """Where the body of the next batch will begin."""
        return self.end + BATCH_HEADER.size

    def append(self, body: bytes) -> None:
        """Returns once the batch is on the disk. After a raise it may or may not be."""
        facts = BATCH_HEADER.pack(BATCH_MAGIC, 0, len(body), self.next_sequence, self._salt)
        crc = zlib.crc32(body, zlib.crc32(facts[CRC_COVERS_FROM:]))
        header = BATCH_HEADER.pack(BATCH_MAGIC, crc, len(body), self.next_sequence, self._salt)
        end = self.end + len(header) + len(body)
        if end > self._allocated:
            self._allocate(end + min(max(end, ALLOCATION_MIN), ALLOCATION_MAX))
        self._write([header, body], self.end)
        self._sync()
        # Asked by its name: a file that was asked for its facts has the exact time of its next write noted by Linux, and
        # the sync of that writes the note as well.
        if not os.access(self._path, os.F_OK):
            raise StoreUnavailable(f"{self._path} was removed while in use. Put the folder back and open the store.")
        self.end = end
        self.next_sequence += 1

    def batches(self) -> Iterator[Batch]:
        """Every whole batch in order; leaves `end` behind the last. Raises StoreDamaged.

        If the last one of a finished segment is bad, the segment after it does not follow this one.
        """
        size = os.fstat(self._descriptor).st_size
        while (batch := self._batch_at(self.end, size)) is not None:
            sequence, body = batch
            if sequence != self.next_sequence:
                raise self._damage(f"batch {sequence} stands where {self.next_sequence} belongs")
            place = self.body_place
            self._tail, self.end = self.end, place + len(body)
            self.next_sequence += 1
            yield Batch(place, body)
        if self._has_batch_behind(self.end, size):
            raise self._damage("a bad batch with good ones behind it")

    def renew_tail(self) -> None:
        """Make the last whole batch durable, whatever became of its own sync, and drop what lies behind it, allocated
        space included."""
        os.ftruncate(self._descriptor, self.end)
        tail = self.read(self._tail, self.end - self._tail)
        self._write([tail], self._tail)
        self._sync()
        self._allocated = self.end

    def read(self, place: int, size: int) -> bytes:
        content = os.pread(self._descriptor, size, place)
        if len(content) != size:
            raise StoreUnavailable(
                f"{self._path}: {len(content)} bytes of {size} at offset {place}. Open the store anew."
            )
        return content

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def retire(self) -> None:
        """The tables hold what is in it, and the file may serve again. Who had begun to read it can go on."""
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(self._path.with_name(SPARE_NAME))

    def _write(self, pieces: list[bytes], place: int) -> None:
        size = sum([len(piece) for piece in pieces])
        written = os.pwritev(self._descriptor, pieces, place)
        if written != size:
            raise StoreUnavailable(f"{self._path}: wrote {written} bytes of {size}. Free some space.")

    def _sync(self) -> None:
        # macOS has no fdatasync; the other one does what it does, and more.
        getattr(os, "fdatasync", os.fsync)(self._descriptor)

    def _allocate(self, end: int) -> None:
        # Only speed depends on it: where there is no room ahead, there may still be some for the batch. macOS has no
        # such call.
        if hasattr(os, "posix_fallocate"):
            with contextlib.suppress(OSError):
                os.posix_fallocate(self._descriptor, self.end, end - self.end)
                self._allocated = end

    def _batch_at(self, position: int, size: int) -> tuple[int, bytes] | None:
        header = os.pread(self._descriptor, BATCH_HEADER.size, position)
        if len(header) < BATCH_HEADER.size:
            return None
        magic, crc, length, sequence, salt = BATCH_HEADER.unpack(header)
        if magic != BATCH_MAGIC or salt != self._salt or position + len(header) + length > size:
            return None
        body = os.pread(self._descriptor, length, position + len(header))
        if len(body) != length or crc != zlib.crc32(body, zlib.crc32(header[CRC_COVERS_FROM:])):
            return None
        return sequence, body

    def _has_batch_behind(self, position: int, size: int) -> bool:
        while position < size:
            # Steps overlap by a magic less one byte, so that none is missed on an edge.
            chunk = os.pread(self._descriptor, SEARCH_STEP + len(BATCH_MAGIC) - 1, position)
            found = chunk.find(BATCH_MAGIC)
            while found >= 0:
                if self._batch_at(position + found, size) is not None:
                    return True
                found = chunk.find(BATCH_MAGIC, found + 1)
            position += SEARCH_STEP
        return False

    def _damage(self, what: str) -> StoreDamaged:
        return StoreDamaged(
            f"{self._path}, offset {self.end}: {what}. Nothing was changed; restore the folder from a copy, "
            f"or cut the file at this offset and lose what follows."
        )


def make_folder(folder: Path) -> None:
    """Make it where it is missing, and all above it, each with a name that is durable."""
    missing = [above for above in folder.parents if not above.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for above in (folder, *missing):
        # One that we may enter and not read cannot be synced, and was not made here.
        with contextlib.suppress(PermissionError):
            sync_folder(above.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder as durable as the files behind them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
