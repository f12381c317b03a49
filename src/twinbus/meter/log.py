"""The operations log on disk: operations in, Parquet files out.

<operations>/date=YYYY-MM-DD/hour=HH/<node>-<ulid>.parquet     by the time of the operations, in UTC; zstd
<operations>/date=YYYY-MM-DD/hour=HH/_tmp-…                    being written: readers leave out names that begin with _
<operations>/_spool/<ulid>.spool                               not in Parquet yet (operations_spool)

A file is written whole under its temporary name and then renamed, and never touched again. `op_id` tells operations
apart, so that a row which somebody reads twice is counted once. pyarrow takes its time and memory, so this module is
imported only by who reads or writes Parquet.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from twinbus.clock import Millis
from twinbus.meter import columns
from twinbus.meter.columns import CURRENT_VERSION
from twinbus.meter.operation import Operation
from twinbus.meter.ulid import PLACE_BITS, ulid

FOLDER_NAME = "operations"
HOUR: Millis = 3_600_000
ROWS_PER_GROUP = 50_000

SCHEMA = pa.schema(
    [
        pa.field(columns.OP_ID, pa.string(), nullable=False),
        pa.field(columns.AT, pa.timestamp("us", "UTC"), nullable=False),
        pa.field(columns.NAMESPACE, pa.string(), nullable=False),
        pa.field(columns.ENTITY, pa.string(), nullable=False),
        pa.field(columns.ENTITY_TYPE, pa.string(), nullable=False),
        pa.field(columns.FRAGMENT, pa.int16(), nullable=False),
        pa.field(columns.CAUSE, pa.string(), nullable=False),
        pa.field(columns.OPERATIONS, pa.int64(), nullable=False),
        pa.field(columns.MESSAGES, pa.int64(), nullable=False),
        pa.field(columns.BYTES, pa.int64(), nullable=False),
        pa.field(columns.UNITS, pa.int64(), nullable=False),
        pa.field(columns.PATH, pa.string(), nullable=False),
        pa.field(columns.WHO, pa.string(), nullable=False),
        pa.field(columns.MESSAGE_ID, pa.string()),
        pa.field(columns.SEQUENCE_NUMBER, pa.int64()),
        pa.field(columns.SCHEMA_VERSION, pa.int16(), nullable=False),
    ]
)


def write_operations(folder: Path, namespace: str, name: str, seed: int, operations: Iterable[Operation]) -> list[Path]:
    """One file for each hour there is, all named `name`. The same arguments make the same files again.

    `seed` is drawn once for a run of operations: with the place in it, it makes their ids.
    """
    writers: dict[Millis, _HourFile] = {}
    numbered = enumerate(operations)
    try:
        while chunk := list(islice(numbered, ROWS_PER_GROUP)):
            chunk.sort(key=_hour_of)
            for hour, rows in groupby(chunk, key=_hour_of):
                if hour not in writers:
                    writers[hour] = _HourFile(hour_folder(folder, hour), name)
                writers[hour].write(_batch(namespace, seed, list(rows)))
    except BaseException:
        for writer in writers.values():
            writer.discard()
        raise
    return [writer.finish() for writer in writers.values()]


def hour_folder(folder: Path, at: Millis) -> Path:
    when = datetime.fromtimestamp(at / 1000, UTC)
    return folder / f"date={when:%Y-%m-%d}" / f"hour={when:%H}"


def log_files(folder: Path) -> Iterator[Path]:
    """Those that are whole, oldest hour first."""
    for path in sorted(folder.glob("date=*/hour=*/*.parquet")):
        if not path.name.startswith(("_", ".")):
            yield path


def _hour_of(numbered: tuple[int, Operation]) -> Millis:
    return numbered[1].at // HOUR * HOUR


def _batch(namespace: str, seed: int, rows: Sequence[tuple[int, Operation]]) -> pa.RecordBatch:
    count = len(rows)
    numbers, operations = zip(*rows, strict=True)
    at, cause, entity, fragment, messages, size, units, path, who, message_id, number, kind, times = zip(
        *operations, strict=True
    )
    ids = [ulid(when, seed << PLACE_BITS | place) for when, place in zip(at, numbers, strict=True)]
    values: dict[str, Sequence[object]] = {
        columns.OP_ID: ids,
        columns.AT: [when * 1000 for when in at],
        columns.NAMESPACE: [namespace] * count,
        columns.ENTITY: entity,
        columns.ENTITY_TYPE: kind,
        columns.FRAGMENT: fragment,
        columns.CAUSE: cause,
        columns.OPERATIONS: times,
        columns.MESSAGES: messages,
        columns.BYTES: size,
        columns.UNITS: units,
        columns.PATH: path,
        columns.WHO: who,
        columns.MESSAGE_ID: message_id,
        columns.SEQUENCE_NUMBER: number,
        columns.SCHEMA_VERSION: [CURRENT_VERSION] * count,
    }
    return pa.record_batch([pa.array(values[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


class _HourFile:
    """A file in the making."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{name}.parquet"
        self._draft = folder / f"_tmp-{name}.parquet"
        self._writer = pq.ParquetWriter(self._draft, SCHEMA, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> Path:
        """Durable first: a name that readers see must never stand for half a file."""
        self._writer.close()
        descriptor = os.open(self._draft, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._draft.rename(self._path)
        return self._path

    def discard(self) -> None:
        self._writer.close()
        self._draft.unlink(missing_ok=True)
