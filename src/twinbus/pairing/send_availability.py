"""The shared mind of a pair: all its entities and backlog queues, for all its senders.

Senders and the pinger, on any thread or task, report what happened and ask what to do; every
answer is decided here, under one lock that is never held during I/O or a callback. The lock is
not needed while an entity is healthy: `is_untroubled` reads what only the methods here change.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from random import Random

from twinbus.clock import NEVER, Millis
from twinbus.meter.operation import Cause
from twinbus.model.durations import millis_of
from twinbus.model.paths import path_key
from twinbus.pairing.backlog_rotation import Rotation
from twinbus.pairing.catching_up import CatchingUp, Order, Survey
from twinbus.pairing.events import BacklogQueueState, EntityState, EventKind, PairingEvent, PairState, tell
from twinbus.pairing.failover import FailoverDetector, Route
from twinbus.pairing.failures import FailureKind, kind_by
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pair_meter import PairMeter
from twinbus.pairing.transfer import AnyMessage

_BY_ORDER = {Order.PRIMARY: Route.PRIMARY, Order.BACKLOG: Route.BACKLOG, Order.HOLD: Route.HOLD}


class SendAvailability:
    """`wake` is called when something with a deadline begins, so that the pinger looks at its clock again."""

    def __init__(
        self,
        options: SendAvailabilityPairedNamespaceOptions,
        backlog_queues: dict[int, str],
        random: Random,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options
        self.backlog_queues = backlog_queues
        """By index. Empty while the pair is unprotected: its backlog is not known yet."""
        self.backlog_error: BaseException | None = None
        self.wake = wake
        self.on_recovered: Callable[[str], None] = lambda _: None
        """Called with the path of an entity that works again."""
        self._random = random
        self._lock = threading.Lock()
        self._detectors: dict[str, FailoverDetector] = {}
        self._paths: dict[str, str] = {}
        self._catching_up: dict[str, CatchingUp] = {}
        self._is_surveying = False
        self._rotation = Rotation(tuple(backlog_queues), millis_of(options.readmission_interval))
        self.meter = PairMeter(options.meter)
        self._early_max = millis_of(options.ping_primary_interval) * options.ping_jitter

    def detector(self, path: str) -> FailoverDetector:
        """The one of this entity: every sender to it shares it. For reading `is_untroubled` only."""
        key = path_key(path)
        with self._lock:
            if key not in self._detectors:
                self._paths[key] = path
                self._catching_up[key] = CatchingUp()
                self._detectors[key] = FailoverDetector(
                    millis_of(self.options.failover_interval),
                    millis_of(self.options.ping_primary_interval),
                    millis_of(self.options.recovery_ramp),
                )
            return self._detectors[key]

    def route(self, path: str, now: Millis, sessions: Collection[str] = ()) -> Route:
        """Where a send with messages of these sessions goes. HOLD: ask again in a moment."""
        detector = self.detector(path)
        if detector.is_untroubled:
            return Route.PRIMARY
        with self._lock:
            failed_over = self._advance(detector, now)
            route = detector.route(now, self._random.random())
            catching_up = self._catching_up[path_key(path)]
            if sessions:
                catching_up.uses_sessions = True
                if route is Route.PRIMARY and catching_up.is_active:
                    route = _BY_ORDER[catching_up.order(sessions)]
        if failed_over:
            self._failed_over(path, detector, now)
        if route is Route.HOLD:
            self.wake()
        return route if self.backlog_queues else Route.PRIMARY

    def backlog_begins(self, path: str, sessions: Collection[str], index: int) -> None:
        """Messages of these sessions are on their way to this backlog queue."""
        if sessions and self.options.ordered_recovery:
            with self._lock:
                self._catching_up[path_key(path)].begins(sessions, index)

    def backlog_ends(self, path: str, sessions: Collection[str], now: Millis) -> None:
        if sessions and self.options.ordered_recovery:
            with self._lock:
                self._catching_up[path_key(path)].ends(sessions, now)

    def queue_of(self, path: str, sessions: Collection[str]) -> int | None:
        """The backlog queue in which earlier messages of these sessions wait, while it is in the rotation."""
        if not sessions:
            return None
        with self._lock:
            index = self._catching_up[path_key(path)].queue_of(sessions)
            return index if index is not None and self._rotation.contains(index) else None

    def start_survey(self, now: Millis) -> dict[int, str] | None:
        """The backlog queues to look into now; the caller reports what it finds. None if that is not due."""
        with self._lock:
            active = [each for each in self._catching_up.values() if each.is_active]
            if self._is_surveying or not active or now < min(each.next_survey_at() for each in active):
                return None
            self._is_surveying = True
            wanted = [each.queues() for each in active]
        every = any(each is None for each in wanted)
        chosen = set(self.backlog_queues) if every else set().union(*(each or set() for each in wanted))
        return {index: self.backlog_queues[index] for index in sorted(chosen)}

    @property
    def is_catching_up(self) -> bool:
        return any(each.is_active for each in self._catching_up.values())

    def surveyed(self, survey: Survey | None, now: Millis) -> None:
        """What was found; None if the backlog could not be looked into, which is tried again after a pause."""
        home: list[tuple[str, BaseException | None]] = []
        limit = millis_of(self.options.ordered_recovery_max)
        with self._lock:
            self._is_surveying = False
            for key, each in self._catching_up.items():
                if each.since is None:
                    continue
                error: BaseException | None = None
                is_over = each.surveyed(key, survey) if survey is not None else each.not_surveyed(now)
                if not is_over and each.since is not None and now - each.since >= limit:
                    error = TimeoutError("Some messages were not home within ordered_recovery_max.")
                    each.stop()
                if is_over or error is not None:
                    self._detectors[key].is_catching_up = False
                    home.append((self._paths[key], error))
        for path, error in home:
            self._tell_of(path, EventKind.CAUGHT_UP, now, error)

    def unprotected(self, error: BaseException | None, now: Millis) -> None:
        """There is no backlog yet: sends go to the primary whatever it does."""
        self.backlog_error = error
        self._tell(PairingEvent(EventKind.UNPROTECTED, now, error=error))

    def protected(self, backlog_queues: dict[int, str], now: Millis) -> None:
        """The backlog of an unprotected pair is ready."""
        with self._lock:
            self._rotation = Rotation(tuple(backlog_queues), self._rotation.readmission_interval)
            self.backlog_queues = backlog_queues
        self.backlog_error = None
        self._tell(PairingEvent(EventKind.PROTECTED, now))

    def kind_of(self, error: BaseException) -> FailureKind:
        return kind_by(self.options.classifier, error)

    def refusal(self, path: str) -> BaseException | None:
        return self.detector(path).refusal

    def last_error(self, path: str) -> BaseException | None:
        return self.detector(path).last_error

    def primary_answered(self, path: str) -> None:
        detector = self.detector(path)
        if detector.failing_since is not None:
            with self._lock:
                detector.primary_answered()

    def primary_failed(self, path: str, error: BaseException, now: Millis, kind: FailureKind | None = None) -> Route:
        """Where this send continues: PRIMARY means that the caller gets the error. `kind` is what the classifier says unless
        the caller knows better."""
        if not (kind or self.kind_of(error)).is_outage:
            return Route.PRIMARY
        detector = self.detector(path)
        with self._lock:
            started = detector.primary_failed(error, now)
            failed_over = self._advance(detector, now)
            # Not `route`: a send gets one random draw in a ramp, and has had it.
            is_over = detector.failed_over_at is not None and bool(self.backlog_queues)
            route = detector.route(now) if is_over else Route.PRIMARY
        if started:
            self._tell_of(path, EventKind.TIMER_STARTED, now, error)
            self.wake()
        if failed_over:
            self._failed_over(path, detector, now)
        return route

    def choose_queue(self, current: int | None, now: Millis) -> int | None:
        """`current` while it is in the rotation, else another at random; None only if there is no backlog queue."""
        with self._lock:
            back = self._rotation.readmit(now)
            if current is not None and self._rotation.contains(current):
                chosen: int | None = current
            else:
                chosen = self._rotation.choose(self._random.random())
        self._readmitted(back, now)
        return chosen

    def is_worth_trying(self, index: int) -> bool:
        """For a send that waited for this queue: others may have found out that it fails."""
        rotation = self._rotation
        return rotation.contains(index) or rotation.is_all_out

    def is_hopeless(self, lasting: set[int]) -> bool:
        """Every queue refused for a reason that time does not change."""
        return len(lasting) >= len(self.backlog_queues)

    def has_other_queue(self, index: int) -> bool:
        with self._lock:
            return self._rotation.has_other(index)

    def queue_failed(self, index: int, error: BaseException, now: Millis) -> None:
        with self._lock:
            taken_out = self._rotation.take_out(index, now)
        if taken_out:
            self._tell(PairingEvent(EventKind.QUEUE_TAKEN_OUT, now, queue=self.backlog_queues[index], error=error))

    def backlog_sent(self, path: str, index: int, messages: Sequence[AnyMessage], now: Millis) -> None:
        queue = self.backlog_queues[index]
        with self._lock:
            back = self._rotation.accepted()
        self._readmitted(back, now)
        self.meter.sent(Cause.SEND, queue, messages, now)
        self._tell(PairingEvent(EventKind.BACKLOG_SEND, now, self._named(path), queue, len(messages)))

    def advance(self, now: Millis) -> list[str]:
        """Let time pass: fail over what is due, and return the entities to ping now."""
        due: list[str] = []
        failed_over: list[tuple[str, FailoverDetector]] = []
        with self._lock:
            back = self._rotation.readmit(now)
            for key, detector in self._detectors.items():
                if self._advance(detector, now):
                    failed_over.append((self._paths[key], detector))
                if detector.start_ping(now):
                    detector.ping_sooner(self._early())
                    due.append(self._paths[key])
        self._readmitted(back, now)
        for path, detector in failed_over:
            self._failed_over(path, detector, now)
        return due

    def advance_failovers(self, now: Millis) -> None:
        """Let time pass without starting pings, so that a view shows what the next send would meet."""
        for path in list(self._paths.values()):
            self.route(path, now)

    def next_action_at(self) -> Millis:
        with self._lock:
            soonest = min((each.next_action_at() for each in self._detectors.values()), default=NEVER)
            if self._is_surveying:
                return soonest
            surveys = (each.next_survey_at() for each in self._catching_up.values())
            return min(soonest, min(surveys, default=NEVER))

    def failing_paths(self) -> set[str]:
        """Keys of the entities whose sends go, or may soon go, to the backlog."""
        with self._lock:
            return {key for key, each in self._detectors.items() if each.failing_since is not None}

    def ping_answered(self, path: str, now: Millis) -> None:
        self.meter.pinged(path, now)
        self._tell_of(path, EventKind.PING, now)
        self.mark_healthy(path, now)

    def ping_failed(self, path: str, error: BaseException, now: Millis) -> None:
        self.meter.pinged(path, now)
        detector, kind = self.detector(path), self.kind_of(error)
        with self._lock:
            detector.ping_failed(error, kind.is_lasting)
        self._tell_of(path, EventKind.PING, now, error)

    def mark_healthy(self, path: str, now: Millis) -> None:
        """An entity that has no sender is not failed over either."""
        with self._lock:
            detector = self._detectors.get(path_key(path))
            was_failed_over = detector is not None and detector.recover(now)
            if was_failed_over and detector is not None and self.options.ordered_recovery:
                detector.is_catching_up = self._catching_up[path_key(path)].start(now)
        if was_failed_over:
            self._tell_of(path, EventKind.RECOVERED, now)
            self.on_recovered(self._named(path))
            self.wake()

    def state(self) -> PairState:
        with self._lock:
            entities = tuple(_entity_state(self._paths[key], each) for key, each in self._detectors.items())
            out_until = self._rotation.out_until
            queues = tuple(BacklogQueueState(path, out_until.get(i)) for i, path in self.backlog_queues.items())
        return PairState(entities, queues, bool(queues), self.backlog_error)

    def _advance(self, detector: FailoverDetector, now: Millis) -> bool:
        """Under the lock. True if the entity is failed over by this."""
        if not detector.advance(now):
            return False
        detector.is_catching_up = False
        for key, each in self._detectors.items():
            if each is detector:
                self._catching_up[key].pause()
        detector.ping_sooner(self._early())
        return True

    def _early(self) -> Millis:
        """How much sooner than its interval a ping comes. An outage begins for many processes at one moment: without
        a lot for each, their first pings would all meet the primary together."""
        return int(self._early_max * self._random.random())

    def _failed_over(self, path: str, detector: FailoverDetector, now: Millis) -> None:
        self._tell_of(path, EventKind.FAILED_OVER, now, detector.last_error)
        self.wake()

    def _readmitted(self, indexes: list[int], now: Millis) -> None:
        for index in indexes:
            self._tell(PairingEvent(EventKind.QUEUE_READMITTED, now, queue=self.backlog_queues[index]))

    def _named(self, path: str) -> str:
        """As its first sender wrote it. One entity has one name in all events, whichever sender caused them."""
        return self._paths.get(path_key(path), path)

    def _tell_of(self, path: str, kind: EventKind, now: Millis, error: BaseException | None = None) -> None:
        self._tell(PairingEvent(kind, now, self._named(path), error=error))

    def _tell(self, event: PairingEvent) -> None:
        tell(self.options.on_event, event)


def _entity_state(path: str, detector: FailoverDetector) -> EntityState:
    return EntityState(
        path,
        detector.availability(),
        detector.failing_since,
        detector.failed_over_at,
        None if detector.next_ping_at == NEVER else detector.next_ping_at,
        detector.last_error,
    )
