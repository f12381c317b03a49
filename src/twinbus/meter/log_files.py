"""Files of an operations log before anybody trusts them: a folder in, those that can be read and those that cannot out.

The writer renames a file when it is whole, so a half-written one is rare: a copy that was cut off, a full disk. A reader
that met one would fail for all, and one that skipped it silently would bill too little. So the end of every file, where
Parquet keeps its index, is looked at first: whether it is there, has the columns, and holds operations of the hour that
the folder names. Only a damaged page in the middle is not seen that way; `check_whole` reads all of a file.

A row that is in two files counts once. Ids of operations begin with their time and go on with the run of the writer that
drew them, so files of different runs share no operation, and the index says which run a file is from: ids have to be
compared only where somebody copied or merged files.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from twinbus.meter import columns
from twinbus.meter.columns import CURRENT_VERSION
from twinbus.meter.ulid import LENGTH as ULID_LENGTH

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

HOUR_FOLDER = re.compile(r"date=(\d{4}-\d\d-\d\d)/hour=(\d\d)")
RUN = slice(10, 20)
"""Of an id: the seed of its run, behind the time, and the two highest bits of its place in the run, which are alike in all
files of less than a billion rows. Where they are not, ids are compared, which is slower and not wrong."""


class LogFile(NamedTuple):
    """A file as the folder lists it. `name` is below the log, such as date=2026-11-15/hour=07/a-01.parquet."""

    name: str
    size: int
    modified_ns: int

    @property
    def hour(self) -> str:
        return self.name.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Healthy:
    """What the index of a file says: how many rows, the lowest and highest id, and the run if it is one."""

    rows: int
    lowest: str
    highest: str
    run: str | None


@dataclass(frozen=True, slots=True)
class Sick:
    """Why a file cannot be billed."""

    reason: str


def list_log(log: Path) -> list[LogFile]:
    """All whole files by name; those that vanish meanwhile are left out."""
    found = []
    for path in sorted(log.glob("date=*/hour=*/*.parquet")):
        name = path.relative_to(log).as_posix()
        if path.name.startswith(("_", ".")) or HOUR_FOLDER.fullmatch(name.rpartition("/")[0]) is None:
            continue
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append(LogFile(name, stat.st_size, stat.st_mtime_ns))
    return found


def hour_of(name: str) -> datetime:
    """The hour that the folder of a file stands for."""
    found = HOUR_FOLDER.match(name)
    assert found is not None
    return datetime.fromisoformat(f"{found[1]}T{found[2]}:00:00+00:00")


def check(log: Path, name: str) -> Healthy | Sick:
    """Look at the index of a file. Costs about a millisecond, however large the file is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(log / name)
        return _wrong_columns(metadata) or _facts(metadata, name)
    except (pa.ArrowException, OSError, ValueError) as fault:
        return Sick(f"is no whole Parquet file: {_first_line(fault)}")


def check_whole(log: Path, name: str) -> Healthy | Sick:
    """Read every page of a file too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = check(log, name)
    if isinstance(found, Sick):
        return found
    try:
        with pq.ParquetFile(log / name) as file:
            for _ in file.iter_batches():
                pass
    except (pa.ArrowException, OSError, ValueError) as fault:
        return Sick(f"is damaged inside: {_first_line(fault)}")
    return found


def healthy_files(log: Path) -> tuple[dict[str, Healthy], dict[str, Sick]]:
    """All files of a log, apart by what `check` says."""
    healthy: dict[str, Healthy] = {}
    sick: dict[str, Sick] = {}
    for file in list_log(log):
        match check(log, file.name):
            case Healthy() as facts:
                healthy[file.name] = facts
            case Sick() as fault:
                sick[file.name] = fault
    return healthy, sick


def repeating(files: Iterable[tuple[str, Healthy]]) -> set[str]:
    """Of the files of one hour, those that may have operations in common or twice."""
    known = [(name, facts) for name, facts in files if facts.rows]
    mixed = [(name, facts) for name, facts in known if facts.run is None]
    runs = Counter(facts.run for _, facts in known)
    found = {name for name, _ in mixed}
    for name, facts in known:
        rivals = mixed if runs[facts.run] == 1 else known
        if any(other != name and _overlap(facts, others) for other, others in rivals):
            found.add(name)
    return found


def _overlap(one: Healthy, other: Healthy) -> bool:
    is_same_run = one.run == other.run or one.run is None or other.run is None
    return is_same_run and one.lowest <= other.highest and other.lowest <= one.highest


def _wrong_columns(metadata: "FileMetaData") -> Sick | None:
    from twinbus.meter.log import SCHEMA

    found = metadata.schema.to_arrow_schema()
    for field in SCHEMA:
        index = found.get_field_index(field.name)
        if index < 0:
            return Sick(f"has no column '{field.name}'")
        if found.field(index).type != field.type:
            return Sick(f"has a column '{field.name}' of {found.field(index).type} instead of {field.type}")
    return None


def _facts(metadata: "FileMetaData", name: str) -> Healthy | Sick:
    try:
        hour = hour_of(name)
    except ValueError:
        return Sick("is in a folder that names no hour of any day")
    if metadata.num_rows == 0:
        return Healthy(0, "", "", None)
    times = list(_bounds(metadata, columns.AT))
    ids = [bound for bound in _bounds(metadata, columns.OP_ID) if isinstance(bound, str)]
    versions = list(_bounds(metadata, columns.SCHEMA_VERSION))
    if not times or not ids or not versions:
        return Sick("has no statistics in its index; write it with them")
    if max(versions) > CURRENT_VERSION:
        return Sick(f"was written by a newer twinbus (version {max(versions)} of the columns); upgrade this one")
    if min(times).astimezone(UTC) < hour or max(times).astimezone(UTC) >= hour + timedelta(hours=1):
        return Sick(f"holds operations from {min(times)} to {max(times)}, which is not the hour of its folder")
    return Healthy(metadata.num_rows, min(ids), max(ids), _run(ids))


def _bounds(metadata: "FileMetaData", column: str) -> Iterator[Any]:
    """Lowest and highest value of each row group."""
    index = metadata.schema.to_arrow_schema().get_field_index(column)
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(index).statistics
        if statistics is not None and statistics.has_min_max:
            yield statistics.min
            yield statistics.max


def _run(ids: Sequence[str]) -> str | None:
    runs = {each[RUN] if len(each) == ULID_LENGTH else None for each in ids}
    return runs.pop() if len(runs) == 1 else None


def _first_line(fault: Exception) -> str:
    return (str(fault).strip().splitlines() or [type(fault).__name__])[0]
