"""The meter's share of the way of a message through the gateway: a queue with it beside one without, in this process.

Bursts are sent, received and settled on wires in memory, over a store in memory. Both queues take turns every few
milliseconds and the best tenth of the turns counts, so the result holds on a busy machine as well; and since sockets
and disks are absent, the share is larger than a real server's. Only the server's side is timed.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.layers import payload_of
from twinbus.amqp.codec.delivery_state import ACCEPTED
from twinbus.amqp.codec.sasl import plain_credentials
from twinbus.amqp.codec.terminus import Source, Target
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import Deliveries, Event
from twinbus.amqp.incoming_link import IncomingLink
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.namespace_view import NamespaceView, Traffic
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.meter.book import OperationsBook
from twinbus.model.descriptions import AuthorizationRule, QueueDescription, Right
from twinbus.testing.simulation import Simulation

BURSTS = (1, 5, 20, 100)
TURNS = 200
TURN_MESSAGES = 100
TURNS_A_BEAT = 15
"""The book asks the links about so often at 30,000 messages a second."""
CREDIT = 1_000
RULE = AuthorizationRule("Root", "key", "other-key", frozenset(Right))


class Way:
    """A client that sends to a queue and receives from it, and the gateway it talks to."""

    def __init__(self, sim: Simulation, view: NamespaceView, queue: str) -> None:
        self.server_s = 0.0
        self._sim = sim
        self._payload = payload_of(1024)
        self._count = 0
        sim.queue(QueueDescription(queue))
        settings = ConnectionSettings(
            container_id="client", sasl_credentials=plain_credentials(RULE.name, RULE.primary_key)
        )
        self._client = Connection(Role.CLIENT, settings, sim.now)
        server = Connection(Role.SERVER, ConnectionSettings(container_id="server"), sim.now)
        self._gateway = ConnectionGateway(server, view, sim.now, lambda: None)
        self._client.open()
        self._exchange()
        session = self._client.begin()
        self._exchange()
        sending = session.attach("s", is_sender=True, source=Source(), target=Target(address=queue))
        receiving = session.attach("r", is_sender=False, source=Source(address=queue), target=Target())
        self._exchange()
        assert isinstance(sending, OutgoingLink)
        assert isinstance(receiving, IncomingLink)
        self._sending, self._receiving = sending, receiving
        receiving.keep_credit(CREDIT)
        self._exchange()

    def go(self, burst: int) -> None:
        tags = [b"%d" % (self._count + place) for place in range(burst)]
        self._count += burst
        self._sending.transfers([(tag, self._payload) for tag in tags])
        received = 0
        for event in self._exchange():
            if isinstance(event, Deliveries):
                received += len(event.deliveries)
                first, last = event.deliveries[0].delivery_id, event.deliveries[-1].delivery_id
                self._receiving.settle(first, last, ACCEPTED)
        assert received == burst
        self._receiving.keep_credit(CREDIT)
        self._exchange()

    def _exchange(self) -> list[Event]:
        """Pass bytes until both sides are silent; returns the client's events."""
        events: list[Event] = []
        while True:
            to_server = self._client.data_to_send()
            start = time.perf_counter()
            if to_server:
                self._gateway.receive(to_server, self._sim.now)
            self._sim.run()
            to_client = self._gateway.data_to_send()
            self.server_s += time.perf_counter() - start
            if not to_server and not to_client:
                return events
            events += self._client.receive_data(to_client, self._sim.now)


@contextmanager
def two_ways() -> Iterator[tuple[Way, Way, OperationsBook]]:
    """One with a book that adds up, and one without."""
    sim = Simulation(1)
    book = OperationsBook(sim.clock, exact_per_second_max=0)
    with tempfile.TemporaryDirectory() as folder:
        catalog = Catalog.in_file(Path(folder) / "catalog.db", "bench", sim.now)
        catalog.set_namespace_rule(RULE)
        control = ControlPlane(catalog, sim.entities, sim.clock)
        metered, unmetered = (
            NamespaceView(sim.entities, control, catalog, Traffic(), lambda: "new", book=each) for each in (book, None)
        )
        yield Way(sim, metered, "metered"), Way(sim, unmetered, "unmetered"), book
        catalog.close()


def turn_us(way: Way, burst: int) -> float:
    """Of the server for one message."""
    way.go(burst)
    way.server_s = 0.0
    count = -(-TURN_MESSAGES // burst)
    for _ in range(count):
        way.go(burst)
    return way.server_s / (count * burst) * 1e6


def shares() -> Iterator[tuple[int, float, float]]:
    """Microseconds a message, with and without the meter, by the size of the bursts."""
    for burst in BURSTS:
        with two_ways() as (metered, unmetered, book):
            turns: tuple[list[float], list[float]] = [], []
            for number in range(TURNS):
                for place in (0, 1) if number % 2 else (1, 0):
                    turns[place].append(turn_us((metered, unmetered)[place], burst))
                if number % TURNS_A_BEAT == 0:
                    book.write_down()
        best = [statistics.quantiles(found, n=10)[0] for found in turns]
        yield burst, best[0], best[1]


def show() -> None:
    print("The meter's share of the server's time in this process, microseconds a message:", flush=True)
    for burst, metered, unmetered in shares():
        print(
            f"  bursts of {burst:3}: {metered:6.2f} with it, {unmetered:6.2f} without,"
            f" {100 * (metered / unmetered - 1):+.1f}%",
            flush=True,
        )


if __name__ == "__main__":
    show()
