"""A journal segment: batches of records in, the same batches back after a crash.

    file header:  magic and version 8 | segment number 8 | salt 8 | first batch sequence 8 | crc32 4
    batch header: magic 4 | crc32 4 | body length 8 | batch sequence 8 | salt 8, then the body

A batch is one write and one sync, so at most the last batch of the newest segment can be torn, and it was never
acknowledged: it is cut off. Everything else is damage that no crash explains; it is reported, and nothing is changed:

  * a bad batch that is followed by a good one, since that one was written after the sync of the bad one;
  * a bad last batch of which a single bit is wrong, in its header or its body: its checksum tells which one. A torn write
    lacks whole sectors of the disk. Of torn batches with n bits that end with what was written, n in 2^32 look the same.

A last batch with more damage than one bit, and nothing behind it, cannot be told from a torn one, and last batches that are missing
cannot be seen; whether they were acknowledged a witness has to say (`commit_mark`). If a sync fails, the batch may still be readable
from the page cache although it is not on the disk, and no later sync writes it: so before anything is appended to a segment that was
opened, its last batch is written once more. The salt is generated for each segment, so that neither message content nor what a file
held before can be taken for a batch.

A sync is fast if it writes nothing but the file's own blocks. So space is allocated ahead, and a file whose segment is in
the tables becomes the spare that the next segment overwrites. Syncs that change a file's metadata have to wait for the
file system's own journal, and with it for everything that a checkpoint writes at the same time.
"""

import contextlib
import errno
import os
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct

from twinbus.errors import StoreDamaged, StoreUnavailable
from twinbus.store.crc32 import crc32
from twinbus.store.folder.flipped_bit import flipped_bit
from twinbus.store.medium import Batch, Body

FILE_MAGIC = b"TWINBUSJ"
"""The last letter is the version of the records: the next one is K."""
FILE_HEADER = Struct("<8sQQQI")
BATCH_MAGIC = b"\xabTWB"
BATCH_HEADER = Struct("<4sIQQQ")
BATCH_START, BATCH_FACTS = Struct("<4sI"), Struct("<QQQ")
"""Its two parts: the checksum in the first one covers the second, and the body."""
CRC_COVERS_FROM = BATCH_START.size
ALLOCATION_MIN = 4 << 20
ALLOCATION_MAX = 32 << 20
ALLOCATION_PART = 16
"""And never more than one part in so many of what is left of the disk."""
KEPT_AHEAD = 256 * 1024
"""Allocated behind the last batch at any time: on a disk that is full there is room for the records of those who remove messages."""
SPARE_BYTES_MAX = 64 << 20
SEARCH_STEP = 1 << 20
BYTES_PER_READ = 96 << 10
"""Below the size from which on the allocator asks the system for fresh memory each time."""
NAME_PREFIX = "journal-"
SEGMENT_NAME = re.compile(f"{NAME_PREFIX}([0-9]{{12,}})")
SPARE_NAME = "spare"


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{NAME_PREFIX}{number:012}"


def segment_numbers(folder: Path) -> list[int]:
    """Only of names that we give: somebody may have put a copy beside a file before repairing it."""
    names = (SEGMENT_NAME.fullmatch(path.name) for path in folder.glob(f"{NAME_PREFIX}*"))
    return sorted(int(name[1]) for name in names if name)


