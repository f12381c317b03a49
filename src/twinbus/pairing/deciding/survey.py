"""What a look into backlog queues found: which message sessions wait there, in which queues, and what nobody could see."""

from dataclasses import dataclass, field

from twinbus.clock import Millis
from twinbus.model.session_key import session_key

SURVEYED_MAX = 5_000
"""Messages of one backlog queue that are looked at. Of a deeper one nobody knows what else is in it."""

UNSEEN: Millis = 0
"""The time up to which a queue was seen that could not be looked into."""


@dataclass(slots=True)
class Share:
    """What one session has in one backlog queue: its lowest and highest sequence number, its highest stage, and when its last
    message came."""

    low: int
    high: int
    stage: int
    came_at: Millis


Shares = dict[int, Share]
"""By backlog queue."""


@dataclass(slots=True)
class Survey:
    """What waited in the backlog, by the key of the destination and of the session."""

    began_at: Millis
    waiting: dict[str, dict[str, Shares]] = field(default_factory=dict)
    queues: set[int] = field(default_factory=set)
    """Those in which anything waited."""
    unseen_from: dict[int, Millis] = field(default_factory=dict)
    """Queues of which not all was seen, and when the last message came that was."""
    stages: dict[tuple[str, str], dict[int, Millis]] = field(default_factory=dict)
    """When the first message of each stage came that waited, by destination and session."""

    @property
    def is_complete(self) -> bool:
        return not self.unseen_from

    def add(
        self,
        queue: int,
        path_key: str,
        session_id: str | None,
        number: int,
        stage: int = 0,
        enqueued_at: Millis = 0,
    ) -> None:
        self.queues.add(queue)
        if session_id is None:
            return
        session = session_key(session_id)
        shares = self.waiting.setdefault(path_key, {}).setdefault(session, {})
        share = shares.get(queue)
        if share is None:
            shares[queue] = Share(number, number, stage, enqueued_at)
        else:
            share.low, share.high = min(share.low, number), max(share.high, number)
            share.stage, share.came_at = max(share.stage, stage), max(share.came_at, enqueued_at)
        came_at = self.stages.setdefault((path_key, session), {})
        came_at[stage] = min(enqueued_at, came_at.get(stage, enqueued_at))

    def is_clear(self, path_key: str, session: str, stage: int, enqueued_at: Millis) -> bool:
        """Whether surely nothing of an earlier stage waited that had come by then. What was not seen came later than what was."""
        if any(seen_until <= enqueued_at for seen_until in self.unseen_from.values()):
            return False
        found = self.stages.get((path_key, session), {})
        return all(number >= stage or at > enqueued_at for number, at in found.items())
