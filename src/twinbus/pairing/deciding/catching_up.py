"""Order after an outage: which message sessions go on through the backlog, because earlier messages of theirs are still there.

A session whose messages wait in the backlog would be overtaken by what is sent to the healed primary. So after the heal it
goes on through the backlog, behind its own messages, until they are home. What is home is known from the backlog itself: a
survey peeks at its queues, and a message is removed there only after its destination has accepted it.

    recovered --no survey yet--> every session goes to the backlog
              --survey--> a session that was seen there, or that this process sent there since the survey began: to the backlog
                          any other: to the primary

A busy session would always have its last messages on the way home. Once the survey before is seen to be home as a whole,
its next send is held for a moment: nothing follows into the backlog, and the next survey finds the session home.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from twinbus.clock import NEVER, Millis
from twinbus.model.session_key import session_key
from twinbus.pairing.rewriting.stages import QUEUES_MAX, Stage

SESSIONS_MAX = 100_000
"""Of one entity, that are known by name. Beyond that every session goes on through the backlog until it is empty."""

SURVEY_INTERVAL: Millis = 1_000
SURVEY_INTERVAL_HELD: Millis = 200
SURVEYED_MAX = 5_000
"""Messages of one backlog queue. Of a deeper one nobody knows what else is in it: all wait until it is drained that far."""


class Order(Enum):
    """What an entity that catches up asks of a send."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    HOLD = "hold"


@dataclass(slots=True)
class Trail:
    """Of one session: what this process sent to the backlog. `queue` is where its last message was accepted, at the stage `stage`,
    and `behind` are those with earlier stages; a message that was not accepted may be in any of those that were tried."""

    queue: int | None = None
    stage: int = 0
    behind: tuple[int, ...] = ()
    tried: set[int] = field(default_factory=set)
    sent_at: Millis = 0
    under_way: int = 0

    def stage_at(self, queue: int) -> Stage | None:
        """What a message that goes to this queue has to say. None if it follows nothing in another one."""
        if self.queue is None or self.queue == queue:
            return Stage(self.stage, self.behind) if self.stage else None
        return Stage(self.stage + 1, _with(self.behind, self.queue))

    def accepted_by(self, queue: int) -> None:
        if self.queue is not None and self.queue != queue:
            self.behind = _with(self.behind, self.queue)
            self.stage += 1
        self.queue = queue


def _with(behind: tuple[int, ...], queue: int) -> tuple[int, ...]:
    """The latest last. One that was left more than a hundred moves ago is not waited for."""
    return (*(each for each in behind if each != queue), queue)[-QUEUES_MAX:]


Numbers = dict[int, tuple[int, int]]
"""By backlog queue: the lowest and highest sequence number that a session has there."""


@dataclass(slots=True)
class Survey:
    """What waited in the backlog, by the key of the destination and of the session."""

    began_at: Millis
    is_complete: bool = True
    waiting: dict[str, dict[str, Numbers]] = field(default_factory=dict)
    queues: set[int] = field(default_factory=set)
    """Those in which anything waited."""
    stages: dict[tuple[str, str], dict[int, Millis]] = field(default_factory=dict)
    """When the first message of each stage came that waited, by destination and session."""

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
        numbers = self.waiting.setdefault(path_key, {}).setdefault(session, {})
        low, high = numbers.get(queue, (number, number))
        numbers[queue] = min(low, number), max(high, number)
        came_at = self.stages.setdefault((path_key, session), {})
        came_at[stage] = min(enqueued_at, came_at.get(stage, enqueued_at))

    def is_clear(self, path_key: str, session: str, stage: int, enqueued_at: Millis) -> bool:
        """Whether surely nothing of an earlier stage waited that had come by then."""
        found = self.stages.get((path_key, session), {})
        return self.is_complete and all(number >= stage or at > enqueued_at for number, at in found.items())