class SegmentFile:
    """One file of the journal; batches are appended to the newest, older ones are only read."""

    def __init__(self, path: Path, descriptor: int, number: int, salt: int, first_sequence: int) -> None:
        self.number = number
        self.end = FILE_HEADER.size
        self.next_sequence = first_sequence
        self._tail = (
            0  # start of the last batch that `batches` found, with its header; 0, the file header, if there is none
        )
        self._path = path
        self._name = str(path)
        self._descriptor = descriptor
        self._salt = salt
        self._allocated = 0

    @classmethod
    def create(cls, folder: Path, number: int, first_sequence: int) -> "SegmentFile":
        path, spare = segment_path(folder, number), folder / SPARE_NAME
        salt = int.from_bytes(os.urandom(8), "little")
        facts = FILE_HEADER.pack(FILE_MAGIC, number, salt, first_sequence, 0)
        header = FILE_HEADER.pack(FILE_MAGIC, number, salt, first_sequence, crc32(facts))
        descriptor = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        segment = cls(path, descriptor, number, salt, first_sequence)
        try:
            give_to_owner(descriptor, folder)
            segment._allocated = os.fstat(descriptor).st_size
            if segment._allocated > SPARE_BYTES_MAX:
                # Not done when it was retired: it may have been read at that time.
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
    def open(cls, folder: Path, number: int) -> "SegmentFile | None":
        """The segment on disk, or None if its creation was interrupted and it never took a batch."""
        path = segment_path(folder, number)
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        segment: SegmentFile | None = None
        try:
            header = os.pread(descriptor, FILE_HEADER.size, 0)
            if len(header) == FILE_HEADER.size:
                magic, written_number, salt, first_sequence, crc = FILE_HEADER.unpack(header)
                facts = FILE_HEADER.pack(magic, written_number, salt, first_sequence, 0)
                if (magic, written_number, crc) == (FILE_MAGIC, number, crc32(facts)):
                    segment = cls(path, descriptor, number, salt, first_sequence)
                    return segment
            is_blank = not any(os.pread(descriptor, SEARCH_STEP, FILE_HEADER.size))
        finally:
            if segment is None:
                os.close(descriptor)
        if is_blank:
            return None
        if header[:7] == FILE_MAGIC[:7] and header[7:8] > FILE_MAGIC[7:]:
            raise StoreDamaged(f"{path} was written by a newer release. Open the store with that release.")
        raise StoreDamaged(f"{path}: the file header is not that of journal segment {number}. Restore the file.")

    @property
    def body_place(self) -> int:
        """Where the body of the next batch will begin."""
        return self.end + BATCH_HEADER.size

    def append(self, bodies: Sequence[Body]) -> None:
        """Returns once the batch is on the disk. If this raises, it may or may not be there."""
        size = sum(map(len, bodies))
        facts = BATCH_FACTS.pack(size, self.next_sequence, self._salt)
        crc = crc32(facts)
        for body in bodies:
            crc = crc32(body, crc)
        header = BATCH_START.pack(BATCH_MAGIC, crc) + facts
        end = self.end + len(header) + size
        if end + KEPT_AHEAD > self._allocated:
            self._allocate(end)
        try:
            self._write([header, *bodies], self.end)
        except OSError:
            # What was written of it is of no use, and on a full disk it takes the room without which the store does not open again.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.end)
            raise
        sync_data(self._descriptor)
        # Checked by name and not with fstat: after an fstat, Linux records the exact time of the next write, and the sync
        # of that write has to write the time as well.
        if not os.access(self._name, os.F_OK):
            raise StoreUnavailable(f"{self._path} was removed while in use. Restore the folder and reopen the store.")
        self.end = end
        self.next_sequence += 1

    def batches(self) -> Iterator[Batch]:
        """Every whole batch in order; leaves `end` after the last. Raises StoreDamaged.

        A bad last batch in a finished segment is noticed by recovery: the next segment does not follow this one then.
        """
        size = os.fstat(self._descriptor).st_size
        while (batch := self._batch_at(self.end, size)) is not None:
            sequence, body = batch
            if sequence != self.next_sequence:
                raise self._damage(f"batch {sequence} is in the place of {self.next_sequence}")
            place = self.body_place
            self._tail, self.end = self.end, place + len(body)
            self.next_sequence += 1
            yield Batch(place, body)
        if self._has_batch_behind(self.end, size):
            raise self._damage("a bad batch is followed by good ones")
        if (wrong := self._wrong_bit(self.end, size)) is not None:
            place, bit = wrong
            raise self._damage(f"bit {bit} of the byte at offset {place} is wrong, in the last batch")

    def check(self, places: Iterable[int], after_each: Callable[[], None] = lambda: None) -> None:
        """Read every batch again in which contents begin at one of these places. Raises StoreDamaged if one is not what was appended, or
        was found when this was opened."""
        wanted = sorted(place for place in places if place > 0)
        position, checked = FILE_HEADER.size, 0
        while checked < len(wanted):
            size = self._batch_size(position)
            end = self.end if size is None else position + size
            if size is None or (wanted[checked] < end and self._batch_at(position, self.end) is None):
                raise StoreDamaged(
                    f"{self._path}, offset {position}: a batch is not what was written. Nothing was changed."
                )
            checked = bisect_left(wanted, end, checked)
            position = end
            after_each()

    def _batch_size(self, position: int) -> int | None:
        """Of the batch at this position, with its header, as that says; None if there is none."""
        header = os.pread(self._descriptor, BATCH_HEADER.size, position)
        if len(header) < BATCH_HEADER.size:
            return None
        magic, _, length, _, salt = BATCH_HEADER.unpack(header)
        size: int = len(header) + length
        return size if (magic, salt) == (BATCH_MAGIC, self._salt) and position + size <= self.end else None

    def renew_tail(self) -> None:
        """Make the last whole batch and the name of the file durable, whether or not their own syncs succeeded, and cut off
        everything after it, including allocated space."""
        os.ftruncate(self._descriptor, self.end)
        tail = self.read(self._tail, self.end - self._tail)
        self._write([tail], self._tail)
        sync_data(self._descriptor)
        sync_folder(self._path.parent)
        self._allocated = self.end

    def read(self, place: int, size: int) -> bytes:
        content = os.pread(self._descriptor, size, place)
        if len(content) != size:
            raise StoreUnavailable(
                f"{self._path}: read {len(content)} bytes of {size} at offset {place}. Reopen the store."
            )
        return content

    def contents(self, places: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Contents that follow each other, as those of a burst do, are read together."""
        run: list[tuple[int, int]] = []
        end = sys.maxsize
        for place, size in places:
            if run and (place != end or end + size - run[0][0] > BYTES_PER_READ):
                yield from self._cut(run)
                run = []
            run.append((place, size))
            end = place + size
        if run:
            yield from self._cut(run)

    def _cut(self, run: list[tuple[int, int]]) -> Iterator[bytes]:
        start = run[0][0]
        piece = self.read(start, run[-1][0] + run[-1][1] - start)
        for place, size in run:
            yield piece[place - start : place - start + size]

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def retire(self) -> None:
        """The file becomes the spare, if it was not removed. Readers that have it open can continue."""
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(self._path.with_name(SPARE_NAME))

    def _write(self, pieces: Sequence[Body], place: int) -> None:
        size = sum(map(len, pieces))
        written = os.pwritev(self._descriptor, pieces, place)
        if written != size:
            # What is left of the disk was taken; the rest would have been refused with this.
            raise OSError(errno.ENOSPC, f"wrote {written} bytes of {size}", self._name)

    def _allocate(self, batch_end: int) -> None:
        # Only speed depends on this: if there is no space to allocate ahead, there may still be enough for the batch.
        # macOS does not have this call.
        if hasattr(os, "posix_fallocate"):
            disk = os.fstatvfs(self._descriptor)
            part_of_disk = disk.f_bavail * disk.f_frsize // ALLOCATION_PART
            ahead = max(KEPT_AHEAD, min(max(batch_end, ALLOCATION_MIN), ALLOCATION_MAX, part_of_disk))
            end = batch_end + KEPT_AHEAD + ahead
            try:
                os.posix_fallocate(self._descriptor, self.end, end - self.end)
            except OSError as error:
                # What is in the spare is of no use to anybody, and on a full disk it may be all the room there is. Where space cannot
                # be allocated at all, the spare is what makes syncs fast.
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    self._path.with_name(SPARE_NAME).unlink(missing_ok=True)
            else:
                self._allocated = end

    def _batch_at(self, position: int, size: int) -> tuple[int, bytes] | None:
        header = os.pread(self._descriptor, BATCH_HEADER.size, position)
        if len(header) < BATCH_HEADER.size:
            return None
        magic, crc, length, sequence, salt = BATCH_HEADER.unpack(header)
        if magic != BATCH_MAGIC or salt != self._salt or position + len(header) + length > size:
            return None
        body = os.pread(self._descriptor, length, position + len(header))
        if len(body) != length or crc != crc32(body, crc32(header[CRC_COVERS_FROM:])):
            return None
        return sequence, body

    def _wrong_bit(self, position: int, size: int) -> tuple[int, int] | None:
        """Offset and bit without whose error there would be a whole batch here, the next one."""
        header = os.pread(self._descriptor, BATCH_HEADER.size, position)
        if len(header) < BATCH_HEADER.size:
            return None
        for bit in range(8 * len(header)):
            changed = bytearray(header)
            changed[bit // 8] ^= 1 << bit % 8
            if (found := self._body_behind(bytes(changed), position, size)) is not None:
                body, crc = found
                if crc == crc32(body, crc32(changed[CRC_COVERS_FROM:])):
                    return position + bit // 8, bit % 8
        if (found := self._body_behind(header, position, size)) is not None:
            body, crc = found
            wrong = flipped_bit(crc ^ crc32(body, crc32(header[CRC_COVERS_FROM:])), len(body))
            if wrong is not None:
                return position + len(header) + wrong.byte, wrong.bit
        return None

    def _body_behind(self, header: bytes, position: int, size: int) -> tuple[bytes, int] | None:
        """What lies where the body of the next batch would, if this were its header; and what its checksum should be."""
        magic, crc, length, sequence, salt = BATCH_HEADER.unpack(header)
        if (magic, sequence, salt) != (BATCH_MAGIC, self.next_sequence, self._salt):
            return None
        place = position + len(header)
        return None if place + length > size else (os.pread(self._descriptor, length, place), crc)

    def _has_batch_behind(self, position: int, size: int) -> bool:
        while position < size:
            # Steps overlap by one byte less than the magic, so that none is missed at the boundary.
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
            "or accept the loss of what follows with 'twinbus store accept-loss'."
        )


FOLDER_MODE = 0o700


def make_folder(folder: Path) -> None:
    """Create the folder and its parents if they are missing, for the owner alone, and make their names durable."""
    missing = [above for above in folder.parents if not above.exists()]
    for each in (*reversed(missing), folder):
        if not each.is_dir():
            each.mkdir(FOLDER_MODE, exist_ok=True)
            give_to_owner(each, each.parent)
    for above in (folder, *missing):
        # A folder that we may enter but not read cannot be synced, and was not created here.
        with contextlib.suppress(PermissionError):
            sync_folder(above.parent)


def give_to_owner(created: int | Path, folder: Path) -> None:
    """What root creates, as in a repair at night, belongs to whom the folder does: that user has to use it next."""
    if os.geteuid() == 0:
        owner = folder.stat()
        # Some file systems know no owners, or let root of another machine change none.
        with contextlib.suppress(PermissionError):
            os.chown(created, owner.st_uid, owner.st_gid)


def sync_data(descriptor: int) -> None:
    """Returns once what was written to the file is on the disk."""
    # macOS has no fdatasync; fsync does the same and more.
    getattr(os, "fdatasync", os.fsync)(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder as durable as the files that they belong to."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
