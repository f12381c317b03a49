"""The outcome of every planned send, and sums over them: availability and latency, before, during and after faults.

A send counts as available if it was accepted. It is missed if its sender was still busy with earlier ones for longer than an
application would wait. Latency counts from the moment the message was due, not from when its sender was free: otherwise a sender
that is stuck would look quick.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from twinbus.rehearsal.ledger import Sender


@dataclass(frozen=True, slots=True)
class Percentiles:
    """In milliseconds, by nearest rank: always a value that was measured."""

    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


def percentiles(seconds: Iterable[float]) -> Percentiles | None:
    """None if nothing was measured."""
    ordered = sorted(1000 * each for each in seconds)
    if not ordered:
        return None
    return Percentiles(len(ordered), _rank(ordered, 50), _rank(ordered, 90), _rank(ordered, 99), ordered[-1])


def _rank(ordered: list[float], percent: int) -> float:
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


class Outcome(StrEnum):
    ACCEPTED = "accepted"
    REFUSED = "refused"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class SendRecord:
    """Seconds since the first message was due."""

    sender: Sender
    entity: str
    due_s: float
    ended_s: float
    outcome: Outcome
    is_free: bool = False  # without a key, to a partitioned entity: any fragment takes it


@dataclass(frozen=True, slots=True)
class Span:
    """From the start of a fault to its end."""

    begin_s: float
    end_s: float

    def __contains__(self, at_s: float) -> bool:
        return self.begin_s <= at_s < self.end_s


class Phase(StrEnum):
    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


def phase_of(due_s: float, faults: Sequence[Span]) -> Phase:
    """Before the first fault; during any; after at least one."""
    if any(due_s in span for span in faults):
        return Phase.DURING
    return Phase.AFTER if any(due_s >= span.end_s for span in faults) else Phase.BEFORE


@dataclass(frozen=True, slots=True)
class Availability:
    planned: int
    accepted: int
    refused: int
    missed: int

    @property
    def percent(self) -> float:
        return 100.0 * self.accepted / self.planned if self.planned else 100.0


def availability(sends: Iterable[SendRecord]) -> Availability:
    outcomes = [send.outcome for send in sends]
    return Availability(len(outcomes), *(outcomes.count(outcome) for outcome in Outcome))


class SendLog:
    """All sends so far. Any thread may add to it; counts are available at once, however many sends there are."""

    def __init__(self) -> None:
        self.records: list[SendRecord] = []
        self._counts: Counter[tuple[Sender, Outcome]] = Counter()
        self._lock = threading.Lock()

    def add(self, record: SendRecord) -> None:
        with self._lock:
            self.records.append(record)
            self._counts[record.sender, record.outcome] += 1

    def availability(self, sender: Sender) -> Availability:
        with self._lock:
            counts = [self._counts[sender, outcome] for outcome in Outcome]
        return Availability(sum(counts), *counts)


@dataclass(frozen=True, slots=True)
class LatencyLine:
    sender: Sender
    phase: Phase
    availability: Availability
    latency: Percentiles | None


def latency_lines(sends: Sequence[SendRecord], faults: Sequence[Span]) -> tuple[LatencyLine, ...]:
    lines = []
    for sender in Sender:
        for phase in Phase:
            own = [send for send in sends if send.sender is sender and phase_of(send.due_s, faults) is phase]
            took = (send.ended_s - send.due_s for send in own if send.outcome is Outcome.ACCEPTED)
            lines.append(LatencyLine(sender, phase, availability(own), percentiles(took)))
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class Second:
    """One second of one sender, for plots."""

    at_s: int
    accepted: int
    failed: int
    p50_ms: float | None
    max_ms: float | None


def by_second(sends: Iterable[SendRecord], sender: Sender, duration_s: float) -> tuple[Second, ...]:
    buckets: list[list[SendRecord]] = [[] for _ in range(int(duration_s) + 1)]
    for send in sends:
        if send.sender is sender:
            buckets[min(int(send.due_s), len(buckets) - 1)].append(send)
    return tuple(_second(at_s, bucket) for at_s, bucket in enumerate(buckets))


def _second(at_s: int, sends: Sequence[SendRecord]) -> Second:
    took = percentiles(send.ended_s - send.due_s for send in sends if send.outcome is Outcome.ACCEPTED)
    accepted = took.count if took is not None else 0
    return Second(
        at_s,
        accepted,
        len(sends) - accepted,
        took.p50_ms if took is not None else None,
        took.max_ms if took is not None else None,
    )
