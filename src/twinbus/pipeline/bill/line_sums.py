"""Sums over lines that Spark has written, by the driver: lines of days in; causes by hour, months and spreadsheets out.

<out>/causes/date=YYYY-MM-DD/lines.parquet      by hour, without entities and fragments
<out>/monthly/month=YYYY-MM/lines.parquet       <out>/csv/daily-YYYY-MM.csv, monthly-YYYY-MM.csv

A month has no more lines than a spreadsheet of its days, and causes are read a day at a time. Arrow adds them up while a
job on Spark would still be planned.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.meter import log_format
from twinbus.pipeline.bill.counts import DATE, HOUR, KEYS, SUMS
from twinbus.pipeline.bill.lines import MONEY_DIGITS, MONEY_SCALE, MONEYS
from twinbus.pipeline.bill.part_files import read_parts

if TYPE_CHECKING:
    import pyarrow as pa

MONTH = "month"
CAUSE_KEYS = (HOUR, log_format.NAMESPACE, log_format.CAUSE, log_format.PATH)
VALUES = (*SUMS, *MONEYS)
LINE = (*KEYS, *VALUES)
FILE_NAME = "lines.parquet"


def write_sums(out: Path, days: Iterable[str]) -> None:
    """Replace the causes of these days, and the months that they are in."""
    changed = sorted(days)
    for day in changed:
        lines = read_parts(out / "hourly", f"{DATE}={day}", (*CAUSE_KEYS, *VALUES))
        _replace(_summed(lines, CAUSE_KEYS), out / "causes" / f"{DATE}={day}")
    for month in sorted({day[:7] for day in changed}):
        daily = read_parts(out / "daily", f"{DATE}={month}-*", (DATE, *LINE))
        monthly = _summed(daily, KEYS)
        _replace(monthly, out / "monthly" / f"{MONTH}={month}")
        _write_csv(daily, DATE, out / "csv" / f"daily-{month}.csv")
        _write_csv(_labelled(monthly, month), MONTH, out / "csv" / f"monthly-{month}.csv")


def _summed(lines: "pa.Table", keys: Sequence[str]) -> "pa.Table":
    import pyarrow as pa

    sums = lines.group_by(list(keys)).aggregate([(name, "sum") for name in VALUES])
    named = sums.select([*keys, *(f"{name}_sum" for name in VALUES)]).rename_columns([*keys, *VALUES])
    money = pa.decimal128(MONEY_DIGITS, MONEY_SCALE)
    types = [money if name in MONEYS else lines.schema.field(name).type for name in named.column_names]
    return named.cast(pa.schema(list(zip(named.column_names, types, strict=True))))


def _replace(lines: "pa.Table", folder: Path) -> None:
    """A run that dies on the way finds the day not priced, and does it again."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / "_tmp-lines"
    pq.write_table(lines, draft, compression="zstd")
    for former in folder.iterdir():
        if former != draft:
            former.unlink()
    draft.rename(folder / FILE_NAME)


def _labelled(monthly: "pa.Table", month: str) -> "pa.Table":
    return monthly.append_column(MONTH, [[month] * monthly.num_rows])


def _write_csv(lines: "pa.Table", period: str, file: Path) -> None:
    """One file for a person's spreadsheet: Spark would make a folder of parts."""
    from pyarrow import csv

    lines = lines.select([period, *LINE]).sort_by([(name, "ascending") for name in (period, *KEYS)])
    for name in MONEYS:
        plain = [f"{amount:f}" for amount in lines[name].to_pylist()]
        lines = lines.set_column(lines.column_names.index(name), name, [plain])
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"_tmp-{file.name}")
    csv.write_csv(lines, draft, csv.WriteOptions(quoting_style="needed"))
    draft.rename(file)
