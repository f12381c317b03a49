"""A simulated pair of namespaces for the deciding core: time stands still until the test moves it.

Entities and backlog queues are lists; an outage makes every call on a namespace fail, and a lost
reply accepts a message and then fails. The auditor knows what senders got accepted and what
arrived where.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusConnectionError,
    ServiceBusQuotaExceededError,
)

from twinbus.clock import Millis
from twinbus.pairing.courier import Attempt, Courier, ToPrimary
from twinbus.pairing.events import PairingEvent
from twinbus.pairing.failures import classify
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.send_availability import SendAvailability
from twinbus.pairing.steps import run
from twinbus.pairing.syphon.pump import Pass, Pump
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.transport import (
    Answer,
    Chunk,
    Complete,
    DeadLetter,
    Receive,
    Request,
    SendAll,
    Taken,
    Transfer,
)

LOCK: Millis = 60_000


class Now:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at: Millis = 1_800_000_000_000

    def now(self) -> Millis:
        return self.at


@dataclass
class Namespace:
    random: Random
    is_down: bool = False
    reply_loss: float = 0.0
    """The share of calls that are done and reported as failed."""

    def reach(self) -> None:
        if self.is_down:
            raise ServiceBusConnectionError()

    def reply(self) -> None:
        if self.random.random() < self.reply_loss:
            raise ServiceBusConnectionError()


@dataclass
class Waiting:
    number: int
    transfer: Transfer
    locked_until: Millis = 0


@dataclass
class BacklogQueue:
    is_full: bool = False
    waiting: list[Waiting] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    last_number: int = 0

    def add(self, transfer: Transfer) -> None:
        self.last_number += 1
        self.waiting.append(Waiting(self.last_number, transfer))


class World:
    """Two namespaces, a pair between them, senders and pumps."""

    def __init__(self, seed: int, options: SendAvailabilityPairedNamespaceOptions | None = None) -> None:
        self.random = Random(seed)
        self.clock = Now()
        self.primary, self.secondary = Namespace(self.random), Namespace(self.random)
        self.entities: dict[str, list[str]] = {"orders": [], "bills": [], "mails": []}
        self.events: list[PairingEvent] = []
        chosen = options or SendAvailabilityPairedNamespaceOptions(backlog_queue_count=3)
        self.options = replace(chosen, on_event=self.events.append, ping_jitter=0)
        queues = {index: f"p/x-servicebus-transfer/{index}" for index in range(chosen.backlog_queue_count)}
        self.queues = {path: BacklogQueue() for path in queues.values()}
        self.availability = SendAvailability(self.options, queues, self.random)
        self.accepted: dict[str, set[str]] = {path: set() for path in self.entities}
        self._sent_count = 0

    def pass_time(self, duration: timedelta) -> None:
        """From one deadline to the next, with pings as the shell does them."""
        end = self.clock.at + duration // timedelta(milliseconds=1)
        while self.clock.at < end:
            self.clock.at = min(end, max(self.clock.at + 1, self.availability.next_action_at()))
            for path in self.availability.advance(self.clock.at):
                try:
                    self._at_primary(path, [])
                except Exception as error:
                    self.availability.ping_failed(path, error, self.clock.at)
                else:
                    self.availability.ping_answered(path, self.clock.at)

    def sender(self, path: str) -> Courier:
        return Courier(path, self.availability, self.clock, lambda: f"id-{self.random.random()}")

    def send(self, courier: Courier, count: int = 1) -> bool:
        """Send new messages, as a list if more than one; False if the caller got an error."""
        ids = [f"{courier.path}-{self._sent_count + each}" for each in range(count)]
        self._sent_count += count
        messages: list[ServiceBusMessage | AmqpAnnotatedMessage] = [
            AmqpAnnotatedMessage(data_body=b"x", properties={"message_id": each}) for each in ids
        ]

        def perform(attempt: Attempt) -> None:
            self.clock.at += 10
            if isinstance(attempt, ToPrimary):
                self._at_primary(courier.path, ids)
            else:
                self._at_backlog(self.availability.backlog_queues[attempt.index], courier.path, ids, attempt.parcel)

        try:
            run(courier.send(messages, None), perform)
        except Exception:
            return False
        self.accepted[courier.path].update(ids)
        return True

    def pump(self, queue: str) -> "SimPump":
        return SimPump(self, queue)

    def in_backlog(self) -> list[str]:
        return [str(each.transfer.message) for queue in self.queues.values() for each in queue.waiting]

    def dead(self) -> list[str]:
        return [each for queue in self.queues.values() for each in queue.dead]

    def lost(self) -> set[str]:
        """Accepted, and yet nowhere."""
        delivered = {each for entity in self.entities.values() for each in entity}
        everything = {each for accepted in self.accepted.values() for each in accepted}
        return everything - delivered - set(self.in_backlog()) - set(self.dead())

    def arrive(self, path: str, ids: Sequence[str]) -> None:
        if path not in self.entities:
            raise MessagingEntityNotFoundError()
        self.entities[path].extend(ids)

    def _at_primary(self, path: str, ids: Sequence[str]) -> None:
        self.primary.reach()
        self.arrive(path, ids)
        self.primary.reply()

    def _at_backlog(
        self, queue: str, path: str, ids: Sequence[str], parcel: AmqpAnnotatedMessage | ServiceBusMessageBatch
    ) -> None:
        self.secondary.reach()
        if self.queues[queue].is_full:
            raise ServiceBusQuotaExceededError()
        assert len(ids) == (len(parcel) if isinstance(parcel, ServiceBusMessageBatch) else 1)
        for each in ids:
            self.queues[queue].add(Transfer(path, each, 1, None, None))
        self.secondary.reply()


class SimPump:
    """A pump in the world, moved pass by pass."""

    def __init__(self, world: World, queue: str) -> None:
        self.world = world
        self.queue = queue
        self.pump = Pump(queue, classify, RateCap(None), world.clock, world.events.append)

    def do_pass(self) -> Pass:
        return run(self.pump.do_pass(0), self.perform)

    def perform(self, request: Request) -> Answer:
        if isinstance(request, SendAll):
            return [self._send(chunk) for chunk in request.chunks]
        if isinstance(request, (Receive, Complete, DeadLetter)):
            self.world.secondary.reach()
        if isinstance(request, Receive):
            return self._receive(request.count_max)
        if isinstance(request, Complete):
            for each in request.taken:
                self._remove(each)
            self.world.secondary.reply()
        if isinstance(request, DeadLetter):
            removed = self._remove(request.taken)
            self.world.queues[self.queue].dead.append(str(removed.transfer.message))
        return None

    def _receive(self, count_max: int) -> list[Taken]:
        now = self.world.clock.at
        free = [each for each in self.world.queues[self.queue].waiting if each.locked_until <= now][:count_max]
        for each in free:
            each.locked_until = now + LOCK
        return [Taken(each, each.number, each.locked_until, each.transfer) for each in free]

    def _send(self, chunk: Chunk) -> Exception | None:
        self.world.clock.at += 10
        try:
            self.world.primary.reach()
            self.world.arrive(chunk.path, [str(each.message) for each in chunk.transfers])
            self.world.primary.reply()
        except Exception as error:
            return error
        return None

    def _remove(self, taken: Taken) -> Waiting:
        assert isinstance(taken.handle, Waiting)
        self.world.queues[self.queue].waiting.remove(taken.handle)
        return taken.handle
