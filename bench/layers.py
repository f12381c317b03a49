"""Microseconds a message in each layer, in this process, without sockets: where the time of the hot path goes.

A burst of 1 KiB messages as a client writes them goes through the layers one after the other: frames and transfers,
routing facts, the broker, the messaging store, and back out as deliveries, transfers and settlements. What it costs to pass them
between two nodes comes last.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.meter_cost import meter_layers
from bench.relay_cost import relay_layers
from twinbus.amqp.codec.delivery_state import ACCEPTED
from twinbus.amqp.codec.sasl import SaslCode
from twinbus.amqp.codec.sections import DataBody, Header, MessageProperties, Sections, encode_sections
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import CreditChanged, Deliveries, Dispositions, Event, LinkAttached, SaslInit
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.clock import NEVER
from twinbus.model.delivery import encode_delivery
from twinbus.model.message import read_message
from twinbus.store.changes import Enqueued, FragmentCreated, Removed, StoredMessage, fragment_key
from twinbus.store.folder.store import FolderStore

BURST = 100
ROUNDS = 200
NOW = 1_700_000_000_000


def payload_of(size: int) -> bytes:
    return encode_sections(
        Sections(
            header=Header(durable=True),
            properties=MessageProperties(message_id="0123456789abcdef"),
            application_properties={"kind": "order", "priority": 7},
            body=DataBody([bytes(size)]),
        )
    )


class Pair:
    """A client's and a server's connection, joined without a socket."""

    def __init__(self) -> None:
        self.client = Connection(Role.CLIENT, ConnectionSettings(container_id="client", incoming_window=1_000_000), NOW)
        self.server = Connection(Role.SERVER, ConnectionSettings(container_id="server"), NOW)
        self.accepted: list[IncomingLink | OutgoingLink] = []
        self.client.open()
        self.exchange()
        session = self.client.begin()
        self.exchange()
        self.sending = session.attach("s", is_sender=True, source=Source(), target=Target(address="q"))
        self.receiving = session.attach("r", is_sender=False, source=Source(address="q"), target=Target())
        self.exchange()
        assert isinstance(self.receiving, IncomingLink)
        self.receiving.keep_credit(1_000_000)
        self.exchange()

    def exchange(self) -> list[Event]:
        """Pass bytes until both sides are silent; what the server reported."""
        reported: list[Event] = []
        while True:
            to_server, to_client = self.client.data_to_send(), self.server.data_to_send()
            if not to_server and not to_client:
                return reported
            for event in self.server.receive_data(to_server, NOW):
                reported += self._answer(event)
            self.client.receive_data(to_client, NOW)

    def _answer(self, event: Event) -> list[Event]:
        if isinstance(event, SaslInit):
            return [found for item in self.server.sasl_outcome(SaslCode.OK) for found in self._answer(item)]
        if isinstance(event, LinkAttached):
            assert isinstance(event.link, IncomingLink | OutgoingLink)
            if isinstance(event.link, IncomingLink):
                event.link.accept(credit=1_000_000)
            else:
                event.link.accept()
            self.accepted.append(event.link)
        return [event]


def measure(name: str, work: Callable[[], object], prepare: Callable[[], object] | None = None) -> tuple[str, float]:
    """The best of a few rounds: what the code costs, not what the machine was doing meanwhile."""
    best = float("inf")
    for _ in range(ROUNDS):
        if prepare is not None:
            prepare()
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return name, best / BURST * 1e6


def protocol_layers(payload: bytes) -> list[tuple[str, float]]:
    pair = Pair()
    incoming, outgoing = pair.accepted
    assert isinstance(incoming, IncomingLink)
    assert isinstance(outgoing, OutgoingLink)
    assert isinstance(pair.sending, OutgoingLink)
    sending = pair.sending
    wire: list[bytes] = []
    burst = [(b"%04d" % index, payload) for index in range(BURST)]
    tags = [(index.to_bytes(16, "big"), payload) for index in range(BURST)]

    def client_sends() -> None:
        sending.transfers(burst)
        wire[:] = [pair.client.data_to_send()]

    def server_reads() -> None:
        for event in pair.server.receive_data(wire[0], NOW):
            if isinstance(event, Deliveries):
                first, last = event.deliveries[0].delivery_id, event.deliveries[-1].delivery_id
                incoming.settle(first, last, ACCEPTED)
        pair.client.receive_data(pair.server.data_to_send(), NOW)

    def server_sends() -> None:
        outgoing.transfers(tags)
        wire[:] = [pair.server.data_to_send()]

    def client_settles() -> None:
        receiving = pair.receiving
        assert isinstance(receiving, IncomingLink)
        frames = []
        for event in pair.client.receive_data(wire[0], NOW):
            if isinstance(event, Deliveries):
                for delivery in event.deliveries:
                    receiving.settle(delivery.delivery_id, delivery.delivery_id, ACCEPTED)
                    # Taken one by one, so that they are not joined into a range.
                    frames.append(pair.client.data_to_send())
        wire[:] = [b"".join(frames)]

    def server_settled() -> None:
        events = pair.server.receive_data(wire[0], NOW)
        assert any(isinstance(event, Dispositions | CreditChanged) for event in events)

    def delivered() -> None:
        server_sends()
        client_settles()

    def settled() -> None:
        delivered()
        server_settled()

    return [
        measure("decode: frames and transfers in, acknowledged", server_reads, client_sends),
        measure("encode: transfers out", server_sends, settled),
        measure("decode: settlements in, a frame each", server_settled, delivered),
    ]


def message_layers(payload: bytes) -> list[tuple[str, float]]:
    content = read_message(payload, lambda: "new").content
    token = bytes(16)

    def route() -> None:
        for _ in range(BURST):
            read_message(payload, lambda: "new")

    def encode() -> None:
        for number in range(BURST):
            encode_delivery(
                content,
                sequence_number=number,
                enqueued_at=NOW,
                delivery_count=0,
                lock_token=token,
                locked_until=NOW,
            )

    return [measure("route: facts of a message read", route), measure("encode: delivery sections", encode)]


def store_layers(payload: bytes, folder: Path) -> list[tuple[str, float]]:
    content = read_message(payload, lambda: "new").content
    key = fragment_key(1, 0)
    store = FolderStore(folder)
    store.commit([FragmentCreated(key)])
    numbers = iter(range(1, 10_000_000))
    rows: list[StoredMessage] = []

    def prepare() -> None:
        rows[:] = [StoredMessage(next(numbers), content, NOW, NEVER) for _ in range(BURST)]

    def enqueue() -> None:
        store.commit([Enqueued(key, rows)])

    def remove() -> None:
        store.commit([Removed(key, [row.sequence_number for row in rows])])

    def enqueued() -> None:
        prepare()
        enqueue()

    results = [
        measure("store: a burst made durable (with its sync)", enqueue, prepare),
        measure("store: a burst removed (with its sync)", remove, enqueued),
    ]
    store.close()
    return results


def layer_costs(size: int = 1024) -> list[tuple[str, float]]:
    payload = payload_of(size)
    with tempfile.TemporaryDirectory() as folder:
        layers = protocol_layers(payload) + message_layers(payload) + store_layers(payload, Path(folder))
        return layers + meter_layers(payload, measure) + relay_layers(payload)


if __name__ == "__main__":
    for name, cost in layer_costs():
        print(f"{cost:8.2f} µs  {name}")
