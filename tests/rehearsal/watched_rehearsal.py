"""A rehearsal whose clients are watched: its report, and the account of what they did."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.rehearsal.counted_lines import CountedLine, LineKey, Step, add_up
from tests.rehearsal.sdk_wire import watched_sdk
from tests.rehearsal.wire_count import WireCount
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.clock import SteadyClock
from twinbus.meter.operation import Cause, Operation
from twinbus.model.paths import is_backlog_queue
from twinbus.pairing.deciding.entity_watch import Ping
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pings import Pings
from twinbus.pairing.syphon.service import find_backlog, run_syphons
from twinbus.rehearsal.bill import Bill, bill_of
from twinbus.rehearsal.drain import Drained
from twinbus.rehearsal.entities import EntityKind, rehearsed_entities
from twinbus.rehearsal.rehearsal import Rehearsal
from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
from twinbus.rehearsal.report import RehearsalReport
from twinbus.rehearsal.script import Fault, FaultKind, Script
from twinbus.rehearsal.stage import Place, Stage
from twinbus.rehearsal.throwaway_stage import ThrowAwayStage, throw_away_stage

LOG_LOSS_S = 2.25
"""What a killed namespace may not have put down yet: the second that was going on, and what it handed over once a second."""


class MeteredDrain:
    """The syphon as `twinbus syphon --until-empty` runs it, in this process, with a meter on its own side."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def record(self, operation: Operation, /) -> None:
        self.operations.append(operation)

    def prepare(self) -> None:
        """It is here."""

    def drain(self, stage: Stage) -> Drained:
        begun = time.monotonic()
        options = SendAvailabilityPairedNamespaceOptions(meter=self)
        primary, secondary = stage.primary.connection_string, stage.secondary.connection_string
        with stage.secondary.administration() as administration:
            pair = find_backlog(primary, secondary, administration, stage.name)
            asyncio.run(run_syphons([pair], options, SteadyClock(), asyncio.Event(), until_empty=True))
        return Drained(pair.tally.moved, pair.tally.dead_lettered, time.monotonic() - begun)

    def close(self) -> None:
        """It has ended by itself."""

    def steps(self, subscriptions: Mapping[str, tuple[str, ...]]) -> Iterator[Step]:
        served: set[str] = set()
        for each in self.operations:
            namespace = "secondary" if is_backlog_queue(each.entity) else "primary"
            # A pump that waits again after messages gives no credit anew: its wait is part of the receive before.
            is_sure = each.cause is not Cause.EMPTY_RECEIVE or each.entity not in served
            served |= {each.entity} if each.cause is Cause.RECEIVE else set()
            key = LineKey(namespace, each.entity, each.cause, each.path)
            for number in range(each.operations):
                yield Step(0.0, key, each.units if number == 0 else 0, None, is_sure)
                for subscription in subscriptions.get(each.entity, ()) if each.cause is Cause.SEND else ():
                    yield Step(0.0, LineKey(namespace, subscription, Cause.COPY, "primary"), 0, None, True)


@contextmanager
def watched_pings() -> Iterator[list[Step]]:
    """Pings of pairs that are made in this block. They go over our own client, so nothing of the SDK sees them."""
    steps: list[Step] = []
    send = Pings._send

    async def watched(pings: Pings, ping: Ping) -> None:
        connected_at, link = pings._connected_at, pings._links._senders.get(ping.path)
        was_linked = link is not None and link.fault is None
        is_answered = False
        try:
            await send(pings, ping)
            is_answered = True
        finally:
            # A ping that found nobody to connect to was not sent.
            if is_answered or was_linked or pings._connected_at > connected_at:
                key = LineKey("primary", ping.path, Cause.PING, "primary")
                steps.append(Step(time.monotonic(), key, 1, None, is_answered))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pings, "_send", watched)
        yield steps


class WatchedStage:
    """A throw-away pair. `is_gentle`: what the script kills is stopped in good order, as for an upgrade; it is away all
    the same, and its log is whole."""

    def __init__(self, stage: ThrowAwayStage, *, is_gentle: bool) -> None:
        self.killed_at: list[float] = []
        self.prefix, self.name, self.possible = stage.prefix, stage.name, stage.possible
        self.primary, self.secondary = stage.primary, stage.secondary
        self._stage = stage
        self._is_gentle = is_gentle

    def begin(self, fault: Fault) -> None:
        if fault.kind is FaultKind.KILL and self._is_gentle:
            self._stage._primary.ask_to_stop()
            self._stage._primary.wait()
            return
        if fault.kind is FaultKind.KILL:
            self.killed_at.append(time.monotonic())
        self._stage.begin(fault)

    def mend(self, fault: Fault) -> None:
        self._stage.mend(fault)

    @property
    def namespaces(self) -> dict[int, str]:
        """Names by port."""
        return {port: name for name in ("primary", "secondary") for port in _ports(getattr(self, name))}


def watched_rehearsal(
    script: Script, *, seed: int, is_gentle: bool
) -> tuple[RehearsalReport, Mapping[LineKey, CountedLine]]:
    """The report, and what its clients did until the bill was made."""
    settings = RehearsalSettings(seed=seed, failover_interval_s=0.2, ping_interval_s=1.0)
    drain = MeteredDrain()
    billed_at: list[float] = []

    def bill(stage: Stage) -> Bill | None:
        billed_at.append(time.monotonic())
        return bill_of(stage, None)

    with watched_sdk() as wire, watched_pings() as pings, throw_away_stage() as made:
        stage = WatchedStage(made, is_gentle=is_gentle)
        report = Rehearsal(stage, script, settings, drain, bill, lambda _: None).run()
    topics = {each.path: each.outlets for each in rehearsed_entities("") if each.kind is EntityKind.TOPIC}
    counted = [*WireCount(wire, stage.namespaces, topics).steps(), *pings, *drain.steps(topics)]
    steps = [step for step in counted if step.at_s < billed_at[0]]
    return report, add_up(_less_sure(steps, stage.killed_at))


def _less_sure(steps: Iterable[Step], killed_at: Sequence[float]) -> Iterator[Step]:
    """Operations of the primary that its log may have lost when it was killed."""
    for step in steps:
        is_lost = step.key.namespace == "primary" and any(0 <= at - step.at_s < LOG_LOSS_S for at in killed_at)
        yield step._replace(is_sure=False) if is_lost else step


def _ports(place: Place) -> Iterator[int]:
    assert place.endpoint is not None
    http_port = urlsplit(place.endpoint).port
    assert http_port is not None
    yield http_port
    yield parse_connection_string(place.connection_string).port
