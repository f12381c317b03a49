"""Order after an outage: which message sessions go on through the backlog, because earlier messages of theirs are still there.

A session whose messages wait in the backlog would be overtaken by what is sent to the healed primary. So after the heal it
goes on through the backlog, behind its own messages, until they are home. What is home is known from the backlog itself: a
survey peeks at its queues, and a message is removed there only after its destination has accepted it.

    recovered --no survey yet--> every session goes to the backlog
              --survey--> a session that was seen there, or that this process sent there since the survey began: to the backlog
                          any other: to the primary

A busy session would always have its last messages on the way home. Once the survey before is seen to be home as a whole,
its next send is held for a moment: nothing follows into the backlog, and the next survey finds the session home.

A process that starts while messages wait in the backlog is *in doubt*: they may be of its own sessions, from before it was
restarted. Its sessions are held for a moment until somebody has looked. What is found, from whichever process, is taken over as a
trail: the session goes on in the queue where its last message is. What cannot be seen is followed blindly: a message says that it
comes after whatever its session has in those queues (see `pairing/rewriting/stages.py`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from twinbus.clock import NEVER, Millis
from twinbus.model.session_key import session_key
from twinbus.pairing.deciding.survey import Shares, Survey
from twinbus.pairing.rewriting.stages import QUEUES_MAX, Stage

SESSIONS_MAX = 100_000
"""Of one entity, that are known by name. Beyond that every session goes on through the backlog until it is empty."""

SURVEY_INTERVAL: Millis = 1_000
SURVEY_INTERVAL_HELD: Millis = 200
SURVEY_INTERVAL_IDLE: Millis = 30_000
"""While nobody has used a session: a backlog that is too deep to be looked through costs many operations each time."""

DOUBT_MAX: Millis = 3_000
"""How long sessions are held for the first look of a process. Then they go to the backlog, blindly."""

UNREADABLE_MAX: Millis = 30_000
"""If nobody could look for so long, sessions of which the backlog accepted nothing from this process are not kept from the primary."""


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
        if self.queue is None:
            behind = _without(self.behind, queue)
            return Stage(self.stage, behind) if behind else None
        if self.queue == queue:
            return Stage(self.stage, self.behind) if self.behind else None
        return Stage(self.stage + 1, _with(self.behind, self.queue))

    def accepted_by(self, queue: int) -> None:
        if self.queue is None:
            self.behind = _without(self.behind, queue)
        elif self.queue != queue:
            self.behind = _with(self.behind, self.queue)
            self.stage += 1
        self.queue = queue


def _with(behind: tuple[int, ...], queue: int) -> tuple[int, ...]:
    """The latest last. One that was left more than a hundred moves ago is not waited for."""
    return (*_without(behind, queue), queue)[-QUEUES_MAX:]


def _without(behind: tuple[int, ...], queue: int) -> tuple[int, ...]:
    return tuple(each for each in behind if each != queue)


def _trail_of(shares: Shares, unseen: Collection[int], blind_stage: int) -> Trail:
    """Of a session that somebody sent to the backlog: it goes on where its last message is, after all that it has elsewhere."""
    last = max(shares, key=lambda queue: (shares[queue].stage, shares[queue].came_at))
    behind = sorted((shares.keys() | unseen) - {last})
    stage = max(share.stage for share in shares.values())
    if behind:
        stage = max(stage + 1, blind_stage if unseen else 0)
    return Trail(last, stage, tuple(behind)[-QUEUES_MAX:], set(shares))


@dataclass(slots=True)
class CatchingUp:
    """Of one entity. `since` is None while it is healthy, and while it is failed over; the trails are kept in between."""

    trails: dict[str, Trail] = field(default_factory=dict)
    since: Millis | None = None
    uses_sessions: bool = False
    is_holding: bool = False
    is_in_doubt: bool = False
    """Messages waited in the backlog when this process began, and nobody has looked whose they are."""
    _doubted_at: Millis | None = None
    _unseen: frozenset[int] = frozenset()
    """Backlog queues in which earlier messages of any session may wait, from before this process began."""
    _is_overfull: bool = False
    _is_unreadable: bool = False
    _looked_at: Millis | None = None
    _survey: Survey | None = None
    _waiting: Mapping[str, Shares] = field(default_factory=dict)
    _moving: set[str] = field(default_factory=set)
    _concerned: list[Callable[[str], bool]] | None = None
    """Which sessions may have messages in the backlog, before anybody has looked; None for all."""

    @property
    def is_active(self) -> bool:
        return self.since is not None

    @property
    def wants_survey(self) -> bool:
        return self.since is not None or self.is_in_doubt

    def doubt(self, queues: Iterable[int]) -> None:
        """Messages wait in the backlog, perhaps in these queues, and perhaps of sessions that are about to be used."""
        self.is_in_doubt, self._doubted_at, self._looked_at = True, None, None
        self._unseen = frozenset(queues)

    def doubt_begins(self, now: Millis, is_failed_over: bool) -> None:
        """Somebody is about to look, or would like to know."""
        if self.is_in_doubt and self._doubted_at is None:
            self._doubted_at = now
            if self.since is None and not is_failed_over:
                self.since = now

    def is_awaiting_look(self, sessions: Iterable[str], now: Millis) -> bool:
        """Whether a send of these sessions is to wait for the first look of this process."""
        if not self.is_in_doubt or self._looked_at is not None or now >= (self._doubted_at or now) + DOUBT_MAX:
            return False
        return any(session not in self.trails for session in map(session_key, sessions))

    def begins(self, sessions: Iterable[str], queue: int) -> None:
        """Messages of these sessions are about to be sent to the backlog."""
        self.uses_sessions = True
        for session in map(session_key, sessions):
            trail = self.trails.get(session)
            if trail is None:
                if len(self.trails) >= SESSIONS_MAX:
                    self._is_overfull = True
                    continue
                trail = self.trails[session] = self._new_trail()
            trail.tried.add(queue)
            trail.under_way += 1

    def _new_trail(self) -> Trail:
        """Of a session of which nothing was seen in the backlog."""
        return Trail(None, self._blind_stage, tuple(sorted(self._unseen))[-QUEUES_MAX:]) if self._unseen else Trail()

    @property
    def _blind_stage(self) -> int:
        """Later than all stages that other processes have come to: those count moves, or began like this at an earlier time."""
        return (self._doubted_at or 0) + 1

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
        if not self.trails and not self._unseen:
            return {}
        found = {
            session: (self.trails.get(session) or self._new_trail()).stage_at(queue)
            for session in map(session_key, sessions)
        }
        return {session: stage for session, stage in found.items() if stage is not None}

    def start(self, now: Millis, concerns: Callable[[str], bool] | None = None) -> bool:
        """The entity is healthy again, or that part of it which these sessions need. True if it has to catch up: nobody has
        looked into the backlog yet."""
        if not self.uses_sessions and not self.is_in_doubt:
            return False
        if concerns is None:
            self._concerned = None
        elif not self.is_active:
            self._concerned = [concerns]
        elif self._concerned is not None:
            self._concerned.append(concerns)
        self.since = now
        self._survey, self._waiting, self._moving = None, {}, set()
        self._looked_at, self._is_unreadable = None, False
        return True

    def pause(self) -> None:
        """Failed over again."""
        self.since = None

    def order(self, sessions: Collection[str], now: Millis) -> Order:
        """For a send with messages of these sessions, while it is active."""
        orders = [self._order_of(session) for session in map(session_key, sessions)]
        if self.is_awaiting_look(sessions, now):
            orders.append(Order.HOLD)
        elif Order.BACKLOG in orders:
            return Order.BACKLOG
        if Order.HOLD in orders:
            self.is_holding = True
            return Order.HOLD
        return Order.PRIMARY

    def _order_of(self, session: str) -> Order:
        survey = self._survey
        trail = self.trails.get(session)
        if survey is None and self._is_unreadable and (trail is None or trail.queue is None):
            return Order.PRIMARY
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
        self._looked_at = survey.began_at
        self._unseen &= survey.unseen_from.keys()
        self._take_over(waiting)
        self.is_in_doubt = False
        if self.since is None:
            return False
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

    def _take_over(self, waiting: Mapping[str, Shares]) -> None:
        """Sessions that another process sent to the backlog, or this one before it was restarted."""
        for session, shares in waiting.items():
            trail = self.trails.get(session)
            if trail is None and len(self.trails) < SESSIONS_MAX:
                self.uses_sessions = True
                self.trails[session] = _trail_of(shares, self._unseen, self._blind_stage)

    def not_surveyed(self, now: Millis) -> bool:
        """The backlog could not be looked into. What was seen before still holds; before the first look, all sessions go there."""
        self._looked_at = now
        self.is_holding = False
        self._moving.clear()
        if self._survey is None and self.since is not None and now - self.since >= UNREADABLE_MAX:
            self._is_unreadable = True
        return False

    def stop(self) -> None:
        self.since, self._survey, self._waiting, self._looked_at = None, None, {}, None
        self.is_in_doubt, self._unseen = False, frozenset()
        # What is under way will end, and is in the backlog if the next recovery comes soon.
        self.trails = {session: trail for session, trail in self.trails.items() if trail.under_way}
        self._moving.clear()
        self._is_overfull = self.is_holding = False

    def next_survey_at(self) -> Millis:
        if not self.wants_survey:
            return NEVER
        if self._looked_at is None:
            return self.since or 0
        if not self.uses_sessions:
            return self._looked_at + SURVEY_INTERVAL_IDLE
        return self._looked_at + (SURVEY_INTERVAL_HELD if self.is_holding else SURVEY_INTERVAL)

    def queues(self) -> set[int] | None:
        """Those to look at: all for the first survey, afterwards those that had something or got something of ours."""
        if self._survey is None or not self._survey.is_complete:
            return None
        return self._survey.queues.union(*(trail.tried for trail in self.trails.values()))


def _has_moved(before: Shares | None, now: Shares | None) -> bool:
    """Whether all that waited at the survey before is home by this one: a message that was left behind would be held for
    the length of its lock, and holding sends for it would stop the session."""
    if not before or not now:
        return True
    return all(queue not in before or share.low > before[queue].high for queue, share in now.items())
