"""Charged operations and bytes of every hour that was ever counted, by the driver: the folder of counts in, one row for
each namespace and hour out.

What an hour costs hangs on all that came before it in its month, so these are wanted in every run. Arrow reads them a day
at a time, and sooner than a job on Spark would list the files.
"""

from collections import Counter
from pathlib import Path

from twinbus.cost.month_to_date import HourCount
from twinbus.meter import log_format
from twinbus.pipeline.bill.counts import DATE, HOUR, LOG
from twinbus.pipeline.bill.part_files import part_files, read_parts


def hour_counts(folder: Path) -> list[HourCount]:
    """In no order. Hours of one namespace that are in several logs are added up."""
    units: Counter[tuple[str, str, int]] = Counter()
    size: Counter[tuple[str, str, int]] = Counter()
    for day in sorted(folder.glob(f"{LOG}=*/{DATE}=*")):
        date = day.name.partition("=")[2]
        for namespace, hour, hour_units, hour_bytes in _hours_of(day):
            units[namespace, date, hour] += hour_units
            size[namespace, date, hour] += hour_bytes
    return [HourCount(*key, units[key], size[key]) for key in units]


def _hours_of(day: Path) -> list[tuple[str, int, int, int]]:
    import pyarrow.compute as pc

    # A run that died while it replaced the only hour of a day left none; this one has counted it again, or will.
    if not part_files(day, f"{HOUR}=*"):
        return []
    counts = read_parts(day, f"{HOUR}=*", (log_format.NAMESPACE, HOUR, log_format.UNITS, log_format.BYTES))
    # What is not billed, such as a settlement, moves no message: its bytes say of which size the message was.
    charged = pc.if_else(pc.greater(counts[log_format.UNITS], 0), counts[log_format.BYTES], 0)
    counts = counts.set_column(counts.column_names.index(log_format.BYTES), log_format.BYTES, charged)
    summed = counts.group_by([log_format.NAMESPACE, HOUR]).aggregate(
        [(log_format.UNITS, "sum"), (log_format.BYTES, "sum")]
    )
    names = (log_format.NAMESPACE, HOUR, f"{log_format.UNITS}_sum", f"{log_format.BYTES}_sum")
    rows = zip(*(summed[name].to_pylist() for name in names), strict=True)
    return [(namespace, int(hour), units, size) for namespace, hour, units, size in rows]
