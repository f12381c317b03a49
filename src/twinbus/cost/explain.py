"""The life of one message as it was charged: logs and a message id in, every step in order with units and money out.

A message keeps its id in the backlog, on its way home and when it is forwarded, so one id finds all of its steps, in the
logs of both namespaces. A step costs what the operation after all earlier ones of its namespace and month costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from twinbus.cost.prices import Plan
from twinbus.cost.tiers import cost, total
from twinbus.meter import log_format
from twinbus.meter.log_reader import OpenLogs
from twinbus.meter.operation import Cause, Path

if TYPE_CHECKING:
    import pyarrow as pa

STEP_COLUMNS = (
    log_format.AT,
    log_format.NAMESPACE,
    log_format.ENTITY,
    log_format.FRAGMENT,
    log_format.CAUSE,
    log_format.PATH,
    log_format.WHO,
    log_format.BYTES,
    log_format.UNITS,
    log_format.SEQUENCE_NUMBER,
)
CLOCKS_APART = timedelta(seconds=1)
"""Two logs may differ by that: each has its own clock, and writes operations down a little later."""
MEANINGS = {
    (Cause.SEND, Path.PRIMARY): "sent",
    (Cause.SEND, Path.BACKLOG): "sent to a backlog queue: its entity had failed over",
    (Cause.SEND, Path.SYPHON): "sent home by the syphon",
    (Cause.SCHEDULE, Path.PRIMARY): "sent for later",
    (Cause.SCHEDULE, Path.SYPHON): "sent home by the syphon, for later",
    (Cause.RECEIVE, Path.PRIMARY): "received",
    (Cause.RECEIVE, Path.BACKLOG): "received from a backlog queue by something else than a syphon",
    (Cause.RECEIVE, Path.SYPHON): "taken from its backlog queue by the syphon",
    (Cause.FORWARD, Path.PRIMARY): "forwarded by its entity",
    (Cause.PEEK, Path.PRIMARY): "shown by a peek",
}


@dataclass(frozen=True, slots=True)
class Step:
    at: datetime
    namespace: str
    entity: str
    fragment: int
    cause: str
    path: str
    who: str
    bytes: int
    units: int
    sequence_number: int | None
    money: Decimal
    list_money: Decimal

    @property
    def meaning(self) -> str:
        try:
            return MEANINGS[Cause(self.cause), Path(self.path)]
        except (KeyError, ValueError):
            return self.cause.replace("_", " ") + ("" if self.units else ", which is not billed")


@dataclass(frozen=True, slots=True)
class Explanation:
    """`aggregated` are operations on the same entities in these hours of which no message is known, or in the whole log
    where the message was not found: steps may be among them."""

    message_id: str
    steps: Sequence[Step]
    aggregated: int

    @property
    def units(self) -> int:
        return sum(step.units for step in self.steps)

    @property
    def money(self) -> Decimal:
        return total(step.money for step in self.steps)

    @property
    def list_money(self) -> Decimal:
        return total(step.list_money for step in self.steps)

    @property
    def was_failed_over(self) -> bool:
        return any(step.path == Path.BACKLOG for step in self.steps)


def explain(logs: OpenLogs, message_id: str, plan: Plan) -> Explanation:
    import pyarrow.compute as pc

    rows = logs.rows(STEP_COLUMNS, pc.field(log_format.MESSAGE_ID) == message_id).to_pylist()
    steps = [_step(row, _units_before(logs, row), plan) for row in _in_order(rows)]
    return Explanation(message_id, steps, _aggregated(logs, steps))


def _in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By time. What a syphon sent home it had taken before, whatever the clocks of the two namespaces say."""
    ordered: list[dict[str, Any]] = []
    taken, early = 0, None
    for row in _after_their_sends(sorted(rows, key=lambda row: (row[log_format.AT], row[log_format.UNITS] == 0))):
        ordered.append(row)
        if row[log_format.PATH] != Path.SYPHON:
            continue
        if row[log_format.CAUSE] in (Cause.SEND, Cause.SCHEDULE):
            early = None if taken else len(ordered) - 1
            taken = max(0, taken - 1)
        elif row[log_format.CAUSE] == Cause.RECEIVE:
            if early is not None and row[log_format.AT] - ordered[early][log_format.AT] <= CLOCKS_APART:
                ordered.insert(early, ordered.pop())
            else:
                taken += 1
            early = None
    return ordered


def _after_their_sends(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Nothing happens to a message in an entity before it is sent there: a send is written down when it is durable, and a
    receiver that waits may have the message by then."""
    ordered: list[dict[str, Any]] = []
    sent = set[tuple[str, str]]()
    for row in rows:
        place = row[log_format.NAMESPACE], row[log_format.ENTITY]
        ordered.append(row)
        if row[log_format.CAUSE] not in (Cause.SEND, Cause.SCHEDULE):
            continue
        early = [
            index
            for index, other in enumerate(ordered[:-1])
            if (other[log_format.NAMESPACE], other[log_format.ENTITY]) == place
            and row[log_format.AT] - other[log_format.AT] <= CLOCKS_APART
        ]
        if early and place not in sent:
            ordered.insert(early[0], ordered.pop())
        sent.add(place)
    return ordered


def _step(row: dict[str, Any], before: int, plan: Plan) -> Step:
    units = row[log_format.UNITS]
    values = {name: row[name] for name in STEP_COLUMNS}
    return Step(**values, money=cost(plan.operations, before, units), list_money=plan.list_price.cost(units))


def _units_before(logs: OpenLogs, row: dict[str, Any]) -> int:
    """Of the same namespace, from the beginning of the month until this row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    at: datetime = row[log_format.AT]
    month = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    where = (
        (pc.field(log_format.NAMESPACE) == row[log_format.NAMESPACE])
        & (pc.field(log_format.AT) >= pa.scalar(month, pa.timestamp("us", "UTC")))
        & (pc.field(log_format.AT) < pa.scalar(at, pa.timestamp("us", "UTC")))
    )
    return _sum(logs.rows([log_format.UNITS], where), log_format.UNITS)


def _aggregated(logs: OpenLogs, steps: Sequence[Step]) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    where = (
        pc.field(log_format.MESSAGE_ID).is_null()
        & (pc.field(log_format.MESSAGES) > 0)
        & (pc.field(log_format.UNITS) > 0)
    )
    where &= pc.field(log_format.CAUSE) != Cause.PING.value
    if steps:
        times = [step.at for step in steps]
        first, end = _hour(min(times)), _hour(max(times))
        where &= pc.field(log_format.ENTITY).isin([step.entity for step in steps])
        where &= pc.field(log_format.AT) >= pa.scalar(first, pa.timestamp("us", "UTC"))
        where &= pc.field(log_format.AT) < pa.scalar(end + timedelta(hours=1), pa.timestamp("us", "UTC"))
    return _sum(logs.rows([log_format.OPERATIONS], where), log_format.OPERATIONS)


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _sum(table: "pa.Table", name: str) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(table[name]).as_py() or 0)