@dataclass(slots=True)
class CatchingUp:
    """Of one entity. `since` is None while it is healthy, and while it is failed over; the trails are kept in between."""

    trails: dict[str, Trail] = field(default_factory=dict)
    since: Millis | None = None
    uses_sessions: bool = False
    is_holding: bool = False
    _is_overfull: bool = False
    _survey: Survey | None = None
    _waiting: Mapping[str, Numbers] = field(default_factory=dict)
    _moving: set[str] = field(default_factory=set)
    _concerned: list[Callable[[str], bool]] | None = None
    """Which sessions may have messages in the backlog, before anybody has looked; None for all."""

    @property
    def is_active(self) -> bool:
        return self.since is not None

    def begins(self, sessions: Iterable[str], queue: int) -> None:
        """Messages of these sessions are about to be sent to the backlog."""
        self.uses_sessions = True
        for session in map(session_key, sessions):
            trail = self.trails.get(session)
            if trail is None:
                if len(self.trails) >= SESSIONS_MAX:
                    self._is_overfull = True
                    continue
                trail = self.trails[session] = Trail()
            trail.tried.add(queue)
            trail.under_way += 1

    def ends(self, sessions: Iterable[str], now: Millis, accepted_by: int | None = None) -> None:
        """Accepted or not: what was not may be there as well."""
        for session in map(session_key, sessions):
            trail = self.trails.get(session)
            if trail is not None:
                # Not below zero: some began while there were too many sessions to know them all.
                trail.under_way = max(0, trail.under_way - 1)
                trail.sent_at = now
                if accepted_by is not None:
                    trail.accepted_by(accepted_by)

    def queue_of(self, sessions: Iterable[str]) -> int | None:
        """The backlog queue that holds the last message of one of them."""
        for session in map(session_key, sessions):
            trail = self.trails.get(session)
            if trail is not None and trail.queue is not None:
                return trail.queue
        return None

    def stages_at(self, sessions: Iterable[str], queue: int) -> dict[str, Stage]:
        """By session key, what messages of these sessions have to say if they go to this queue."""
        found = {each: trail.stage_at(queue) for each in map(session_key, sessions) if (trail := self.trails.get(each))}
        return {session: stage for session, stage in found.items() if stage is not None}

    def start(self, now: Millis, concerns: Callable[[str], bool] | None = None) -> bool:
        """The entity is healthy again, or that part of it which these sessions need. True if it has to catch up: nobody has
        looked into the backlog yet."""
        if not self.uses_sessions:
            return False
        if concerns is None:
            self._concerned = None
        elif not self.is_active:
            self._concerned = [concerns]
        elif self._concerned is not None:
            self._concerned.append(concerns)
        self.since = now
        self._survey, self._waiting, self._moving = None, {}, set()
        return True

    def pause(self) -> None:
        """Failed over again."""
        self.since = None

    def order(self, sessions: Iterable[str]) -> Order:
        """For a send with messages of these sessions, while it is active."""
        orders = [self._order_of(session) for session in map(session_key, sessions)]
        if Order.BACKLOG in orders:
            return Order.BACKLOG
        if Order.HOLD in orders:
            self.is_holding = True
            return Order.HOLD
        return Order.PRIMARY

    def _order_of(self, session: str) -> Order:
        survey = self._survey
        trail = self.trails.get(session)
        if survey is None or not survey.is_complete or self._is_overfull:
            return Order.BACKLOG if trail is not None or self._is_concerned(session) else Order.PRIMARY
        if trail is None and session not in self._waiting:
            return Order.PRIMARY
        is_quiet = trail is None or trail.under_way == 0
        return Order.HOLD if session in self._moving and is_quiet else Order.BACKLOG

    def _is_concerned(self, session: str) -> bool:
        return self._concerned is None or any(concerns(session) for concerns in self._concerned)

    def surveyed(self, path_key: str, survey: Survey) -> bool:
        """What a survey found. True if everything is home: the entity has caught up."""
        waiting = survey.waiting.get(path_key, {})
        before, self._waiting = self._waiting, waiting
        was_first, self._survey = self._survey is None, survey
        self.is_holding = False
        if not survey.is_complete:
            self._moving.clear()
            return False
        home = [
            session
            for session, trail in self.trails.items()
            if session not in waiting and trail.under_way == 0 and trail.sent_at < survey.began_at
        ]
        for session in home:
            del self.trails[session]
        if not waiting and not self.trails:
            self.stop()
            return True
        known = waiting.keys() | self.trails.keys()
        self._moving = (
            set() if was_first else {each for each in known if _has_moved(before.get(each), waiting.get(each))}
        )
        if not survey.queues:
            self._is_overfull = False
        return False

    def not_surveyed(self, now: Millis) -> bool:
        """The backlog could not be looked into: all sessions go there until it can."""
        self.surveyed("", Survey(now, is_complete=False, queues=set() if self._survey is None else self._survey.queues))
        return False

    def stop(self) -> None:
        self.since, self._survey, self._waiting = None, None, {}
        # What is under way will end, and is in the backlog if the next recovery comes soon.
        self.trails = {session: trail for session, trail in self.trails.items() if trail.under_way}
        self._moving.clear()
        self._is_overfull = self.is_holding = False

    def next_survey_at(self) -> Millis:
        if self.since is None:
            return NEVER
        if self._survey is None:
            return self.since
        return self._survey.began_at + (SURVEY_INTERVAL_HELD if self.is_holding else SURVEY_INTERVAL)

    def queues(self) -> set[int] | None:
        """Those to look at: all for the first survey, afterwards those that had something or got something of ours."""
        if self._survey is None or not self._survey.is_complete:
            return None
        return self._survey.queues.union(*(trail.tried for trail in self.trails.values()))


def _has_moved(before: Numbers | None, now: Numbers | None) -> bool:
    """Whether all that waited at the survey before is home by this one: a message that was left behind would be held for
    the length of its lock, and holding sends for it would stop the session."""
    if not before or not now:
        return True
    return all(queue not in before or low > before[queue][1] for queue, (low, _) in now.items())
