"""A rehearsal from its first message to its report.

entities, pair > senders and receivers, while the script plays > all is healthy > drain > receivers finish > check
what is left > report
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from twinbus.errors import MessagingError
from twinbus.pairing import Availability as EntityAvailability
from twinbus.pairing import PairedNamespaceClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from twinbus.rehearsal.bill import Bill
from twinbus.rehearsal.chronicle import Chronicle, Moment
from twinbus.rehearsal.drain import Drain, Drained
from twinbus.rehearsal.entities import (
    LOCK_DURATION,
    LeftBehind,
    create_entity,
    delete_entity,
    rehearsed_entities,
    remove_all,
)
from twinbus.rehearsal.fault_player import FaultPlayer
from twinbus.rehearsal.interruption import uninterrupted
from twinbus.rehearsal.ledger import Ledger, Sender
from twinbus.rehearsal.paired_application import PairedApplication
from twinbus.rehearsal.receivers import Receivers
from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
from twinbus.rehearsal.remains import is_empty, note_remains
from twinbus.rehearsal.report import EntityStatus, RehearsalReport, Sample, Status, make_report
from twinbus.rehearsal.script import FaultKind, Script, jittered
from twinbus.rehearsal.senders import LANE_COUNT, TrafficSender
from twinbus.rehearsal.sends import SendLog
from twinbus.rehearsal.stage import Stage
from twinbus.rehearsal.traffic import plan_traffic

LEAD_S = 0.5
"""From the time that all connections are open to the first message."""

RECOVERY_WAIT_S = 60.0
_RECOVERED = {EntityAvailability.HEALTHY, EntityAvailability.CATCHING_UP}
WAITING, DRAINING = "waiting until everything is healthy", "draining the backlog"
QUIET_S = LOCK_DURATION.total_seconds() + 5.0
"""Longer than a lock: a message whose receiver was disconnected has come again by then, or never will."""

EMPTY_LOOK_S = 3.0
"""Not sooner: a peek is an operation too, and would be on the bill."""

PAIRING_TIMEOUT = timedelta(seconds=10)
LOOK_S = 0.1
SAMPLE_S = 0.5
BACKLOG_QUEUE_COUNT = 4

# The official client's own retries, the same for both senders: one, after a short time.
CLIENT_OPTIONS: dict[str, Any] = {"retry_total": 1, "retry_backoff_factor": 0.1, "retry_mode": "fixed"}


class Rehearsal:
    """For one `run`. Any thread may ask for `status` at any time."""

    def __init__(
        self,
        stage: Stage,
        script: Script,
        settings: RehearsalSettings,
        drain: Drain,
        bill: Callable[[Stage], Bill | None],
        hear: Callable[[Moment], None],
    ) -> None:
        refused = script.kinds - stage.possible - {FaultKind.RESTART}
        if refused:
            raise MessagingError(
                f"Not allowed here: {', '.join(sorted(refused))}. Allow it, or remove it from the script."
            )
        random = Random(settings.seed)
        self._stage = stage
        self._script = jittered(script, random)
        self._settings = settings
        self._drain = drain
        self._bill = bill
        self._entities = rehearsed_entities(stage.prefix)
        self._plan = plan_traffic(random, self._entities, settings.rate, script.duration_s, LANE_COUNT)
        self._ledger = Ledger(self._entities)
        self.sends = SendLog()
        self._samples: list[Sample] = []
        self._drained: Drained | None = None
        self._application: PairedApplication | None = None
        self._step = "getting ready"
        self._started_at: float | None = None
        self._chronicle = Chronicle(self._now, hear)

    def run(self) -> RehearsalReport:
        began_at, began = datetime.now(UTC), time.monotonic()
        self._enter(f"starting the syphon's engine, {self._settings.engine}")
        self._drain.prepare()
        with self._created_entities(), self._sampled():
            played, bill = self._play_and_drain()
        return make_report(
            started_at=began_at,
            settings=self._settings,
            duration_s=self._script.duration_s,
            took_s=time.monotonic() - began,
            balance=self._ledger.balance(),
            sends=self.sends.records,
            played=played.played,
            chronicle=self._chronicle,
            samples=self._samples,
            drained=self._drained or Drained(0, 0, 0.0),
            bill=bill,
        )

    def status(self) -> Status:
        return Status(
            elapsed_s=self._now(),
            duration_s=self._script.duration_s,
            step=self._step,
            paired=self.sends.availability(Sender.PAIRED),
            unpaired=self.sends.availability(Sender.UNPAIRED),
            delivered=self._ledger.delivered_count(),
            outstanding=self._ledger.outstanding(),
            backlog=self._backlog(),
            entities=self._entity_states(),
            moments=tuple(self._chronicle.moments),
        )

    def _play_and_drain(self) -> tuple[FaultPlayer, Bill | None]:
        with self._paired() as application:
            with self._receiving():
                player = self._play(application)
                self._wait_until_healthy(application.client)
                self._enter(DRAINING)
                self._drained = self._drain.drain(self._stage)
                self._enter("receiving the rest")
                self._wait_until_received()
            # Before the peeks that follow: they are operations too, but not the application's.
            self._enter("adding up the bill")
            bill = self._bill(self._stage)
            self._enter("checking what is left")
            note_remains(self._stage, self._entities, application.client.backlog_queues, self._ledger)
        return player, bill

    def _play(self, application: PairedApplication) -> FaultPlayer:
        unpaired = self._stage.primary.client(**CLIENT_OPTIONS)
        senders = [
            TrafficSender(who, client, self._plan, self._ledger, self._settings, self.sends)
            for who, client in ((Sender.PAIRED, application.client), (Sender.UNPAIRED, unpaired))
        ]

        def renew() -> PairedNamespaceClient:
            self._chronicle.restarted()
            return application.restart()

        player = FaultPlayer(self._stage, self._script, self._chronicle.fault, lambda: senders[0].restart(renew))
        playing: list[FaultPlayer | TrafficSender] = [player, *senders]
        try:
            for sender in senders:
                sender.open()
            self._started_at = started_at = time.monotonic() + LEAD_S
            self._enter("sending")
            for each in playing:
                each.start(started_at)
            for each in playing:
                each.wait()
        finally:
            with uninterrupted():
                application.stop()
                for each in playing:
                    each.stop()
                for each in playing:
                    each.join()
                unpaired.close()
        return player

    def _wait_until_healthy(self, pair: PairedNamespaceClient) -> None:
        """What still catches up does so until the backlog is drained, which comes next."""
        self._enter(WAITING)
        deadline = time.monotonic() + RECOVERY_WAIT_S
        while any(set(each.availabilities) - _RECOVERED for each in pair.state().entities):
            if time.monotonic() > deadline:
                return
            time.sleep(LOOK_S)

    def _wait_until_received(self) -> None:
        """Until nothing is outstanding, or it is certain that nothing more will come."""
        count, since = self._ledger.delivered_count(), time.monotonic()
        while self._ledger.outstanding():
            time.sleep(LOOK_S)
            quiet_s = time.monotonic() - since
            if self._ledger.delivered_count() != count:
                count, since = self._ledger.delivered_count(), time.monotonic()
            elif quiet_s > QUIET_S or (quiet_s > EMPTY_LOOK_S and is_empty(self._stage, self._entities)):
                return

    @contextlib.contextmanager
    def _created_entities(self) -> Iterator[None]:
        self._enter("creating entities")
        are_created = False
        with self._stage.primary.administration() as administration:
            try:
                for entity in self._entities:
                    create_entity(administration, entity)
                are_created = True
                yield
            finally:
                if self._stage.prefix:
                    deletions = {each.path: partial(delete_entity, administration, each) for each in self._entities}
                    # If they could not be created, that error matters more.
                    with uninterrupted(), contextlib.nullcontext() if are_created else contextlib.suppress(LeftBehind):
                        remove_all("primary", deletions)

    @contextlib.contextmanager
    def _paired(self) -> Iterator[PairedApplication]:
        options = SendAvailabilityPairedNamespaceOptions(
            backlog_queue_count=BACKLOG_QUEUE_COUNT,
            failover_interval=timedelta(seconds=self._settings.failover_interval_s),
            ping_primary_interval=timedelta(seconds=self._settings.ping_interval_s),
            pairing_timeout=PAIRING_TIMEOUT,
            primary_name=self._stage.name,
            on_event=self._chronicle.pairing,
            meter=self._chronicle,
        )
        primary, secondary = self._stage.primary.connection_string, self._stage.secondary.connection_string
        with self._stage.secondary.administration() as administration:
            application = self._application = PairedApplication(
                lambda: pair_namespaces(
                    primary, secondary, options, secondary_administration=administration, **CLIENT_OPTIONS
                )
            )
            try:
                yield application
            finally:
                with uninterrupted():
                    self._application = None
                    pair = application.client
                    pair.close()
                    if self._stage.prefix:
                        queues = {each: partial(administration.delete_queue, each) for each in pair.backlog_queues}
                        remove_all("secondary", queues)

    @contextlib.contextmanager
    def _receiving(self) -> Iterator[None]:
        with self._stage.primary.client(retry_total=0) as client:
            receivers = Receivers(client, self._entities, self._ledger)
            try:
                receivers.start()
                yield
            finally:
                with uninterrupted():
                    receivers.stop()
            receivers.check()

    @contextlib.contextmanager
    def _sampled(self) -> Iterator[None]:
        done = threading.Event()

        def sample() -> None:
            while not done.wait(SAMPLE_S):
                if self._started_at is None:
                    continue
                self._samples.append(Sample(self._now(), self._ledger.delivered_count(), self._backlog()))

        thread = threading.Thread(target=sample, name="rehearsal-samples", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _entity_states(self) -> tuple[EntityStatus, ...]:
        application = self._application
        entities = () if application is None else application.client.state().entities
        known = {each.path: each.availability.value for each in entities}
        return tuple(
            EntityStatus(each.path, known.get(each.path, "-"), self._chronicle.backlog_sends[each.path])
            for each in self._entities
        )

    def _backlog(self) -> int:
        moved = self._drained.moved if self._drained is not None else 0
        return max(0, sum(self._chronicle.backlog_sends.values()) - moved)

    def _enter(self, step: str) -> None:
        self._step = step
        self._chronicle.step(step)

    def _now(self) -> float:
        """Seconds since the first message was due; 0 before."""
        return 0.0 if self._started_at is None else max(0.0, time.monotonic() - self._started_at)
