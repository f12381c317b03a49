"""A whole gateway under frames that no client would send (`tests.amqp.damaged_frames`).

    recorded      what a client says to a namespace: SASL, sessions, links of every kind, messages, settlements, requests
    a connection  says a beginning that works, and then up to forty frames, more than half of them damaged

Everything is decided by a seed. `Fuzz.run` raises whatever the gateway raises, and also if an answer is not well-formed, if one
read takes long, or if something is left over.
"""

import asyncio
import gc
import logging
import time
from itertools import cycle
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.amqp.damaged_frames import Damager, check_answer, memory_kb, split_frames
from tests.gateway.control_link import DECLARE, Control
from tests.gateway.front import Client, Front, payload
from twinbus.amqp.codec.delivery_state import ACCEPTED, RELEASED, Modified, Outcome, Rejected
from twinbus.amqp.codec.frames import AMQP_HEADER, SASL_HEADER
from twinbus.amqp.codec.sasl import plain_credentials
from twinbus.amqp.codec.types import Symbol, Timestamp, UInt, Value
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import Deliveries
from twinbus.gateway.connection_gateway import ConnectionGateway
from twinbus.gateway.requests.handlers import HANDLERS
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.wire_names import SESSION_FILTER

READ_SECONDS_MAX = 2.0
"""Of the processor, for some frames of a few hundred bytes."""
FRAMES_PER_NAMESPACE = 20_000
FRAMES_PER_CONNECTION = 40


class Recorded(NamedTuple):
    openings: list[bytes]
    """A client that is there: the bytes up to some moment of its conversation."""
    frames: list[bytes]


class Counts(NamedTuple):
    frames: int
    connections: int
    closed: int
    slowest_read_ms: float
    memory_grown_kb: int


def fuzzed_namespace(folder: Path) -> Front:
    folder.mkdir(parents=True, exist_ok=True)
    front = Front(folder)
    front.sim.queue(QueueDescription("orders", requires_duplicate_detection=True, max_delivery_count=3))
    front.sim.queue(QueueDescription("talks", requires_session=True))
    front.sim.topic(TopicDescription("events"))
    front.sim.subscription(SubscriptionDescription("events", "all"))
    return front


class _Recorder(Client):
    """A client whose bytes are kept."""

    def __init__(self, front: Front) -> None:
        self.said = bytearray()
        super().__init__(front, plain_credentials("Root", "root-key"), None, "client")

    def run(self) -> None:
        take = self.connection.data_to_send

        def taken() -> bytes:
            data = take()
            self.said += data
            return data

        self.connection.data_to_send = taken  # type: ignore[method-assign]
        try:
            super().run()
        finally:
            self.connection.data_to_send = take  # type: ignore[method-assign]


def record(front: Front) -> Recorded:
    client = _Recorder(front)
    openings = [bytes(client.said)]
    sender = client.sender("orders")
    receiver = client.receiver("orders", credit=100)
    session_id = {Symbol(SESSION_FILTER): "s"}
    client.sender("talks").transfer(payload("in a session", group_id="s"), b"1")
    client.run()
    client.receiver("talks", credit=5, session_filter=session_id)
    for number in range(5):
        sender.transfer(payload(f"message {number}", message_id=str(number), subject="a", to="b"), b"%d" % number)
    client.run()
    openings.append(bytes(client.said))
    outcomes: list[Outcome] = [
        ACCEPTED,
        RELEASED,
        Modified(delivery_failed=True),
        Modified(undeliverable_here=True),
        Rejected(),
    ]
    for event in client.take(Deliveries):
        link = event.link
        for each, outcome in zip(event.deliveries, cycle(outcomes)):
            link.settle(each.delivery_id, each.delivery_id, outcome)
            client.run()
    client.receiver("orders/$deadletterqueue", credit=3)
    client.sender("events").transfer(payload("to a topic"), b"2")
    client.receiver("events/subscriptions/all", credit=2)
    client.run()
    cbs = client.node("$cbs")
    cbs.send("put-token", front.token("orders"), type="servicebus.windows.net:sastoken", name="sb://host/orders")
    control = Control(client)
    control.ask(DECLARE, None)
    openings.append(bytes(client.said))
    for path in ("orders", "talks", "events/subscriptions/all"):
        node = client.node(f"{path}/$management")
        for name in HANDLERS:
            node.send(name, _arguments())
    sender.transfer(bytes(100_000), b"large")
    receiver.drain()
    client.run()
    sender.detach()
    client.run()
    client.session.end()
    client.run()
    client.connection.close()
    client.run()
    return Recorded(openings, split_frames(bytes(client.said)))


