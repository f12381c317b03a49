"""What a rehearsal found: values only. `report_text`, `report_html` and `as_document` show them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import datetime
from math import inf
from typing import Any

from twinbus.rehearsal.bill import Bill
from twinbus.rehearsal.chronicle import Chronicle, Moment, MomentKind, Outage, outages
from twinbus.rehearsal.drain import Drained
from twinbus.rehearsal.fault_player import PlayedFault
from twinbus.rehearsal.ledger import Balance, LedgerLine, Sender
from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
from twinbus.rehearsal.sends import (
    Availability,
    LatencyLine,
    Second,
    SendRecord,
    Span,
    availability,
    by_second,
    latency_lines,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """At one moment: deliveries so far, and messages waiting in the backlog."""

    at_s: float
    delivered: int
    backlog: int


@dataclass(frozen=True, slots=True)
class EntityInFault:
    """How both senders to one entity came through a fault."""

    entity: str
    paired: Availability
    unpaired: Availability
    outage: Outage

    @property
    def is_untouched(self) -> bool:
        return all(share.accepted == share.planned for share in (self.paired, self.unpaired))


@dataclass(frozen=True, slots=True)
class FaultReport:
    text: str
    span: Span
    paired: Availability
    unpaired: Availability
    entities: tuple[EntityInFault, ...]
    free: tuple[Availability, Availability]
    """Of messages without a key to the partitioned queue: of the paired sender, and of the unpaired one."""

    @property
    def failed_over_after_s(self) -> float | None:
        """The slowest entity's."""
        return _slowest(each.outage.failed_over_after_s for each in self.entities)

    @property
    def recovered_after_s(self) -> float | None:
        return _slowest(each.outage.recovered_after_s for each in self.entities)


@dataclass(frozen=True, slots=True)
class OrderReport:
    """Of one sender's messages with a session id: how many arrived, and how many of them after a later one of their session. The
    order costs looks into backlog queues, and two more operations for each message that followed others into the backlog."""

    sender: Sender
    delivered: int
    reordered: int
    looks: int = 0
    followed: int = 0


@dataclass(frozen=True, slots=True)
class RehearsalReport:
    started_at: datetime
    settings: RehearsalSettings
    duration_s: float
    took_s: float
    balance: Balance
    paired: Availability
    unpaired: Availability
    faults: tuple[FaultReport, ...]
    latency: tuple[LatencyLine, ...]
    order: tuple[OrderReport, ...]
    failovers: int
    pings: int
    pings_answered: int
    backlog_sends: dict[str, int]
    drained: Drained
    bill: Bill | None
    moments: tuple[Moment, ...]
    samples: tuple[Sample, ...]
    seconds: dict[Sender, tuple[Second, ...]]

    @property
    def is_balanced(self) -> bool:
        return self.balance.is_balanced

    @property
    def verdict(self) -> str:
        """One sentence."""
        accepted = sum(line.accepted for line in self.balance.lines)
        if self.is_balanced:
            return f"The ledger balances: {accepted} deliveries were due, and none was lost."
        if self.balance.lost:
            return f"The ledger does not balance: {self.balance.lost} of {accepted} deliveries that were due are lost."
        return "The ledger does not balance: something arrived that must not arrive."


def fault_reports(
    played: Sequence[PlayedFault], moments: Sequence[Moment], sends: Sequence[SendRecord]
) -> tuple[FaultReport, ...]:
    begins = [*(each.span.begin_s for each in played), inf]
    return tuple(
        _fault_report(str(each.fault), each.span, moments, sends, until_s)
        for each, until_s in zip(played, begins[1:], strict=True)
    )


def _fault_report(
    text: str, span: Span, moments: Sequence[Moment], sends: Sequence[SendRecord], until_s: float
) -> FaultReport:
    hit = [send for send in sends if send.due_s in span]
    found = outages(moments, span, until_s)
    entities = tuple(
        EntityInFault(entity, *_both([send for send in hit if send.entity == entity]), found.get(entity, Outage()))
        for entity in sorted({send.entity for send in sends})
    )
    return FaultReport(text, span, *_both(hit), entities, _both([send for send in hit if send.is_free]))


def _both(sends: Sequence[SendRecord]) -> tuple[Availability, Availability]:
    """Of the paired sender, and of the unpaired one."""
    paired, unpaired = (availability(send for send in sends if send.sender is sender) for sender in Sender)
    return paired, unpaired


def _slowest(seconds: Iterable[float | None]) -> float | None:
    return max((each for each in seconds if each is not None), default=None)


def make_report(
    *,
    started_at: datetime,
    settings: RehearsalSettings,
    duration_s: float,
    took_s: float,
    balance: Balance,
    sends: Sequence[SendRecord],
    played: Sequence[PlayedFault],
    chronicle: Chronicle,
    samples: Sequence[Sample],
    drained: Drained,
    bill: Bill | None,
) -> RehearsalReport:
    paired, unpaired = _both(sends)
    return RehearsalReport(
        started_at=started_at,
        settings=settings,
        duration_s=duration_s,
        took_s=took_s,
        balance=balance,
        paired=paired,
        unpaired=unpaired,
        faults=fault_reports(played, chronicle.moments, sends),
        latency=latency_lines(sends, [each.span for each in played]),
        order=_order(balance, chronicle),
        failovers=sum(moment.kind is MomentKind.FAILED_OVER for moment in chronicle.moments),
        pings=chronicle.pings,
        pings_answered=chronicle.pings_answered,
        backlog_sends=dict(sorted(chronicle.backlog_sends.items())),
        drained=drained,
        bill=bill,
        moments=tuple(chronicle.moments),
        samples=tuple(samples),
        seconds={sender: by_second(sends, sender, duration_s) for sender in Sender},
    )


def _order(balance: Balance, chronicle: Chronicle) -> tuple[OrderReport, ...]:
    reports = []
    for sender in Sender:
        own = [each for each in balance.sessions if each.sender is sender]
        cost = (chronicle.looks, chronicle.followed) if sender is Sender.PAIRED else (0, 0)
        delivered, reordered = sum(each.delivered for each in own), sum(each.reordered for each in own)
        reports.append(OrderReport(sender, delivered, reordered, *cost))
    return tuple(reports)


def as_document(report: RehearsalReport) -> dict[str, Any]:
    """For JSON: every value of the report, and what follows from it."""
    document: dict[str, Any] = _plain(report)
    return document | {"is_balanced": report.is_balanced, "verdict": report.verdict}


def _plain(value: object) -> Any:
    match value:
        case Availability():
            return {**asdict(value), "percent": round(value.percent, 3)}
        case LedgerLine():
            return {**asdict(value), "is_balanced": value.is_balanced}
        case datetime():
            return value.isoformat()
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _ if is_dataclass(value):
            return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
        case _:
            return value


@dataclass(frozen=True, slots=True)
class EntityStatus:
    path: str
    condition: str
    backlog_sends: int


@dataclass(frozen=True, slots=True)
class Status:
    """`elapsed_s` counts from when the first message was due."""

    elapsed_s: float
    duration_s: float
    step: str
    paired: Availability
    unpaired: Availability
    delivered: int
    outstanding: int
    backlog: int
    entities: tuple[EntityStatus, ...]
    moments: tuple[Moment, ...]
