"""Rows of one month for its summary, read by the driver from what Spark has summed: some thousands at most for causes, and
as many as there are fragments of entities."""

from pathlib import Path
from typing import Any

from twinbus.cost.bill_rows import CauseRow, EntityRow
from twinbus.pipeline.bill.part_files import read_parts

ENTITY_SUMS = ("operations", "messages", "bytes", "units", "operations_money", "bandwidth_money")


def cause_rows(out: Path, month: str) -> list[CauseRow]:
    table = read_parts(out / "causes", f"date={month}-*").select(list(CauseRow._fields))
    return [CauseRow(**row) for row in table.to_pylist()]


def entity_rows(out: Path, month: str) -> list[EntityRow]:
    table = read_parts(out / "monthly", f"month={month}")
    keys = ["namespace", "entity", "entity_type", "fragment"]
    summed = table.group_by(keys).aggregate([(name, "sum") for name in ENTITY_SUMS])
    return [_entity_row(row) for row in summed.to_pylist()]


def _entity_row(row: dict[str, Any]) -> EntityRow:
    return EntityRow(
        namespace=row["namespace"],
        entity=row["entity"],
        entity_type=row["entity_type"],
        fragment=row["fragment"],
        operations=row["operations_sum"],
        messages=row["messages_sum"],
        bytes=row["bytes_sum"],
        units=row["units_sum"],
        money=row["operations_money_sum"] + row["bandwidth_money_sum"],
    )
