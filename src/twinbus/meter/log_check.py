"""Checks the files of an operations log before they are read: a folder in, the usable and the unusable files out.

The writer renames a file when it is complete, so a half-written one is rare: an interrupted copy, a full disk. One such file
would make a reader fail altogether, and skipping it silently would bill too little. So the end of every file, where Parquet
keeps its index, is checked first: whether it is there, has the columns, and holds operations of the hour in the folder name.
This misses only a damaged page in the middle; `check_whole` reads the whole file.

A row that is in two files counts once. An id begins with the time of its operation, followed by the seed of the writer's run,
so files of different runs never share an operation, and the index says which run a file comes from. Ids have to be compared
only where somebody copied or merged files.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.meter import log_format
from twinbus.meter.log_format import CURRENT_VERSION, ID_LENGTH, hour_of, log_files

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

RUN = slice(10, 20)
"""The part of an id after the time: the seed of its run and the two highest bits of its place in the run, which are equal in
all files of less than a billion rows. Where they differ, ids are compared, which is slower but also correct."""


class LogFile(NamedTuple):
    """A file as the folder lists it. `name` is relative to the log, such as date=2026-11-15/hour=07/a-01.parquet."""

    name: str
    size: int
    modified_ns: int

    @property
    def hour(self) -> str:
        return self.name.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Usable:
    """What the index of a file says: the number of rows, the lowest and highest id, and the run if there is only one."""

    rows: int
    lowest: str
    highest: str
    run: str | None


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a file cannot be billed."""

    reason: str


def list_log(log: Path) -> list[LogFile]:
    """All complete files by name. A file that disappears in the meantime is omitted."""
    found = []
    for path in log_files(log):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append(LogFile(path.relative_to(log).as_posix(), stat.st_size, stat.st_mtime_ns))
    return found


def check(log: Path, name: str) -> Usable | Unusable:
    """Check the index of a file. Takes about a millisecond, however large the file is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(log / name)
        return _wrong_columns(metadata) or _facts(metadata, name)
    except (pa.ArrowException, OSError, ValueError) as fault:
        return Unusable(f"is not a complete Parquet file: {_first_line(fault)}")


def check_whole(log: Path, name: str) -> Usable | Unusable:
    """Also read every page of the file, and compare its checksum."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = check(log, name)
    if isinstance(found, Unusable):
        return found
    try:
        with pq.ParquetFile(log / name, page_checksum_verification=True) as file:
            for _ in file.iter_batches():
                pass
    except (pa.ArrowException, OSError, ValueError) as fault:
        return Unusable(f"is damaged inside: {_first_line(fault)}")
    return found


def usable_files(log: Path) -> tuple[dict[str, Usable], dict[str, Unusable]]:
    """All files of a log, separated by what `check` says."""
    usable: dict[str, Usable] = {}
    unusable: dict[str, Unusable] = {}
    for file in list_log(log):
        match check(log, file.name):
            case Usable() as facts:
                usable[file.name] = facts
            case Unusable() as fault:
                unusable[file.name] = fault
    return usable, unusable


def repeating(files: Iterable[tuple[str, Usable]]) -> set[str]:
    """Of the files of one hour, those that may contain the same operation twice or share one with another file."""
    known = [(name, facts) for name, facts in files if facts.rows]
    mixed = [(name, facts) for name, facts in known if facts.run is None]
    runs = Counter(facts.run for _, facts in known)
    found = {name for name, _ in mixed}
    for name, facts in known:
        rivals = mixed if runs[facts.run] == 1 else known
        if any(other != name and _overlap(facts, others) for other, others in rivals):
            found.add(name)
    return found


def _overlap(one: Usable, other: Usable) -> bool:
    is_same_run = one.run == other.run or one.run is None or other.run is None
    return is_same_run and one.lowest <= other.highest and other.lowest <= one.highest


def _wrong_columns(metadata: "FileMetaData") -> Unusable | None:
    from twinbus.meter.log_writer import SCHEMA

    found = metadata.schema.to_arrow_schema()
    for field in SCHEMA:
        index = found.get_field_index(field.name)
        if index < 0:
            return Unusable(f"has no column '{field.name}'")
        if found.field(index).type != field.type:
            return Unusable(f"has a column '{field.name}' of {found.field(index).type} instead of {field.type}")
    return None


def _facts(metadata: "FileMetaData", name: str) -> Usable | Unusable:
    try:
        hour = hour_of(name)
    except ValueError:
        return Unusable("is in a folder whose name is not an hour of any day")
    if metadata.num_rows == 0:
        return Usable(0, "", "", None)
    times = list(_bounds(metadata, log_format.AT))
    ids = [bound for bound in _bounds(metadata, log_format.OP_ID) if isinstance(bound, str)]
    versions = list(_bounds(metadata, log_format.SCHEMA_VERSION))
    if not times or not ids or not versions:
        return Unusable("has no statistics in its index; write it with them")
    if max(versions) > CURRENT_VERSION:
        return Unusable(f"was written by a newer twinbus (version {max(versions)} of the columns); upgrade this one")
    if min(times).astimezone(UTC) < hour or max(times).astimezone(UTC) >= hour + timedelta(hours=1):
        return Unusable(f"holds operations from {min(times)} to {max(times)}, which is not the hour of its folder")
    return Usable(metadata.num_rows, min(ids), max(ids), _run(ids))


def _bounds(metadata: "FileMetaData", column: str) -> Iterator[Any]:
    """Lowest and highest value of each row group."""
    index = metadata.schema.to_arrow_schema().get_field_index(column)
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(index).statistics
        if statistics is not None and statistics.has_min_max:
            yield statistics.min
            yield statistics.max


def _run(ids: Sequence[str]) -> str | None:
    runs = {each[RUN] if len(each) == ID_LENGTH else None for each in ids}
    return runs.pop() if len(runs) == 1 else None


def _first_line(fault: Exception) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
