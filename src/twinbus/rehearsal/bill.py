"""What the rehearsal would have cost: the operations logs of both namespaces in, operations by cause and their price out.

Priced at the list price of the plan, as if the month's included operations were used up: a run of a minute always stays within
them, and a price of zero would tell nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twinbus.client import namespace_http
from twinbus.client.namespace_http import FLUSH_TIMEOUT_S, NamespaceRefused
from twinbus.cost.amounts import money_text
from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.cost.prices import PriceSheet
from twinbus.meter import log_format
from twinbus.meter.operation import Path as MessagePath
from twinbus.rehearsal.stage import Place, Stage

KEYS = (log_format.NAMESPACE, log_format.ENTITY, log_format.CAUSE, log_format.PATH)
SUMS = (log_format.OPERATIONS, log_format.MESSAGES, log_format.UNITS, log_format.BYTES)
READ = (log_format.OP_ID, *KEYS, *SUMS)
PATHS = tuple(MessagePath)


@dataclass(frozen=True, slots=True)
class BillLine:
    """`units` are billable operations: one per started 64 KB of a message."""

    cause: str
    path: str
    operations: int
    messages: int
    units: int


@dataclass(frozen=True, slots=True)
class EntityLine:
    """The share of one entity in a line; `entity` is "" for operations on the namespace itself."""

    namespace: str
    entity: str
    cause: str
    path: str
    operations: int
    messages: int
    units: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Bill:
    """`lines` are the sums of `entities`. `amount` includes the currency, and `basis` says how it was calculated."""

    lines: tuple[BillLine, ...]
    entities: tuple[EntityLine, ...]
    units: int
    amount: str
    basis: str


def bill_of(stage: Stage, prices: Path | None) -> Bill | None:
    """None if nothing is metered, or if pyarrow, which reads the logs, is not installed."""
    if find_spec("pyarrow") is None:
        return None
    logs = [log for place in (stage.primary, stage.secondary) if (log := _flushed(place)) is not None]
    if not logs:
        return None
    rows = (row for log in logs for row in _rows(log))
    return add_up(rows, read_price_sheet(prices), stage.prefix)


def add_up(rows: Iterable[Mapping[str, Any]], sheet: PriceSheet, prefix: str = "") -> Bill:
    """Rows of the operations log, each operation once, of entities whose path begins with `prefix`."""
    entities = _entity_lines(rows, prefix)
    lines = _lines(entities)
    units = sum(line.units for line in lines)
    tier = sheet.plan(None).list_price
    amount = f"{money_text(tier.cost(units))} {sheet.currency}"
    basis = f"{units} operations at {money_text(tier.price)} a million, the list price of {sheet.caption}"
    return Bill(lines, entities, units, amount, basis)


def _entity_lines(rows: Iterable[Mapping[str, Any]], prefix: str) -> tuple[EntityLine, ...]:
    counts: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * len(SUMS))
    seen: set[str] = set()
    for row in rows:
        if row[log_format.OP_ID] in seen or not row[log_format.ENTITY].startswith(prefix):
            continue
        seen.add(row[log_format.OP_ID])
        sums = counts[tuple(row[name] for name in KEYS)]
        for place, name in enumerate(SUMS):
            sums[place] += row[name]
    return tuple(
        EntityLine(namespace, entity, cause, path, *sums)
        for (namespace, entity, cause, path), sums in sorted(counts.items())
    )


def _lines(entities: Iterable[EntityLine]) -> tuple[BillLine, ...]:
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for each in entities:
        sums = counts[each.path, each.cause]
        for place, number in enumerate((each.operations, each.messages, each.units)):
            sums[place] += number
    ordered = sorted(counts.items(), key=lambda item: (PATHS.index(MessagePath(item[0][0])), item[0][1]))
    return tuple(BillLine(cause, path, *sums) for (path, cause), sums in ordered)


def _flushed(place: Place) -> Path | None:
    """The folder of its operations log, flushed; None if it keeps no log or runs on another machine."""
    if place.endpoint is None:
        return None
    try:
        answer = namespace_http.ask(
            place.connection_string, place.endpoint, "POST", "/$meter/flush", timeout_s=FLUSH_TIMEOUT_S
        )
    except NamespaceRefused:
        return None
    folder = Path(answer["operations"])
    return folder if folder.is_dir() else None


def _rows(log: Path) -> Iterable[Mapping[str, Any]]:
    import pyarrow.parquet as pq

    from twinbus.meter.log_format import log_files

    for file in log_files(log):
        yield from pq.read_table(file, columns=list(READ), partitioning=None).to_pylist()
