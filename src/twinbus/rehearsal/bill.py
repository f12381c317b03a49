"""What the rehearsal would have cost: the operations logs of both namespaces in, operations by cause and their price out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BillLine:
    """`units` are billable operations: one for every 64 KB of a message."""

    cause: str
    path: str
    operations: int
    messages: int
    units: int


@dataclass(frozen=True, slots=True)
class Bill:
    lines: tuple[BillLine, ...]
    units: int
    amount: str
    """With its currency."""
