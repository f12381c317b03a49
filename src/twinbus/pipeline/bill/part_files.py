"""What Spark or the driver has written of a bill, read by the driver: folders named after periods in, one table out.

<folder>/<period>=<value>/*.parquet     the period is a column of the table, as text
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.errors import MessagingError

if TYPE_CHECKING:
    import pyarrow as pa


class BillDamaged(MessagingError):
    """A file that earlier runs have written cannot be read."""


def part_files(folder: Path, periods: str) -> list[str]:
    """Of the periods that a pattern matches, such as date=2026-11-*."""
    return sorted(str(path) for path in folder.glob(f"{periods}/*.parquet"))


def read_parts(folder: Path, periods: str, wanted: Sequence[str] | None = None) -> "pa.Table":
    """All rows of these periods, of which there is one or more; all columns if none are named. Raises BillDamaged."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    hive = ds.partitioning(pa.schema([(periods.partition("=")[0], pa.string())]), flavor="hive")
    parts = part_files(folder, periods)
    try:
        rows = ds.dataset(parts, partition_base_dir=str(folder), partitioning=hive, format="parquet")
        return rows.to_table(columns=None if wanted is None else list(wanted))
    except (pa.ArrowException, OSError) as fault:
        raise BillDamaged(
            f"Files of the bill in {folder} cannot be read: {str(fault).partition(chr(10))[0]} Restore the bill's "
            "folder from a copy, or remove it and bill the logs again."
        ) from None
