"""A pair on a simulated clock, from its first message to its bill: two gateways with their brokers and books of operations,
a paired sender, its pinger, a receiver at home and a syphon. Nothing but time, the sockets and the outage is made up.

While the primary is away nobody reaches it; its log is that of a namespace that was stopped in good order. The syphon does
not run meanwhile: one that polls on takes messages in vain.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random

from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.gateway.front import Client, Front
from twinbus.amqp.codec.delivery_state import ACCEPTED
from twinbus.amqp.events import Deliveries
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.clock import NEVER, Millis
from twinbus.cost.deployment import Deployment
from twinbus.meter.operation import SYPHON_PRODUCT, Operation
from twinbus.model.descriptions import QueueDescription
from twinbus.pairing.attendant import ping_message
from twinbus.pairing.backlog.delivery import Pause, ToBacklog
from twinbus.pairing.backlog.queues import backlog_queue_path
from twinbus.pairing.courier import AskPartitioning, Courier, Step
from twinbus.pairing.deciding.entity_watch import Ping
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.rewriting.restore import restore
from twinbus.pairing.stock.failures import classify
from twinbus.pairing.stock.steps import run
from twinbus.pairing.syphon.pump import Pump
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.transport import Answer, Complete, Receive, Request, SendAll, Taken, Transfer

ENTITY = "orders"
PREFETCH = 1_000_000
"""Credit that is never used up: what an application's own idle receives cost is not the pair's doing."""

SYPHON_CREDIT = 400
BEAT: Millis = 60_000


class PairedMeter:
    """What the pair reports by itself."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def record(self, operation: Operation, /) -> None:
        self.operations.append(operation)


class SimulatedPair:
    """Made for one deployment of one sender. `now` counts from 0; the primary is away from `away_at` on."""

    def __init__(self, folder: Path, deployment: Deployment, away_at: Millis = NEVER) -> None:
        self.deployment = deployment
        self.primary, self.secondary = (Front(folder / name, store_count=4) for name in _made(folder))
        self.meter = PairedMeter()
        self.refused = 0
        self.back_at = away_at + deployment.outage // timedelta(milliseconds=1)
        self._away_at = away_at
        self._clock = self.primary.sim.clock
        self._start = self._clock.now()
        self._clients: list[Client] = []
        self._tags = count()
        self._senders: dict[str, OutgoingLink] = {}
        queues = {index: backlog_queue_path("p", index) for index in range(deployment.backlog_queues)}
        self.primary.sim.queue(QueueDescription(ENTITY))
        for path in queues.values():
            self.secondary.sim.queue(QueueDescription(path))
        options = SendAvailabilityPairedNamespaceOptions(
            backlog_queue_count=deployment.backlog_queues,
            failover_interval=deployment.failover_interval,
            ping_primary_interval=deployment.ping_interval,
            ping_jitter=0,
            meter=self.meter,
        )
        self._pair = SendAvailability(options, queues, Random(1))
        self._courier = Courier(ENTITY, self._pair, self._clock, lambda: f"id-{next(self._tags)}", lambda: None)
        self._home = self._client(self.primary)
        self._aside = self._client(self.secondary)
        self._receiver = self._home.receiver(ENTITY, credit=PREFETCH)
        self._pumps: list[_PumpRun] = []

    @property
    def now(self) -> Millis:
        return self._clock.now() - self._start

    def send(self) -> None:
        """A new message of the application. One that is refused is the application's, and no operation."""
        message = ServiceBusMessage(b"x" * self.deployment.size, message_id=f"m-{next(self._tags)}")

        def perform(attempt: Step) -> None:
            assert not isinstance(attempt, Pause | AskPartitioning)
            if isinstance(attempt, ToBacklog):
                assert isinstance(attempt.parcel, AmqpAnnotatedMessage)
                self._transfer(self._aside, self._pair.backlog_queues[attempt.index], encoded(attempt.parcel))
            else:
                self._transfer_home(encoded(message.raw_amqp_message))

        try:
            run(self._courier.send(message, None), perform)
        except ConnectionError:
            self.refused += 1

    def start_syphon(self) -> None:
        home, spare = (self._client(front, SYPHON_PRODUCT) for front in (self.primary, self.secondary))
        self._pumps = [_PumpRun(self, path, home, spare) for path in self._pair.backlog_queues.values()]

    def advance(self, to: Millis) -> None:
        """Pings, polls and deliveries as they are due until then, that moment included."""
        while True:
            self._act()
            if self.now >= to:
                return
            ends = (pump.due for pump in self._pumps)
            due = min(self._pair.next_action_at() - self._start, *ends, to, self.now + BEAT)
            self._pass(max(1, due - self.now))

    def operations(self) -> Iterator[tuple[str, Operation]]:
        """By namespace. Pings that reach nobody are in no log of a namespace: all are taken from the pair's report."""
        for name, front in (("primary", self.primary), ("secondary", self.secondary)):
            yield from ((name, row) for row in front.book.take_all())
        yield from (("pair", row) for row in self.meter.operations)

    def transfer(self, client: Client, path: str, payload: bytes) -> None:
        self._transfer(client, path, payload)

    def _act(self) -> None:
        for ping in self._pair.advance(self._clock.now()):
            self._ping(ping)
        for pump in self._pumps:
            pump.act()
        for event in self._home.take(Deliveries):
            _settle(self._home, event)
        for client in self._clients:
            # Answers to sends and settlements: what they did is in the books.
            client.events = [event for event in client.events if isinstance(event, Deliveries)]

    def _pass(self, by: Millis) -> None:
        for front in (self.primary, self.secondary):
            front.sim.advance(by)
        for client in self._clients:
            now = client.front.sim.now
            client.connection.tick(now)
            client.gateway.tick(now)
            client.run()

    def _ping(self, ping: Ping) -> None:
        try:
            self._transfer_home(encoded(ping_message(ping.session_id).raw_amqp_message))
        except ConnectionError as error:
            self._pair.ping_failed(ping, error, self._clock.now())
        else:
            self._pair.ping_answered(ping, self._clock.now())

    def _transfer_home(self, payload: bytes) -> None:
        if self._away_at <= self.now < self.back_at:
            raise ConnectionError("The primary is away.")
        self._transfer(self._home, ENTITY, payload)

    def _transfer(self, client: Client, path: str, payload: bytes) -> None:
        link = self._senders.get(f"{id(client)} {path}")
        if link is None or not link.is_attached:
            link = self._senders[f"{id(client)} {path}"] = client.sender(path)
        link.transfer(payload, b"%d" % next(self._tags))
        client.run()

    def _client(self, front: Front, container_id: str = "application") -> Client:
        self._clients.append(front.client(container_id=container_id))
        return self._clients[-1]


