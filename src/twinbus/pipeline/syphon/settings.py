"""What a user chooses for the syphon on Spark: settings in, checked settings out."""

from dataclasses import dataclass

from twinbus.errors import ArgumentError

BUDGET_S_DEFAULT = 30.0
BUDGET_S_MAX = 3_600.0
LANE_TARGET_DEFAULT = 10_000
POISON_QUOTA_DEFAULT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonSettings:
    """`budget_s` is how long a task of a round works at most. Rates are in messages a second.

    A backlog queue has one lane, and with it the order of each sender and message session is kept.
    `lanes_per_queue_max` above 1 gives that up: a queue then gets a lane for every `lane_target` messages that wait in
    it. `poison_quota` is how many messages of a pair a round may dead-letter. `tasks_max` is the number of tasks of a
    round, otherwise as many as Spark has cores.
    """

    budget_s: float = BUDGET_S_DEFAULT
    lanes_per_queue_max: int = 1
    lane_target: int = LANE_TARGET_DEFAULT
    rate: float | None = None
    destination_rate: float | None = None
    poison_quota: int = POISON_QUOTA_DEFAULT
    tasks_max: int | None = None

    def __post_init__(self) -> None:
        _require(0 < self.budget_s <= BUDGET_S_MAX, "The budget of a round is longer than zero and an hour at most.")
        _require(self.lanes_per_queue_max >= 1, "A backlog queue needs at least 1 lane.")
        _require(self.lane_target >= 1, "A lane needs a target of at least 1 message.")
        _require(self.rate is None or self.rate > 0, "The rate must be above zero; leave it out for no cap.")
        _require(
            self.destination_rate is None or self.destination_rate > 0,
            "The rate of a destination must be above zero; leave it out for no cap.",
        )
        _require(self.poison_quota >= 0, "The poison quota cannot be negative.")
        _require(self.tasks_max is None or self.tasks_max >= 1, "A round needs at least 1 task.")

    @property
    def keeps_order(self) -> bool:
        return self.lanes_per_queue_max == 1


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArgumentError(otherwise)
