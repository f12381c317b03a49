"""The ledger: the answers to senders, what receivers got and what is left at the end in; whether it all balances out.

It knows the promise and nothing about how it is kept. For every sender and every outlet (a queue or a subscription):

    accepted = delivered + waiting + dead-lettered        and what is missing is lost

A message counts once, at the first of these places that has it. In addition the ledger counts what may happen and what must not:

* duplicates      present under a second sequence number: allowed, unless the entity detects duplicates
* redelivered     delivered again under its number, because its settlement did not arrive: allowed (at-least-once)
* unconfirmed     present although its sender got an error, because the answer was lost: allowed
* reordered       in a message session, after a later one: allowed around an outage, and reported
* altered         not what was sent: never
* strangers       sent by nobody: never
"""

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from twinbus.rehearsal.entities import RehearsedEntity
from twinbus.rehearsal.traffic import PlannedMessage


class Sender(StrEnum):
    PAIRED = "paired"
    UNPAIRED = "unpaired"


def message_id(sender: Sender, number: int) -> str:
    return f"{sender}-{number:07d}"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message as it was received, or found in a queue."""

    message_id: str
    sequence_number: int
    session_id: str | None
    partition_key: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """The account of one sender at one outlet."""

    sender: Sender
    outlet: str
    accepted: int
    delivered: int
    waiting: int
    dead_lettered: int
    lost: int
    duplicates: int
    redelivered: int
    unconfirmed: int
    reordered: int
    altered: int
    detects_duplicates: bool

    @property
    def is_balanced(self) -> bool:
        assert self.accepted == self.delivered + self.waiting + self.dead_lettered + self.lost
        return not (self.lost or self.altered or (self.duplicates and self.detects_duplicates))


@dataclass(frozen=True, slots=True)
class SessionOrder:
    """How many messages of a message session arrived, and how many of them after a later one."""

    sender: Sender
    outlet: str
    session_id: str
    delivered: int
    reordered: int


@dataclass(frozen=True, slots=True)
class Balance:
    lines: tuple[LedgerLine, ...]
    sessions: tuple[SessionOrder, ...]
    strangers: tuple[str, ...]

    @property
    def is_balanced(self) -> bool:
        return not self.strangers and all(line.is_balanced for line in self.lines)

    @property
    def lost(self) -> int:
        return sum(line.lost for line in self.lines)


@dataclass(slots=True)
class _Record:
    planned: PlannedMessage
    sender: Sender
    is_accepted: bool = False


@dataclass(slots=True)
class _Outlet:
    """What happened to messages at one outlet, by message id."""

    entity: RehearsedEntity
    numbers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    left: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    waiting: set[str] = field(default_factory=set)
    dead_lettered: set[str] = field(default_factory=set)
    duplicates: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    redelivered: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    altered: set[str] = field(default_factory=set)
    session_latest: dict[tuple[Sender, str], int] = field(default_factory=dict)
    session_delivered: dict[tuple[Sender, str], int] = field(default_factory=lambda: defaultdict(int))
    session_reordered: dict[tuple[Sender, str], int] = field(default_factory=lambda: defaultdict(int))


class Ledger:
    """Any thread may report to it. A message is recorded before it is sent, so none can arrive unknown."""

    def __init__(self, entities: Iterable[RehearsedEntity]) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, _Record] = {}
        self._outlets = {path: _Outlet(entity) for entity in entities for path in entity.outlets}
        self._strangers: set[str] = set()
        self._outstanding = 0

    def sending(self, planned: PlannedMessage, sender: Sender) -> str:
        """Records a message that is about to be sent, and returns its message id."""
        name = message_id(sender, planned.number)
        with self._lock:
            assert name not in self._records
            self._records[name] = _Record(planned, sender)
        return name

    def accepted(self, name: str) -> None:
        with self._lock:
            record = self._records[name]
            record.is_accepted = True
            # It may have been delivered before its sender reads the answer.
            self._outstanding += sum(name not in self._outlets[path].numbers for path in record.planned.entity.outlets)

    def delivered(self, outlet: str, arrival: Arrival) -> None:
        with self._lock:
            record = self._records.get(arrival.message_id)
            if record is None:
                self._strangers.add(arrival.message_id)
                return
            self._note_delivery(self._outlets[outlet], record, arrival)

    def waiting(self, outlet: str, arrivals: Iterable[Arrival]) -> None:
        """What a queue or subscription of the primary still holds."""
        for name in self._left(outlet, arrivals):
            self._outlets[outlet].waiting.add(name)

    def dead_lettered(self, outlet: str, arrivals: Iterable[Arrival]) -> None:
        for name in self._left(outlet, arrivals):
            self._outlets[outlet].dead_lettered.add(name)

    def in_backlog(self, message_ids: Iterable[str], *, is_dead_lettered: bool = False) -> None:
        """What waits in backlog queues, or was dead-lettered there, counts at every outlet of its entity."""
        with self._lock:
            for name in message_ids:
                record = self._records.get(name)
                if record is None:
                    self._strangers.add(name)
                    continue
                for path in record.planned.entity.outlets:
                    place = self._outlets[path]
                    (place.dead_lettered if is_dead_lettered else place.waiting).add(name)

    def outstanding(self) -> int:
        """Deliveries of accepted messages that have not been seen yet."""
        with self._lock:
            return self._outstanding

    def delivered_count(self) -> int:
        with self._lock:
            return sum(len(outlet.numbers) for outlet in self._outlets.values())

    def balance(self) -> Balance:
        with self._lock:
            lines = [self._line(sender, path, outlet) for sender in Sender for path, outlet in self._outlets.items()]
            sessions = [
                SessionOrder(sender, path, session, count, outlet.session_reordered[sender, session])
                for path, outlet in self._outlets.items()
                for (sender, session), count in sorted(outlet.session_delivered.items())
            ]
            return Balance(tuple(lines), tuple(sessions), tuple(sorted(self._strangers)))

    def _note_delivery(self, outlet: _Outlet, record: _Record, arrival: Arrival) -> None:
        name, planned = arrival.message_id, record.planned
        is_first = name not in outlet.numbers
        self._outstanding -= is_first and record.is_accepted
        if arrival.sequence_number in outlet.numbers[name]:
            outlet.redelivered[name] += 1
        elif not is_first:
            outlet.duplicates[name] += 1
        outlet.numbers[name].add(arrival.sequence_number)
        if not _is_intact(planned, arrival):
            outlet.altered.add(name)
        if is_first and planned.session_id is not None:
            self._note_order(outlet, (record.sender, planned.session_id), planned.number)

    @staticmethod
    def _note_order(outlet: _Outlet, key: tuple[Sender, str], number: int) -> None:
        outlet.session_delivered[key] += 1
        latest = outlet.session_latest.get(key, -1)
        if number < latest:
            outlet.session_reordered[key] += 1
        outlet.session_latest[key] = max(latest, number)

    def _left(self, path: str, arrivals: Iterable[Arrival]) -> list[str]:
        """Ids of those that were sent. Others are strangers, and a second copy is a duplicate."""
        known = []
        with self._lock:
            outlet = self._outlets[path]
            for arrival in arrivals:
                name = arrival.message_id
                if name not in self._records:
                    self._strangers.add(name)
                    continue
                seen = outlet.numbers.get(name, set()) | outlet.left[name]
                if seen and arrival.sequence_number not in seen:
                    outlet.duplicates[name] += 1
                outlet.left[name].add(arrival.sequence_number)
                if not _is_intact(self._records[name].planned, arrival):
                    outlet.altered.add(name)
                known.append(name)
        return known

    def _line(self, sender: Sender, path: str, outlet: _Outlet) -> LedgerLine:
        own = {
            name: record
            for name, record in self._records.items()
            if record.sender is sender and record.planned.entity is outlet.entity
        }
        accepted = {name for name, record in own.items() if record.is_accepted}
        delivered = accepted & outlet.numbers.keys()
        waiting = (accepted - delivered) & outlet.waiting
        dead_lettered = (accepted - delivered - waiting) & outlet.dead_lettered
        there = outlet.numbers.keys() | outlet.waiting | outlet.dead_lettered
        return LedgerLine(
            sender,
            path,
            accepted=len(accepted),
            delivered=len(delivered),
            waiting=len(waiting),
            dead_lettered=len(dead_lettered),
            lost=len(accepted - delivered - waiting - dead_lettered),
            duplicates=sum(count for name, count in outlet.duplicates.items() if name in own),
            redelivered=sum(count for name, count in outlet.redelivered.items() if name in own),
            unconfirmed=len((own.keys() - accepted) & there),
            reordered=sum(count for (whose, _), count in outlet.session_reordered.items() if whose is sender),
            altered=len(outlet.altered & own.keys()),
            detects_duplicates=outlet.entity.detects_duplicates,
        )


def _is_intact(planned: PlannedMessage, arrival: Arrival) -> bool:
    return (
        arrival.body == planned.body(arrival.message_id)
        and arrival.session_id == planned.session_id
        and arrival.partition_key == planned.partition_key
    )
