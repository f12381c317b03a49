"""The shared mind of a pair: all its entities and backlog queues, for all its senders.

Senders and the pinger, on any thread or task, report what happened and ask what to do; every
answer is decided here, under one lock that is never held during I/O or a callback. The lock is
not needed while an entity is healthy: whoever changes anything about it sums up, in one flag, whether there is anything to decide.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from twinbus.clock import NEVER, Millis
from twinbus.meter.operation import Cause
from twinbus.model.durations import millis_of
from twinbus.model.paths import path_key
from twinbus.pairing.deciding.backlog_rotation import Rotation
from twinbus.pairing.deciding.catching_up import Order
from twinbus.pairing.deciding.entity_watch import EntityWatch, Failure, Ping
from twinbus.pairing.deciding.failover import FailoverDetector, Route
from twinbus.pairing.deciding.lookout import Lookout
from twinbus.pairing.deciding.partitioning import Partitioning
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.events import BacklogQueueState, EventKind, PairingEvent, PairState, tell
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pair_meter import PairMeter
from twinbus.pairing.rewriting.stages import Stage
from twinbus.pairing.rewriting.transfer import AnyMessage
from twinbus.pairing.stock.failures import FailureKind, is_answer, kind_by

_BY_ORDER = {Order.PRIMARY: Route.PRIMARY, Order.BACKLOG: Route.BACKLOG, Order.HOLD: Route.HOLD}


class SendAvailability:
    """`wake` is called when something with a deadline begins, so that the pinger looks at its clock again."""

    def __init__(
        self,
        options: SendAvailabilityPairedNamespaceOptions,
        backlog_queues: dict[int, str],
        random: Random,
        wake: Callable[[], None] = lambda: None,
        *,
        has_waiting: bool = False,
    ) -> None:
        self.options = options
        self.backlog_queues = backlog_queues
        """By index. Empty while the pair is unprotected: its backlog is not known yet."""
        self.backlog_error: BaseException | None = None
        self.wake = wake
        self.on_recovered: Callable[[str], None] = lambda _: None
        """Called with the path of an entity that works again."""
        self.lost: Callable[[Millis], Millis] = lambda _: 0
        """How long this process did not run, until now: no timer runs meanwhile."""
        self._lost_before: Millis = 0
        self._random = random
        self._watches: dict[str, EntityWatch] = {}
        self._lock = threading.Lock()
        self._is_over = False
        self._lookout = Lookout(
            self._watches,
            millis_of(options.ordered_recovery_max),
            has_waiting=has_waiting and options.ordered_recovery,
        )
        self._rotation = Rotation(tuple(backlog_queues), millis_of(options.readmission_interval))
        self.meter = PairMeter(options.meter)
        self._early_max = millis_of(options.ping_primary_interval) * options.ping_jitter

    def watch(self, path: str) -> EntityWatch:
        """The one of this entity: every sender to it shares it. Others only read it."""
        key = path_key(path)
        watch = self._watches.get(key)
        if watch is not None:
            return watch
        with self._lock:
            watch = self._watches.get(key)
            if watch is None:
                watch = EntityWatch(path, self._new_detector, self._told_partitioning(path))
                self._lookout.doubt(watch, self.backlog_queues)
                self._sum_up(watch)
                self._watches[key] = watch
            return watch

    @contextmanager
    def _changing(self, watch: EntityWatch | None = None) -> Iterator[None]:
        """Under the lock, something about this entity or about all of them."""
        with self._lock:
            try:
                yield
            finally:
                for each in self._watches.values() if watch is None else (watch,):
                    self._sum_up(each)

    def _sum_up(self, watch: EntityWatch) -> None:
        watch.is_straight = not self._is_over and watch.has_nothing_to_decide

    def end(self) -> None:
        """From now on every send has to ask."""
        with self._changing():
            self._is_over = True

    def after_fork(self) -> None:
        """Whoever held the lock exists in the parent only."""
        self._lock = threading.Lock()
        self.end()

    def _new_detector(self) -> FailoverDetector:
        return FailoverDetector(
            millis_of(self.options.failover_interval),
            millis_of(self.options.ping_primary_interval),
            millis_of(self.options.recovery_ramp),
        )

    def _told_partitioning(self, path: str) -> Partitioning | None:
        counts = self.options.fragment_counts
        if counts is None:
            return None
        return Partitioning(next((count for each, count in counts.items() if path_key(each) == path_key(path)), 1))

    def begin_asking(self, path: str, now: Millis) -> bool:
        """True if the caller is to ask the primary how this entity is partitioned; it then calls `asked`."""
        watch = self.watch(path)
        with self._lock:
            return watch.begin_asking(now)

    def asked(self, path: str, answer: Partitioning | None, now: Millis) -> None:
        watch = self.watch(path)
        with self._changing(watch):
            watch.asked(answer, now)

    def route(self, path: str, now: Millis, sessions: Collection[str] = (), fragment: int | None = None) -> Route:
        """Where a send with messages of these sessions goes, which all need this fragment. HOLD: ask again in a moment."""
        watch = self.watch(path)
        if watch.is_untroubled:
            return Route.PRIMARY
        with self._changing(watch):
            self._forgive(now)
            failed_over = self._advance(watch, now)
            routes = [each.route(now, self._random.random()) for each in watch.concerned(fragment)]
            route = next((each for each in routes if each is not Route.PRIMARY), Route.PRIMARY)
            if sessions:
                is_ramp = route is Route.BACKLOG and not watch.is_failed_over(fragment)
                if is_ramp and self.options.ordered_recovery:
                    # A lot for each message would take a session apart: it returns as a whole, once its messages are home.
                    route = Route.PRIMARY
                route = self._in_order(watch, route, sessions, now)
        self._failed_over(watch, failed_over, now)
        if route is Route.HOLD:
            self.wake()
        return route if self.backlog_queues else Route.PRIMARY

    def _in_order(self, watch: EntityWatch, route: Route, sessions: Collection[str], now: Millis) -> Route:
        """Under the lock. Where a send goes that would go by this route, but for earlier messages of its sessions."""
        catching_up = watch.catching_up
        catching_up.uses_sessions = True
        catching_up.doubt_begins(now, watch.whole.failed_over_at is not None)
        if route is Route.PRIMARY and catching_up.is_active:
            return _BY_ORDER[catching_up.order(sessions, now)]
        if route is Route.BACKLOG and catching_up.is_awaiting_look(sessions, now):
            return Route.HOLD
        return route

    def backlog_begins(self, path: str, sessions: Collection[str], index: int) -> None:
        """Messages of these sessions are on their way to this backlog queue."""
        if sessions and self.options.ordered_recovery:
            with self._lock:
                self._watches[path_key(path)].catching_up.begins(sessions, index)

    def backlog_ends(self, path: str, sessions: Collection[str], now: Millis, accepted_by: int | None) -> None:
        if sessions and self.options.ordered_recovery:
            with self._lock:
                self._watches[path_key(path)].catching_up.ends(sessions, now, accepted_by)

    def queue_of(self, path: str, sessions: Collection[str]) -> int | None:
        """The backlog queue in which earlier messages of these sessions wait."""
        if not sessions:
            return None
        with self._lock:
            return self._watches[path_key(path)].catching_up.queue_of(sessions)

    def stages_at(self, path: str, sessions: Collection[str], index: int) -> dict[str, Stage]:
        """What messages of these sessions have to say in this backlog queue, if earlier ones wait in another."""
        if not sessions or not self.options.ordered_recovery:
            return {}
        with self._lock:
            return self._watches[path_key(path)].catching_up.stages_at(sessions, index)

    def start_survey(self, now: Millis) -> dict[int, str] | None:
        """The backlog queues to look into now; the caller reports what it finds. None if that is not due."""
        with self._lock:
            return self._lookout.start(self.backlog_queues, now)

    @property
    def is_catching_up(self) -> bool:
        with self._lock:
            return self._lookout.is_needed

    def surveyed(self, survey: Survey | None, now: Millis) -> None:
        """What was found; None if the backlog could not be looked into, which is tried again after a pause."""
        with self._changing():
            home = self._lookout.found(survey, now)
        for watch, error in home:
            self._tell_of(watch, EventKind.CAUGHT_UP, now, error)

    def unprotected(self, error: BaseException | None, now: Millis) -> None:
        """There is no backlog yet: sends go to the primary whatever it does."""
        self.backlog_error = error
        self._tell(PairingEvent(EventKind.UNPROTECTED, now, error=error))

    def protected(self, backlog_queues: dict[int, str], now: Millis, *, has_waiting: bool = False) -> None:
        """The backlog of an unprotected pair is ready."""
        with self._changing():
            self._rotation = Rotation(tuple(backlog_queues), self._rotation.readmission_interval)
            self.backlog_queues = backlog_queues
            self._lookout.has_waiting = has_waiting and self.options.ordered_recovery
            for watch in self._watches.values():
                self._lookout.doubt(watch, backlog_queues)
        self.backlog_error = None
        self._tell(PairingEvent(EventKind.PROTECTED, now))

    def kind_of(self, error: BaseException) -> FailureKind:
        return kind_by(self.options.classifier, error)

    def refusal(self, path: str, fragment: int | None = None) -> BaseException | None:
        return next((each.refusal for each in self.watch(path).concerned(fragment) if each.refusal is not None), None)

    def last_error(self, path: str, fragment: int | None = None) -> BaseException | None:
        found = (each.last_error for each in self.watch(path).concerned(fragment))
        return next((each for each in found if each is not None), None)

    def primary_answered(self, path: str, now: Millis, fragment: int | None = None) -> None:
        watch = self.watch(path)
        if watch.has_fragments:
            watch.answered_at = now
        if watch.is_untroubled:
            return
        with self._changing(watch):
            for detector in watch.concerned(fragment):
                detector.primary_answered()
            watch.forget_healthy()

    def primary_failed(
        self,
        path: str,
        error: BaseException,
        now: Millis,
        kind: FailureKind | None = None,
        *,
        fragment: int | None = None,
        began_at: Millis | None = None,
    ) -> Route:
        """Where this send continues: PRIMARY means that the caller gets the error. `kind` is what the classifier says unless
        the caller knows better. The send needed this fragment, and was begun at `began_at`."""
        kind = kind or self.kind_of(error)
        if not kind.is_outage:
            return Route.PRIMARY
        watch = self.watch(path)
        is_wait = kind is FailureKind.TIMEOUT and began_at is not None
        half_time = now - (now - (began_at or now)) // 2 if is_wait else NEVER
        with self._changing(watch):
            self._forgive(now)
            blamed = watch.to_blame(fragment, Failure(is_answer(error), half_time))
            started = watch.in_trouble(blamed).primary_failed(error, now)
            failed_over = self._advance(watch, now)
            # Not `route`: a send gets one random draw in a ramp, and has had it.
            over = [each for each in watch.concerned(fragment) if each.failed_over_at is not None]
            route = over[0].route(now) if over and self.backlog_queues else Route.PRIMARY
        if started:
            self._tell_of(watch, EventKind.TIMER_STARTED, now, error, blamed)
            self.wake()
        self._failed_over(watch, failed_over, now)
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
        self._tell(PairingEvent(EventKind.BACKLOG_SEND, now, self.watch(path).path, queue, len(messages)))

    def advance(self, now: Millis) -> list[Ping]:
        """Let time pass: fail over what is due, and return the pings to send now."""
        due: list[Ping] = []
        failed_over: list[tuple[EntityWatch, list[int | None]]] = []
        with self._changing():
            self._forgive(now)
            back = self._rotation.readmit(now)
            for watch in self._watches.values():
                failed_over.append((watch, self._advance(watch, now)))
                for fragment, detector in watch.detectors():
                    if detector.start_ping(now):
                        detector.ping_sooner(self._early())
                        due.append(watch.ping(fragment))
        self._readmitted(back, now)
        for watch, parts in failed_over:
            self._failed_over(watch, parts, now)
        return due

    def advance_failovers(self, now: Millis) -> None:
        """Let time pass without starting pings, so that a view shows what the next send would meet."""
        with self._lock:
            watches = list(self._watches.values())
        for watch in watches:
            self.route(watch.path, now)

    def next_action_at(self) -> Millis:
        with self._lock:
            watches = list(self._watches.values())
            detectors = (each for watch in watches for _, each in watch.detectors())
            soonest = min((each.next_action_at() for each in detectors), default=NEVER)
            return min(soonest, self._lookout.next_look_at())

    def failing_paths(self) -> set[str]:
        """Keys of the entities whose sends go, or may soon go, to the backlog."""
        with self._lock:
            return {key for key, each in self._watches.items() if each.is_failing()}

    def ping_answered(self, ping: Ping, now: Millis) -> None:
        self.meter.pinged(ping.path, now)
        watch = self.watch(ping.path)
        self._tell_of(watch, EventKind.PING, now, None, ping.fragment)
        self._recover(watch, [ping.fragment], now)

    def ping_failed(self, ping: Ping, error: BaseException, now: Millis) -> None:
        self.meter.pinged(ping.path, now)
        watch, kind = self.watch(ping.path), self.kind_of(error)
        with self._changing(watch):
            detector = watch.at(ping.fragment)
            if detector is not None:
                detector.ping_failed(error, kind.is_lasting)
        self._tell_of(watch, EventKind.PING, now, error, ping.fragment)

    def mark_healthy(self, path: str, now: Millis) -> None:
        """With all its fragments. An entity that has no sender is not failed over either."""
        watch = self._watches.get(path_key(path))
        if watch is not None:
            self._recover(watch, [fragment for fragment, _ in watch.detectors()], now)

    def _recover(self, watch: EntityWatch, parts: Sequence[int | None], now: Millis) -> None:
        recovered: list[int | None] = []
        with self._changing(watch):
            for fragment in parts:
                detector = watch.at(fragment)
                if detector is None:
                    continue
                # Before it recovers: senders look without the lock whether there is anything to decide.
                if self.options.ordered_recovery and detector.failed_over_at is not None:
                    watch.whole.is_catching_up |= watch.catching_up.start(now, watch.concerns(fragment))
                if detector.recover(now):
                    recovered.append(fragment)
            watch.forget_healthy()
        for fragment in recovered:
            self._tell_of(watch, EventKind.RECOVERED, now, None, fragment)
        if recovered:
            self.on_recovered(watch.path)
            self.wake()

    def state(self) -> PairState:
        with self._lock:
            entities = tuple(watch.state() for watch in self._watches.values())
            out_until = self._rotation.out_until
            queues = tuple(BacklogQueueState(path, out_until.get(i)) for i, path in self.backlog_queues.items())
        return PairState(entities, queues, bool(queues), self.backlog_error)

    def _forgive(self, now: Millis) -> None:
        """Under the lock. A failover needs an interval in which a send could have got through."""
        lost, before = self.lost(now), self._lost_before
        if lost > before:
            self._lost_before = lost
            for watch in self._watches.values():
                for _, detector in watch.detectors():
                    detector.forgive(lost - before, now)

    def _advance(self, watch: EntityWatch, now: Millis) -> list[int | None]:
        """Under the lock. The parts that are failed over by this."""
        over = [fragment for fragment, detector in watch.detectors() if detector.advance(now)]
        if None in over:
            watch.whole.is_catching_up = False
            watch.catching_up.pause()
        for fragment in over:
            watch.in_trouble(fragment).ping_sooner(self._early())
        watch.forget_healthy()
        return over

    def _early(self) -> Millis:
        """How much sooner than its interval a ping comes. An outage begins for many processes at one moment: without
        a lot for each, their first pings would all meet the primary together."""
        return int(self._early_max * self._random.random())

    def _failed_over(self, watch: EntityWatch, parts: Sequence[int | None], now: Millis) -> None:
        for fragment in parts:
            detector = watch.at(fragment)
            error = None if detector is None else detector.last_error
            self._tell_of(watch, EventKind.FAILED_OVER, now, error, fragment)
        if parts:
            self.wake()

    def _readmitted(self, indexes: list[int], now: Millis) -> None:
        for index in indexes:
            self._tell(PairingEvent(EventKind.QUEUE_READMITTED, now, queue=self.backlog_queues[index]))

    def _tell_of(
        self,
        watch: EntityWatch,
        kind: EventKind,
        now: Millis,
        error: BaseException | None = None,
        fragment: int | None = None,
    ) -> None:
        """An entity has one name in all events, whichever sender caused them."""
        self._tell(PairingEvent(kind, now, watch.path, error=error, fragment=fragment))

    def _tell(self, event: PairingEvent) -> None:
        tell(self.options.on_event, event)
