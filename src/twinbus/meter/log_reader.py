"""Reads operations logs without Spark: folders in, an Arrow table with each operation once out."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.errors import ArgumentError, MessagingError
from twinbus.meter import log_format
from twinbus.meter.log_check import Usable, repeating, usable_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression


class ArrowMissing(MessagingError):
    """pyarrow, which reads Parquet, is not installed."""


class LogDamaged(MessagingError):
    """A file of an operations log is not what was written, although its index is."""


@dataclass(slots=True)
class OpenLogs:
    """The usable files of some logs. The operations of those in `twice` have to be compared by id."""

    single: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    unusable: dict[str, str] = field(default_factory=dict)

    def rows(self, wanted: Sequence[str], where: "Expression | None" = None) -> "pa.Table":
        """The wanted columns of the rows that match the filter. Nothing else is read."""
        import pyarrow as pa

        tables = [_read(self.single, wanted, where)]
        if self.twice:
            names = list(dict.fromkeys((log_format.OP_ID, *wanted)))
            rest = [name for name in names if name != log_format.OP_ID]
            grouped = _read(self.twice, names, where).group_by(log_format.OP_ID, use_threads=False)
            once = grouped.aggregate([(name, "first") for name in rest]).select(
                [log_format.OP_ID, *(f"{name}_first" for name in rest)]
            )
            tables.append(once.rename_columns([log_format.OP_ID, *rest]).select(list(wanted)).cast(tables[0].schema))
        return pa.concat_tables(tables)


def open_logs(logs: Sequence[Path]) -> OpenLogs:
    if find_spec("pyarrow") is None:
        raise ArrowMissing("Reading operations logs needs pyarrow: pip install 'twinbus[spark]'")
    opened = OpenLogs()
    for log in logs:
        if not log.is_dir():
            raise ArgumentError(
                f"There is no operations log at {log}. Give the folder that contains the date=… folders."
            )
        usable, unusable = usable_files(log)
        opened.unusable |= {str(log / name): each.reason for name, each in unusable.items()}
        hours: dict[str, list[tuple[str, Usable]]] = defaultdict(list)
        for name, facts in usable.items():
            hours[name.rpartition("/")[0]].append((name, facts))
        for files in hours.values():
            twice = repeating(files)
            opened.single += [str(log / name) for name, _ in files if name not in twice]
            opened.twice += [str(log / name) for name in sorted(twice)]
    return opened


def _read(files: Sequence[str], wanted: Sequence[str], where: "Expression | None") -> "pa.Table":
    import pyarrow as pa
    import pyarrow.dataset as ds

    from twinbus.meter.log_writer import SCHEMA

    if not files:
        return SCHEMA.empty_table().select(list(wanted))
    checked = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    )
    try:
        return ds.dataset(list(files), schema=SCHEMA, format=checked).to_table(columns=list(wanted), filter=where)
    except (pa.ArrowException, OSError) as fault:
        raise LogDamaged(
            f"The operations log is damaged: {fault}. Restore its files, or move the damaged one away."
        ) from None
