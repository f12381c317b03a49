"""Operations to test with."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from twinbus.clock import Millis
from twinbus.meter.log_format import log_files
from twinbus.meter.log_writer import SCHEMA
from twinbus.meter.operation import Cause, Operation
from twinbus.meter.operation import Path as OperationPath

NOON: Millis = 1_700_049_600_000


def operation(at: Millis = NOON, message_id: str | None = "m", **fields: object) -> Operation:
    row = Operation(at, Cause.SEND, "orders", 0, 1, 100, 1, OperationPath.PRIMARY, "tests", message_id, 7)
    return row._replace(**fields)  # type: ignore[arg-type]


def read_log(folder: Path) -> list[dict[str, object]]:
    """All rows, in order of their ids."""
    tables = [pq.read_table(path, schema=SCHEMA, partitioning=None) for path in log_files(folder)]
    rows: list[dict[str, object]] = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(rows, key=lambda row: str(row["op_id"]))
