"""The rows of a summary, whoever counted them."""

from decimal import Decimal
from typing import NamedTuple


class CauseRow(NamedTuple):
    """One namespace, hour, cause and path. `date` is YYYY-MM-DD and `hour` from 0 to 23, both in UTC."""

    namespace: str
    date: str
    hour: int
    cause: str
    path: str
    operations: int
    messages: int
    bytes: int
    units: int
    operations_money: Decimal
    bandwidth_money: Decimal

    @property
    def money(self) -> Decimal:
        return self.operations_money + self.bandwidth_money


class EntityRow(NamedTuple):
    """One entity and fragment in a month; -1 is what concerned no fragment."""

    namespace: str
    entity: str
    entity_type: str
    fragment: int
    operations: int
    messages: int
    bytes: int
    units: int
    money: Decimal
