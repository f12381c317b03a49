"""What a replay has done so far, for the terminal and for `--json`."""

from dataclasses import dataclass
from datetime import datetime

COLUMNS = (
    "entity",
    "destination",
    "chosen",
    "replayed",
    "refused",
    "missing",
    "unconfirmed",
    "left",
    "go_on_from",
    "last_error",
)


@dataclass(slots=True)
class Tally:
    """Of one entity. `refused`: by the destination, for good; they stay where they are. `missing`: gone before they
    could be moved, because somebody else took them or they expired. `unconfirmed`: gone as well, but a task that was lost with
    its report may have moved them. `go_on_from`: of a lake, all that was enqueued before this time is sent, and of what came
    later perhaps some.
    """

    entity: str
    destination: str
    chosen: int
    replayed: int = 0
    refused: int = 0
    missing: int = 0
    unconfirmed: int = 0
    go_on_from: datetime | None = None
    last_error: str | None = None

    @property
    def left(self) -> int:
        return self.chosen - self.replayed - self.refused - self.missing - self.unconfirmed

    def record(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in COLUMNS}
