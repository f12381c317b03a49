"""The operations log as Parquet: operations in, one file for each hour out, laid out as `log_format` says.

A file is written completely under a temporary name, then renamed, and never changed again. `op_id` identifies an operation, so
a row that is read twice counts once. pyarrow takes time and memory to import, so only code that reads or writes Parquet
imports this module.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import groupby, islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from twinbus.clock import Millis
from twinbus.meter import log_format
from twinbus.meter.log_format import CURRENT_VERSION, HOUR, hour_folder, ulid
from twinbus.meter.operation import Operation

ROWS_PER_GROUP = 50_000

SCHEMA = pa.schema(
    [
        pa.field(log_format.OP_ID, pa.string(), nullable=False),
        pa.field(log_format.AT, pa.timestamp("us", "UTC"), nullable=False),
        pa.field(log_format.NAMESPACE, pa.string(), nullable=False),
        pa.field(log_format.ENTITY, pa.string(), nullable=False),
        pa.field(log_format.ENTITY_TYPE, pa.string(), nullable=False),
        pa.field(log_format.FRAGMENT, pa.int16(), nullable=False),
        pa.field(log_format.CAUSE, pa.string(), nullable=False),
        pa.field(log_format.OPERATIONS, pa.int64(), nullable=False),
        pa.field(log_format.MESSAGES, pa.int64(), nullable=False),
        pa.field(log_format.BYTES, pa.int64(), nullable=False),
        pa.field(log_format.UNITS, pa.int64(), nullable=False),
        pa.field(log_format.PATH, pa.string(), nullable=False),
        pa.field(log_format.WHO, pa.string(), nullable=False),
        pa.field(log_format.MESSAGE_ID, pa.string()),
        pa.field(log_format.SEQUENCE_NUMBER, pa.int64()),
        pa.field(log_format.SCHEMA_VERSION, pa.int16(), nullable=False),
    ]
)


def write_operations(folder: Path, namespace: str, name: str, seed: int, operations: Iterable[Operation]) -> list[Path]:
    """One file for each hour there is, all named `name`. The same arguments produce the same files again.

    `seed` is generated once for a run of operations; together with the place in the run it forms their ids.
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


def _hour_of(numbered: tuple[int, Operation]) -> Millis:
    return numbered[1].at // HOUR * HOUR


def _batch(namespace: str, seed: int, rows: Sequence[tuple[int, Operation]]) -> pa.RecordBatch:
    count = len(rows)
    numbers, operations = zip(*rows, strict=True)
    at, cause, entity, fragment, messages, size, units, path, who, message_id, number, kind, times = zip(
        *operations, strict=True
    )
    ids = [ulid(when, seed, place) for when, place in zip(at, numbers, strict=True)]
    values: dict[str, Sequence[object]] = {
        log_format.OP_ID: ids,
        log_format.AT: [when * 1000 for when in at],
        log_format.NAMESPACE: [namespace] * count,
        log_format.ENTITY: entity,
        log_format.ENTITY_TYPE: kind,
        log_format.FRAGMENT: fragment,
        log_format.CAUSE: cause,
        log_format.OPERATIONS: times,
        log_format.MESSAGES: messages,
        log_format.BYTES: size,
        log_format.UNITS: units,
        log_format.PATH: path,
        log_format.WHO: who,
        log_format.MESSAGE_ID: message_id,
        log_format.SEQUENCE_NUMBER: number,
        log_format.SCHEMA_VERSION: [CURRENT_VERSION] * count,
    }
    return pa.record_batch([pa.array(values[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


class _HourFile:
    """A file that is being written."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(0o750, parents=True, exist_ok=True)
        self._path = folder / f"{name}.parquet"
        self._draft = folder / f"_tmp-{name}.parquet"
        self._writer = pq.ParquetWriter(self._draft, SCHEMA, compression="zstd", write_page_checksum=True)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> Path:
        """Sync before the rename: a name that readers see must never stand for half a file."""
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
