"""The two senders: both follow the plan with the official client; one is paired, the other is not.

Each has a thread for every lane of every entity, so a send that hangs holds up its own lane and nothing else.
"""

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from twinbus.errors import MessagingError
from twinbus.rehearsal.entities import EntityKind, RehearsedEntity
from twinbus.rehearsal.interruption import WaitedThread
from twinbus.rehearsal.ledger import Ledger, Sender
from twinbus.rehearsal.rehearsal_settings import RehearsalSettings
from twinbus.rehearsal.sends import Outcome, SendLog, SendRecord
from twinbus.rehearsal.traffic import PlannedMessage

LANE_COUNT = 2
SEND_FAILURES = (ServiceBusError, AzureError, MessagingError, OSError, ValueError)
"""What a send may raise in any application; anything else is a bug."""


class OneSender(Protocol):
    """What is used of the official sender and of the paired one."""

    def send_messages(self, message: ServiceBusMessage, *, timeout: float | None = None) -> None: ...

    def create_message_batch(self) -> object: ...

    def close(self) -> None: ...


class SenderMaker(Protocol):
    """What is used of the official client and of the paired one."""

    def get_queue_sender(self, queue_name: str) -> OneSender: ...

    def get_topic_sender(self, topic_name: str) -> OneSender: ...


class TrafficSender:
    """Follows the plan from `start` until its end or until `stop`, and adds each send to `log`.

    Call `open` first: connections are open before the first message is due, like those of an application that has been running
    for a while.
    """

    def __init__(
        self,
        who: Sender,
        client: SenderMaker,
        plan: Iterable[PlannedMessage],
        ledger: Ledger,
        settings: RehearsalSettings,
        log: SendLog,
    ) -> None:
        self._who = who
        self._client = client
        self._ledger = ledger
        self._settings = settings
        self._log = log
        self._stopping = threading.Event()
        self._starting = threading.Event()
        self._broken: list[BaseException] = []
        self._sending = 0
        self._is_restarting = False
        self._gate = threading.Condition()
        lanes = _lanes(plan)
        self._opened = threading.Barrier(len(lanes) + 1)
        self._threads = [
            WaitedThread(target=self._guard, args=(entity, lane), name=f"{who}-{entity.kind}")
            for (entity, _), lane in lanes.items()
        ]

    def open(self) -> None:
        """Returns when every lane has its connection."""
        for thread in self._threads:
            thread.start()
        try:
            self._opened.wait()
        except threading.BrokenBarrierError:
            raise self._broken[0] from None

    def start(self, started_at: float) -> None:
        """`started_at` is when the plan begins, by `time.monotonic`."""
        self._started_at = started_at
        self._starting.set()

    def stop(self) -> None:
        self._stopping.set()
        self._starting.set()
        self._opened.abort()
        with self._gate:
            self._gate.notify_all()

    def restart(self, renew: Callable[[], SenderMaker]) -> None:
        """Every lane finishes its send, `renew` ends the client and returns another, and all go on with that one."""
        with self._gate:
            self._gate.wait_for(lambda: not self._is_restarting)
            self._is_restarting = True
            self._gate.wait_for(lambda: self._sending == 0)
        try:
            self._client = renew()
        finally:
            with self._gate:
                self._is_restarting = False
                self._gate.notify_all()

    def join(self) -> None:
        for thread in self._threads:
            thread.wait_end()

    def wait(self) -> None:
        """Wait until the plan is done. Raises an error that no sender should raise, if there was one."""
        self.join()
        if self._broken:
            raise self._broken[0]

    def _guard(self, entity: RehearsedEntity, plan: Sequence[PlannedMessage]) -> None:
        try:
            self._follow(entity, plan)
        except threading.BrokenBarrierError:
            return
        except BaseException as broken:
            self._broken.append(broken)
            self._opened.abort()

    def _follow(self, entity: RehearsedEntity, plan: Sequence[PlannedMessage]) -> None:
        client, sender = self._client, self._sender_to(entity)
        try:
            sender.create_message_batch()  # asks the entity for its limit, and so connects
            self._opened.wait()
            self._starting.wait()
            for planned in plan:
                if self._stopping.wait(max(0.0, planned.due_s - self._now())):
                    return
                with self._at_work() as may_go_on:
                    if not may_go_on:
                        return
                    if self._client is not client:
                        client, sender = self._client, self._sender_to(entity)
                    self._log.add(self._send(sender, planned))
        finally:
            sender.close()

    def _sender_to(self, entity: RehearsedEntity) -> OneSender:
        client = self._client
        is_topic = entity.kind is EntityKind.TOPIC
        return client.get_topic_sender(entity.path) if is_topic else client.get_queue_sender(entity.path)

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[bool]:
        """Not while the client is being replaced. False if all is to stop."""
        with self._gate:
            self._gate.wait_for(lambda: not self._is_restarting or self._stopping.is_set())
            self._sending += 1
        try:
            yield not self._stopping.is_set()
        finally:
            with self._gate:
                self._sending -= 1
                self._gate.notify_all()

    def _send(self, sender: OneSender, planned: PlannedMessage) -> SendRecord:
        if self._now() - planned.due_s > self._settings.patience_s:
            return self._record(planned, Outcome.MISSED)
        name = self._ledger.sending(planned, self._who)
        message = ServiceBusMessage(
            planned.body(name),
            message_id=name,
            session_id=planned.session_id,
            partition_key=planned.partition_key,
        )
        try:
            sender.send_messages(message, timeout=self._settings.send_timeout_s)
        except SEND_FAILURES:
            return self._record(planned, Outcome.REFUSED)
        self._ledger.accepted(name)
        return self._record(planned, Outcome.ACCEPTED)

    def _record(self, planned: PlannedMessage, outcome: Outcome) -> SendRecord:
        entity = planned.entity
        is_free = entity.kind is EntityKind.PARTITIONED and planned.partition_key is None
        return SendRecord(self._who, entity.path, planned.due_s, self._now(), outcome, is_free)

    def _now(self) -> float:
        return time.monotonic() - self._started_at


def _lanes(
    plan: Iterable[PlannedMessage],
) -> Mapping[tuple[RehearsedEntity, int], list[PlannedMessage]]:
    lanes: dict[tuple[RehearsedEntity, int], list[PlannedMessage]] = defaultdict(list)
    for planned in plan:
        lanes[planned.entity, planned.lane].append(planned)
    return lanes