@dataclass
class _PumpRun:
    """A pump of the syphon over links in memory, as the bulk client has them."""

    pair: SimulatedPair
    queue: str
    home: Client
    spare: Client
    due: Millis = NEVER
    _came: list[Taken] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._link = self.spare.receiver(self.queue)
        self._is_resting = True
        clock = self.spare.front.sim.clock
        self._steps = Pump(self.queue, classify, RateCap(None), clock, lambda _: None).run()
        self._begin(next(self._steps))

    def act(self) -> None:
        """Take what came, or end the poll if it is time."""
        for event in [each for each in self.spare.events if isinstance(each, Deliveries) and each.link is self._link]:
            self.spare.events.remove(event)
            self._came += [_taken(each.delivery_id, each.payload) for each in event.deliveries]
        if self._came:
            came, self._came = self._came, []
            self._answer(came)
        elif self.pair.now >= self.due:
            self._link.drain()
            self.spare.run()
            self._is_resting = True
            self._answer([])

    def _begin(self, request: Request) -> None:
        assert isinstance(request, Receive)
        self.due = self.pair.now + int(request.wait_s * 1000)
        if self._is_resting:
            self._is_resting = False
            self._link.keep_credit(SYPHON_CREDIT)
            self.spare.run()

    def _answer(self, answer: Answer) -> None:
        request = self._steps.send(answer)
        while not isinstance(request, Receive):
            request = self._steps.send(self._perform(request))
        self._begin(request)

    def _perform(self, request: Request) -> Answer:
        if isinstance(request, SendAll):
            for chunk in request.chunks:
                for transfer in chunk.transfers:
                    assert isinstance(transfer.message, bytes)
                    self.pair.transfer(self.home, chunk.path, transfer.message)
            return [None] * len(request.chunks)
        assert isinstance(request, Complete), request
        for taken in request.taken:
            assert isinstance(taken.handle, int)
            self._link.settle(taken.handle, taken.handle, ACCEPTED)
        self.spare.run()
        return None


def encoded(message: AmqpAnnotatedMessage) -> bytes:
    """As the official SDK puts it on the wire."""
    payload = bytearray()
    encode_payload(payload, PyamqpTransport.to_outgoing_amqp_message(message))
    return bytes(payload)


def _made(folder: Path) -> Iterator[str]:
    for name in ("primary", "secondary"):
        (folder / name).mkdir(parents=True)
        yield name


def _taken(delivery_id: int, payload: bytes) -> Taken:
    found = restore(payload)
    transfer = Transfer(found.path, found.payload, len(found.payload), found.session_id, found.partition_key)
    return Taken(delivery_id, found.sequence_number, found.locked_until, transfer)


def _settle(client: Client, event: Deliveries) -> None:
    link: IncomingLink = event.link
    for each in event.deliveries:
        link.settle(each.delivery_id, each.delivery_id, ACCEPTED)
    client.run()
