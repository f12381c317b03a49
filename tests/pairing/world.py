"""A simulated pair of namespaces for the deciding core: time stands still until the test moves it.

Entities and backlog queues are lists. A namespace can be down or hang, refuse a key, or lose the reply to a call that it
has done. The auditor is told what senders got accepted and where an answer was lost; `ledger` is where everything is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from tests.pairing.sim_syphon import BacklogQueue, SimSyphon
from twinbus.clock import Millis
from twinbus.model import wire_names
from twinbus.pairing.backlog.delivery import Pause
from twinbus.pairing.courier import AskPartitioning, Courier, Step, ToPrimary
from twinbus.pairing.deciding.entity_watch import Ping
from twinbus.pairing.deciding.partitioning import Partitioning
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.deciding.survey import SURVEYED_MAX, UNSEEN, Survey
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.rewriting.stages import Stage, parse_stage
from twinbus.pairing.rewriting.transfer import AnyMessage, clone
from twinbus.pairing.stock.steps import run
from twinbus.pairing.syphon.transport import Transfer
from twinbus.testing.auditor import Auditor, Ledger

CALL: Millis = 10
"""How long a call takes that is answered."""

ORDINARY = Partitioning(1)
TEMPLATE = AmqpAnnotatedMessage(data_body=b"x", properties={"message_id": ""})


class Now:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at: Millis = 1_800_000_000_000

    def now(self) -> Millis:
        return self.at


@dataclass
class Namespace:
    random: Random
    clock: Now
    is_down: bool = False
    is_hung: bool = False
    refuses_key: bool = False
    reply_loss: float = 0.0
    """The share of calls that are done and reported as failed."""

    def reach(self, timeout_s: float) -> None:
        if self.is_hung:
            self.clock.at += int(timeout_s * 1000)
            raise TimeoutError("hung")
        self.clock.at += CALL
        if self.is_down:
            raise ConnectionError("down")
        if self.refuses_key:
            raise ServiceBusAuthorizationError()

    def loses_reply(self) -> bool:
        return self.reply_loss > 0 and self.random.random() < self.reply_loss

    def heal(self) -> None:
        self.is_down = self.is_hung = self.refuses_key = False
        self.reply_loss = 0


@dataclass
class Entity:
    detects_duplicates: bool = False
    is_full: bool = False
    is_deleted: bool = False
    arrived: list[str] = field(default_factory=list)
    partitioning: Partitioning = ORDINARY
    lost_fragments: set[int] = field(default_factory=set)

    def check_fragment(self, key: str | None) -> None:
        if key is not None and self.partitioning.fragment_of_key(key) in self.lost_fragments:
            raise ServiceBusError("its messaging store is down", condition=b"amqp:internal-error")

    def take(self, ids: Sequence[str]) -> None:
        if self.is_deleted:
            raise MessagingEntityNotFoundError()
        if self.is_full:
            raise ServiceBusQuotaExceededError()
        for each in ids:
            if not self.detects_duplicates or each not in self.arrived:
                self.arrived.append(each)


class World:
    """Two namespaces, processes whose senders are paired, and syphons. `availability` is that of the first process."""

    def __init__(
        self,
        seed: int,
        options: SendAvailabilityPairedNamespaceOptions | None = None,
        *,
        process_count: int = 1,
        detects_duplicates: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.clock = Now()
        self.primary, self.secondary = (Namespace(self.random, self.clock) for _ in range(2))
        self.entities = {path: Entity(detects_duplicates) for path in ("orders", "bills", "mails")}
        self.events: list[PairingEvent] = []
        self.auditor = Auditor(detects_duplicates=detects_duplicates)
        chosen = options or SendAvailabilityPairedNamespaceOptions(backlog_queue_count=3, ping_jitter=0)
        self.options = replace(chosen, on_event=self.events.append)
        self._paths = {index: f"p/x-servicebus-transfer/{index}" for index in range(chosen.backlog_queue_count)}
        self.queues = {path: BacklogQueue() for path in self._paths.values()}
        self.surveyed_max = SURVEYED_MAX
        self.processes = [self._new_process() for _ in range(process_count)]
        self.availability = self.processes[0]
        self.syphons: list[SimSyphon] = []
        self._sent_count = 0
        self.questions = 0
        """How often a sender asked how its entity is partitioned."""
        self.pings: list[Ping] = []
        self.survey_count = 0
        """Looks into one backlog queue each."""

    def _new_process(self) -> SendAvailability:
        has_waiting = any(queue.waiting for queue in self.queues.values())
        return SendAvailability(self.options, self._paths, self.random, has_waiting=has_waiting)

    def restart(self, process: int = 0) -> None:
        """This process ends between two sends, and begins again without what it knew. Its senders are new ones afterwards."""
        self.processes[process] = self._new_process()
        self.availability = self.processes[0]

    def pass_time(self, duration: timedelta) -> None:
        """From one deadline to the next, with pings as the shells do them."""
        end = self.clock.at + duration // timedelta(milliseconds=1)
        while self.clock.at < end:
            due = min(process.next_action_at() for process in self.processes)
            self.clock.at = min(end, max(self.clock.at + 1, due))
            now = self.clock.at
            for process in self.processes:
                for ping in process.advance(now):
                    self._ping(process, ping)
                    # Pings run beside everything else: one that hangs keeps nobody waiting.
                    self.clock.at = now
                self._survey(process)
                self.clock.at = now

    def sender(self, path: str, process: int = 0) -> "SimSender":
        return SimSender(self, self.processes[process], path)

    def send(self, sender: "SimSender", count: int = 1, session_id: str | None = None) -> bool:
        """Send new messages, as a list if more than one; False if the caller got an error."""
        ids = [f"{sender.path}-{self._sent_count + each}" for each in range(count)]
        self._sent_count += count
        return sender.send(ids, session_id=session_id)

    def syphon(self, queue: str) -> SimSyphon:
        self.syphons.append(SimSyphon(self, queue))
        return self.syphons[-1]

    def in_backlog(self) -> list[str]:
        return [str(each.transfer.message) for queue in self.queues.values() for each in queue.waiting]

    def dead(self) -> list[str]:
        return [each for queue in self.queues.values() for each in queue.dead]

    def ledger(self) -> Ledger:
        """What a syphon has sent and not completed yet is delivered. A deleted entity took with it what had arrived."""
        arrived = [each for entity in self.entities.values() for each in entity.arrived]
        under_way = {each for syphon in self.syphons for each in syphon.under_way}
        return Ledger(arrived, [each for each in self.in_backlog() if each not in under_way], self.dead())

    def arrive(self, path: str, ids: Sequence[str], timeout_s: float, key: str | None = None) -> None:
        """At the primary, from a sender or a syphon."""
        self.primary.reach(timeout_s)
        self.entities[path].check_fragment(key)
        self.entities[path].take(ids)
        if self.primary.loses_reply():
            for each in ids:
                self.auditor.answer_lost(each)
            raise ConnectionError("reply lost")

    def _survey(self, process: SendAvailability) -> None:
        """A look into the backlog, if one is due."""
        queues = process.start_survey(self.clock.at)
        if queues is None:
            return
        survey = Survey(self.clock.at)
        try:
            self.secondary.reach(10)
        except Exception:
            process.surveyed(None, self.clock.at)
            return
        self.survey_count += len(queues)
        for index, path in queues.items():
            if self.queues[path].is_down:
                survey.unseen_from[index] = UNSEEN
            else:
                self.queues[path].look(index, survey, self.surveyed_max)
        is_blind = all(self.queues[path].is_down for path in queues.values())
        process.surveyed(None if is_blind else survey, self.clock.at)

    def _ping(self, process: SendAvailability, ping: Ping) -> None:
        self.pings.append(ping)
        try:
            self.arrive(ping.path, [], 120, ping.session_id)
        except Exception as error:
            process.ping_failed(ping, error, self.clock.at)
        else:
            process.ping_answered(ping, self.clock.at)


class SimSender:
    """A paired sender of one process."""

    def __init__(self, world: World, process: SendAvailability, path: str) -> None:
        self.world = world
        self.path = path
        self.courier = Courier(path, process, world.clock, lambda: f"id-{world.random.random()}", lambda: None)
        self._queues = process.backlog_queues

    def send(self, ids: Sequence[str], timeout_s: float = 10, session_id: str | None = None) -> bool:
        messages: list[AnyMessage] = [_message(each, session_id) for each in ids]
        auditor = self.world.auditor
        for each in ids:
            auditor.sent(each, None, is_pinned=False)

        def perform(attempt: Step) -> Partitioning | None:
            if isinstance(attempt, Pause):
                self.world.pass_time(timedelta(milliseconds=attempt.duration))
                for syphon in self.world.syphons if session_id is not None else ():
                    syphon.step()
            elif isinstance(attempt, AskPartitioning):
                self.world.questions += 1
                return self.world.entities[attempt.path].partitioning
            elif isinstance(attempt, ToPrimary):
                self.world.arrive(self.path, ids, attempt.timeout_s, session_id)
            else:
                self._at_backlog(self._queues[attempt.index], ids, attempt.parcel, attempt.timeout_s, session_id)
            return None

        try:
            run_send(self.courier, messages[0] if len(messages) == 1 else messages, timeout_s, perform)
        except Exception:
            for each in ids:
                auditor.refused(each)
            return False
        for each in ids:
            auditor.accepted(each)
        return True

    def _at_backlog(
        self,
        queue: str,
        ids: Sequence[str],
        parcel: AmqpAnnotatedMessage | ServiceBusMessageBatch,
        timeout_s: float,
        session_id: str | None,
    ) -> None:
        secondary = self.world.secondary
        secondary.reach(timeout_s)
        if self.world.queues[queue].is_full:
            raise ServiceBusQuotaExceededError()
        if self.world.queues[queue].is_down:
            raise ServiceBusError("its messaging store is down", condition=b"amqp:internal-error")
        assert len(ids) == (len(parcel) if isinstance(parcel, ServiceBusMessageBatch) else 1)
        for each in ids:
            transfer = Transfer(self.path, each, 1, session_id, None, _stage(parcel))
            self.world.queues[queue].add(transfer, self.world.clock.at)
        if secondary.loses_reply():
            for each in ids:
                self.world.auditor.answer_lost(each)
            raise ConnectionError("reply lost")


def run_send(courier: Courier, outgoing: Any, timeout_s: float | None, perform: Callable[[Step], Any]) -> None:
    """As paired senders do it."""
    attempt = courier.straight(outgoing, timeout_s)
    if attempt is None:
        run(courier.send(outgoing, timeout_s), perform)
        return
    try:
        perform(attempt)
    except Exception as error:
        run(courier.not_arrived(outgoing, timeout_s, attempt), perform, error)
    else:
        courier.arrived(outgoing, attempt)


def _stage(parcel: AmqpAnnotatedMessage | ServiceBusMessageBatch) -> Stage | None:
    if isinstance(parcel, ServiceBusMessageBatch):
        return None
    said = (parcel.application_properties or {}).get(wire_names.TRANSFER_FOLLOWS)
    return parse_stage(said) if isinstance(said, str) else None


def _message(message_id: str, session_id: str | None) -> AmqpAnnotatedMessage:
    """A copy of one that is there: the SDK takes a while to make one."""
    assert TEMPLATE.properties is not None
    message, properties = clone(TEMPLATE), clone(TEMPLATE.properties)
    properties.message_id = message_id
    properties.group_id = session_id
    message.properties = properties
    return message
