"""A rehearsal while it runs, as one value: what the live view shows."""

from dataclasses import dataclass

from twinbus.rehearsal.chronicle import Moment
from twinbus.rehearsal.sends import Availability


@dataclass(frozen=True, slots=True)
class EntityStatus:
    path: str
    condition: str
    backlog_sends: int


@dataclass(frozen=True, slots=True)
class Status:
    """`elapsed_s` counts from when the first message was due."""

    elapsed_s: float
    duration_s: float
    step: str
    paired: Availability
    unpaired: Availability
    delivered: int
    outstanding: int
    backlog: int
    entities: tuple[EntityStatus, ...]
    moments: tuple[Moment, ...]
