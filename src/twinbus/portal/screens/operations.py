"""Operations logs of namespaces on this machine, for the bill and for what happened to pairs: folders in, sums out.

Reading Parquet takes time, so everything here runs on a thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from twinbus.cost.month_to_date import MonthBill, month_bill
from twinbus.cost.prices import Plan
from twinbus.errors import EntityNotFound, MessagingError
from twinbus.meter import log_format
from twinbus.meter.log_reader import OpenLogs, open_logs
from twinbus.meter.operation import Cause
from twinbus.meter.operation import Path as Way
from twinbus.portal.visit import Visit

GAP = timedelta(minutes=5)
"""Two minutes with something to tell that are closer than this belong to one event."""
NO_LOG = (
    "There is no operations log on this machine. The bill comes from the logs of namespaces that run here with metering, the "
    "default. For others use 'twinbus cost' or 'twinbus pipeline bill' where the log is."
)


async def log_folders(visit: Visit) -> list[Path]:
    """With everything until now in them. Raises EntityNotFound if there are none.

    Only of namespaces that were found on this machine: another one could name any folder.
    """
    folders = []
    for name in visit.visitor.directory.local():
        try:
            answer = await visit.visitor.directory.get(name).ask("POST", "/$meter/flush")
            folder = Path(str(answer["operations"]))
        except (MessagingError, OSError, KeyError):
            continue
        if folder.is_dir():
            folders.append(folder)
    if not folders:
        raise EntityNotFound(NO_LOG)
    return folders


@dataclass(frozen=True, slots=True)
class BillLine:
    namespace: str
    entity: str
    cause: str
    operations: int
    units: int
    bytes: int
    money: Decimal


@dataclass(frozen=True, slots=True)
class MonthSums:
    bills: Sequence[MonthBill]
    lines: Sequence[BillLine]
    unusable: int


def month_sums(folders: Sequence[Path], plan: Plan, now: datetime) -> MonthSums:
    """This month so far. Money of a line is at the mean price of its namespace; the bills go through the tiers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    logs = open_logs(folders)
    first = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    keys = [log_format.NAMESPACE, log_format.ENTITY, log_format.CAUSE]
    counted = [log_format.OPERATIONS, log_format.UNITS, log_format.BYTES]
    rows = logs.rows([*keys, *counted], pc.field(log_format.AT) >= pa.scalar(first, pa.timestamp("us", "UTC")))
    charged = rows.filter(pc.greater(rows[log_format.UNITS], 0))
    summed = charged.group_by(keys).aggregate([(name, "sum") for name in counted]).to_pylist()
    bills = {}
    for namespace in sorted({row[log_format.NAMESPACE] for row in summed}):
        own = [row for row in summed if row[log_format.NAMESPACE] == namespace]
        units, size = sum(row["units_sum"] for row in own), sum(row["bytes_sum"] for row in own)
        bills[namespace] = month_bill(namespace, f"{first:%Y-%m}", units, size, plan)
    lines = [_line(row, bills[row[log_format.NAMESPACE]]) for row in summed]
    return MonthSums(list(bills.values()), sorted(lines, key=lambda line: -line.units), len(logs.unusable))


def _line(row: dict[str, Any], bill: MonthBill) -> BillLine:
    units, size = row["units_sum"], row["bytes_sum"]
    money = Decimal(0)
    if bill.units:
        money += bill.operations_money * units / bill.units
    if bill.bytes:
        money += bill.bandwidth_money * size / bill.bytes
    names = (row[log_format.NAMESPACE], row[log_format.ENTITY], row[log_format.CAUSE])
    return BillLine(*names, row["operations_sum"], units, size, money)


@dataclass(frozen=True, slots=True)
class PairEvent:
    """A while in which messages went to the backlog, were taken home, or entities were pinged."""

    namespace: str
    start: datetime
    end: datetime
    pings: int
    saved: int
    taken_home: int


def pair_events(folders: Sequence[Path], since: datetime) -> list[PairEvent]:
    """The newest first."""
    import pyarrow as pa
    import pyarrow.compute as pc

    logs: OpenLogs = open_logs(folders)
    where = pc.field(log_format.AT) >= pa.scalar(since, pa.timestamp("us", "UTC"))
    where &= (pc.field(log_format.CAUSE) == Cause.PING.value) | (pc.field(log_format.PATH) != Way.PRIMARY.value)
    names = [
        log_format.AT,
        log_format.NAMESPACE,
        log_format.CAUSE,
        log_format.PATH,
        log_format.MESSAGES,
        log_format.OPERATIONS,
    ]
    rows = sorted(logs.rows(names, where).to_pylist(), key=lambda row: (row[log_format.NAMESPACE], row[log_format.AT]))
    events: list[PairEvent] = []
    for row in rows:
        if row[log_format.CAUSE] == Cause.EMPTY_RECEIVE:
            continue
        pings, saved, home = _counts(row)
        at, last = row[log_format.AT], events[-1] if events else None
        if last is not None and last.namespace == row[log_format.NAMESPACE] and at - last.end <= GAP:
            events[-1] = PairEvent(
                last.namespace, last.start, at, last.pings + pings, last.saved + saved, last.taken_home + home
            )
        elif pings or saved or home:
            events.append(PairEvent(row[log_format.NAMESPACE], at, at, pings, saved, home))
    return sorted(events, key=lambda event: event.start, reverse=True)


def _counts(row: dict[str, Any]) -> tuple[int, int, int]:
    cause, way = row[log_format.CAUSE], row[log_format.PATH]
    if cause == Cause.PING:
        return row[log_format.OPERATIONS], 0, 0
    if way == Way.BACKLOG and cause in (Cause.SEND, Cause.SCHEDULE):
        return 0, row[log_format.MESSAGES], 0
    if way == Way.SYPHON and cause in (Cause.SEND, Cause.SCHEDULE):
        return 0, 0, row[log_format.MESSAGES]
    return 0, 0, 0
