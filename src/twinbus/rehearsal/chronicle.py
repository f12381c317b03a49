"""What happened when: faults, and the events of the pair. Moments in; times to fail over and to recover out."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twinbus.meter.operation import Cause, Operation
from twinbus.pairing.events import EventKind, PairingEvent
from twinbus.rehearsal.script import Fault
from twinbus.rehearsal.sends import Span

FRAGMENT_MARK = " fragment "


class MomentKind(StrEnum):
    STEP = "step"
    FAULT = "fault"
    MENDED = "mended"
    FAILING = "failing"
    FAILED_OVER = "failed over"
    RECOVERED = "recovered"
    CAUGHT_UP = "caught up"
    QUEUE_OUT = "backlog queue out"


_BY_EVENT = {
    EventKind.TIMER_STARTED: MomentKind.FAILING,
    EventKind.FAILED_OVER: MomentKind.FAILED_OVER,
    EventKind.RECOVERED: MomentKind.RECOVERED,
    EventKind.CAUGHT_UP: MomentKind.CAUGHT_UP,
    EventKind.QUEUE_TAKEN_OUT: MomentKind.QUEUE_OUT,
}


@dataclass(frozen=True, slots=True)
class Moment:
    """`at_s` counts from when the first message is due; 0 for what comes before."""

    at_s: float
    kind: MomentKind
    text: str


class Chronicle:
    """Any thread may add to it. `hear` is called with each new moment."""

    def __init__(self, now_s: Callable[[], float], hear: Callable[[Moment], None]) -> None:
        self.moments: list[Moment] = []
        self.pings = self.pings_answered = 0
        self.backlog_sends: Counter[str] = Counter()
        self.looks = 0
        """Into backlog queues, for the order of message sessions."""
        self.followed = 0
        """Messages that followed their session into the backlog of a recovered entity."""
        self._failed_over: set[tuple[str | None, int | None]] = set()
        self._now_s = now_s
        self._hear = hear
        self._lock = threading.Lock()

    def step(self, text: str) -> None:
        self._add(MomentKind.STEP, text)

    def fault(self, fault: Fault, is_mended: bool) -> None:
        self._add(MomentKind.MENDED if is_mended else MomentKind.FAULT, str(fault))

    def restarted(self) -> None:
        """A new pair has failed over nothing yet."""
        with self._lock:
            self._failed_over.clear()

    def pairing(self, event: PairingEvent) -> None:
        if event.kind is EventKind.PING:
            with self._lock:
                self.pings += 1
                self.pings_answered += event.error is None
        elif event.kind is EventKind.BACKLOG_SEND:
            with self._lock:
                self.backlog_sends[event.path or ""] += event.count
                if not any(path == event.path for path, _ in self._failed_over):
                    self.followed += event.count
        elif event.kind in _BY_EVENT:
            part = event.path, event.fragment
            with self._lock:
                if event.kind is EventKind.FAILED_OVER:
                    self._failed_over.add(part)
                elif event.kind is EventKind.RECOVERED:
                    self._failed_over.discard(part)
            self._add(_BY_EVENT[event.kind], _named(event))

    def record(self, operation: Operation, /) -> None:
        """As the meter of a pair."""
        if operation.cause is Cause.PEEK:
            with self._lock:
                self.looks += 1

    def _add(self, kind: MomentKind, text: str) -> None:
        moment = Moment(self._now_s(), kind, text)
        with self._lock:
            self.moments.append(moment)
        self._hear(moment)


def _named(event: PairingEvent) -> str:
    name = event.path or event.queue or ""
    return name if event.fragment is None else f"{name}{FRAGMENT_MARK}{event.fragment}"


@dataclass(frozen=True, slots=True)
class Outage:
    """How an entity went through a fault: seconds from its start to the failover, and from its end to the recovery.

    None if that did not happen: the fault did not affect the entity, was too short, or was not one that fails over.
    """

    failed_over_after_s: float | None = None
    recovered_after_s: float | None = None


def outages(moments: Sequence[Moment], span: Span, until_s: float) -> dict[str, Outage]:
    """Of every entity that failed over between the start of a fault and `until_s`, when the next one starts."""
    found: dict[str, Outage] = {}
    for place, moment in enumerate(moments):
        if moment.kind is MomentKind.FAILED_OVER and span.begin_s <= moment.at_s < until_s:
            entity = moment.text.partition(FRAGMENT_MARK)[0]
            back = _next(moments[place:], MomentKind.RECOVERED, moment.text)
            # A ping can get through before the fault player notices that the fault is over.
            after = None if back is None else max(0.0, back - span.end_s)
            found.setdefault(entity, Outage(moment.at_s - span.begin_s, after))
    return found


def _next(moments: Iterable[Moment], kind: MomentKind, text: str) -> float | None:
    return next((moment.at_s for moment in moments if moment.kind is kind and moment.text == text), None)
