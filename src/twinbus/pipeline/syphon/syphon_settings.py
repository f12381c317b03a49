"""The settings of the syphon on Spark, checked."""

from dataclasses import dataclass
from math import inf

from twinbus.errors import ArgumentError

BUDGET_S_DEFAULT = 30.0
BUDGET_S_MAX = 3_600.0
LANE_TARGET_DEFAULT = 10_000
POISON_QUOTA_DEFAULT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonSettings:
    """`budget_s` is how long a task of a round works at most. Rates are in messages a second.

    With one lane for each backlog queue, the order of each sender and message session is kept. `lanes_per_queue_max` above 1 gives
    that up: a queue then gets a lane for every `lane_target` messages that wait in it. `poison_quota` is how many messages of a pair
    a round may dead-letter. `tasks_max` is the number of tasks of a round; None means one for each core.
    """

    budget_s: float = BUDGET_S_DEFAULT
    lanes_per_queue_max: int = 1
    lane_target: int = LANE_TARGET_DEFAULT
    rate: float | None = None
    destination_rate: float | None = None
    poison_quota: int = POISON_QUOTA_DEFAULT
    tasks_max: int | None = None

    def __post_init__(self) -> None:
        _require(
            0 < self.budget_s <= BUDGET_S_MAX, "The budget of a round must be longer than zero and at most an hour."
        )
        _require(self.lanes_per_queue_max >= 1, "A backlog queue needs at least 1 pump.")
        _require(self.lane_target >= 1, "A pump needs at least 1 message.")
        _require(self.rate is None or 0 < self.rate < inf, "The rate must be above zero; omit it for no limit.")
        _require(
            self.destination_rate is None or 0 < self.destination_rate < inf,
            "The rate of a destination must be above zero; omit it for no limit.",
        )
        _require(self.poison_quota >= 0, "The poison quota cannot be negative.")
        _require(self.tasks_max is None or self.tasks_max >= 1, "A round needs at least 1 task.")

    @property
    def keeps_order(self) -> bool:
        return self.lanes_per_queue_max == 1


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArgumentError(otherwise)
