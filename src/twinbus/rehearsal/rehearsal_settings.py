"""The settings of a rehearsal, checked."""

from dataclasses import dataclass
from enum import StrEnum

from twinbus.errors import ArgumentError
from twinbus.rehearsal.traffic import RATE_DEFAULT, RATE_MAX


class Engine(StrEnum):
    """What drains the backlog at the end."""

    SPARK = "spark"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class RehearsalSettings:
    """`patience_s` is how long after it was due an application would still send a message."""

    seed: int = 0
    rate: float = RATE_DEFAULT
    engine: Engine = Engine.PROCESS
    failover_interval_s: float = 1.0
    ping_interval_s: float = 2.0
    send_timeout_s: float = 5.0
    patience_s: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= RATE_MAX:
            raise ArgumentError(f"The rate must be more than 0 and at most {RATE_MAX:g} messages a second.")
        if self.send_timeout_s <= 0 or self.patience_s <= 0:
            raise ArgumentError("The timeout of a send and the patience of its sender must be longer than zero.")
