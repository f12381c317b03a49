"""Rows of operations logs, read without Spark: folders in, an Arrow table with each operation once out."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.errors import ArgumentError, MessagingError
from twinbus.meter import columns
from twinbus.meter.log_files import Healthy, healthy_files, repeating

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression


class ArrowMissing(MessagingError):
    """pyarrow is not installed, which reads Parquet."""


@dataclass(slots=True)
class OpenLogs:
    """Files of some logs that can be read. `twice` are those whose operations have to be compared by id."""

    single: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    sick: dict[str, str] = field(default_factory=dict)

    def rows(self, wanted: Sequence[str], where: "Expression | None" = None) -> "pa.Table":
        """Those columns of the rows that a filter leaves; only they are read."""
        import pyarrow as pa

        tables = [_read(self.single, wanted, where)]
        if self.twice:
            names = list(dict.fromkeys((columns.OP_ID, *wanted)))
            rest = [name for name in names if name != columns.OP_ID]
            grouped = _read(self.twice, names, where).group_by(columns.OP_ID, use_threads=False)
            once = grouped.aggregate([(name, "first") for name in rest]).select(
                [columns.OP_ID, *(f"{name}_first" for name in rest)]
            )
            tables.append(once.rename_columns([columns.OP_ID, *rest]).select(list(wanted)).cast(tables[0].schema))
        return pa.concat_tables(tables)


def open_logs(logs: Sequence[Path]) -> OpenLogs:
    if find_spec("pyarrow") is None:
        raise ArrowMissing("Operations logs are Parquet, and pyarrow is not installed: pip install 'twinbus[spark]'")
    opened = OpenLogs()
    for log in logs:
        if not log.is_dir():
            raise ArgumentError(f"There is no operations log at {log}. Give the folder that has date=… folders in it.")
        healthy, sick = healthy_files(log)
        opened.sick |= {str(log / name): each.reason for name, each in sick.items()}
        hours: dict[str, list[tuple[str, Healthy]]] = defaultdict(list)
        for name, facts in healthy.items():
            hours[name.rpartition("/")[0]].append((name, facts))
        for files in hours.values():
            twice = repeating(files)
            opened.single += [str(log / name) for name, _ in files if name not in twice]
            opened.twice += [str(log / name) for name in sorted(twice)]
    return opened


def _read(files: Sequence[str], wanted: Sequence[str], where: "Expression | None") -> "pa.Table":
    import pyarrow.dataset as ds

    from twinbus.meter.log import SCHEMA

    if not files:
        return SCHEMA.empty_table().select(list(wanted))
    return ds.dataset(list(files), schema=SCHEMA, format="parquet").to_table(columns=list(wanted), filter=where)