def _arguments() -> dict[Value, Value]:
    """Every field that some request knows."""
    return {
        "from-sequence-number": 1,
        "message-count": 2,
        "sequence-numbers": [1, 2],
        "receiver-settle-mode": UInt(1),
        "session-id": "s",
        "session-state": b"state",
        "lock-tokens": [b"\x00" * 16],
        "disposition-status": "completed",
        "messages": [{"message": payload("scheduled"), "message-id": "m"}],
        "last-updated-time": Timestamp(0),
        "skip": 0,
        "top": 10,
        "rule-name": "rule",
        "rule-description": {"sql-filter": {"expression": "a = 1"}, "sql-rule-action": None},
        "enqueued-time-utc": Timestamp(0),
    }


class LoggedErrors(logging.Handler):
    """What is raised further below is logged there, and must not be: `check` raises it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)

    def check(self) -> None:
        if self._records:
            first = self._records[0]
            raise AssertionError(first.getMessage()) from (first.exc_info[1] if first.exc_info else None)


class Fuzz:
    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = Random(seed)
        self._errors = LoggedErrors()
        self._front = fuzzed_namespace(folder / "recorded")
        self._recorded = record(self._front)
        self._damager = Damager(self._recorded.frames, self._random)
        self._connections = self._closed = 0
        self._slowest = 0.0

    async def run(self, frame_count: int) -> Counts:
        logger = logging.getLogger("twinbus")
        logger.addHandler(self._errors)
        frames, sizes = 0, list[int]()
        try:
            for number in range(-(-frame_count // FRAMES_PER_NAMESPACE)):
                self._front = fuzzed_namespace(self._folder / str(number))
                wanted = min(frame_count, frames + FRAMES_PER_NAMESPACE)
                while frames < wanted:
                    frames += self._converse()
                    # Changes of rules are made by the control plane.
                    await asyncio.sleep(0)
                self._front.sim.advance(60_000)
                self._front.catalog.close()
                self._errors.check()
                gc.collect()
                sizes.append(memory_kb())
        finally:
            logger.removeHandler(self._errors)
        # What is loaded and cached at first does not count.
        grown = sizes[-1] - sizes[min(len(sizes) - 1, 4)]
        return Counts(frames, self._connections, self._closed, 1e3 * self._slowest, grown)

    def _converse(self) -> int:
        """One connection. Returns how many frames it read."""
        random, front = self._random, self._front
        self._connections += 1
        server = Connection(Role.SERVER, ConnectionSettings(container_id="server"), front.sim.now)
        gateway = ConnectionGateway(server, front.view, front.sim.now, lambda: None)
        chance = random.random()
        if chance < 0.9:
            self._feed(gateway, random.choice(self._recorded.openings))
        elif chance < 0.95:
            self._feed(gateway, random.choice((AMQP_HEADER, SASL_HEADER)))
        count = 0
        while count < FRAMES_PER_CONNECTION and not gateway.is_closed:
            some = [self._damager.draw() for _ in range(random.randrange(1, 5))]
            self._feed(gateway, b"".join(some))
            count += len(some)
        self._closed += gateway.is_closed
        gateway.tick(front.sim.now)
        gateway.lost(front.sim.now)
        front.sim.run()
        return count

    def _feed(self, gateway: ConnectionGateway, data: bytes) -> None:
        begun = time.process_time()
        try:
            gateway.receive(data, self._front.sim.now)
            self._front.sim.run()
            answer = gateway.data_to_send()
        except BaseException as error:
            error.add_note(f"connection {self._connections} was sent {data.hex()}")
            raise
        took = time.process_time() - begun
        self._slowest = max(self._slowest, took)
        assert took < READ_SECONDS_MAX, f"{took:.1f} s for {data.hex()}"
        check_answer(answer)
