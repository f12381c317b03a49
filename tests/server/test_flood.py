"""Clients in front of a slow store: the socket holds back one that ignores credit, as the Python SDK does; many together are refused."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from twinbus.amqp.codec.delivery_state import Rejected
from twinbus.amqp.codec.sasl import plain_credentials
from twinbus.amqp.codec.sections import DataBody, Sections, encode_sections
from twinbus.amqp.codec.terminus import Target
from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import Dispositions, Event
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.broker import message_broker
from twinbus.clock import SystemClock
from twinbus.errors import ServerBusy
from twinbus.model.descriptions import QueueDescription
from twinbus.server.listening.listener import AmqpTransport
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings
from twinbus.store.changes import Change
from twinbus.store.memory import MemoryStore

MESSAGE_COUNT = 30_000
WAIT_S = 20.0
PAYLOAD = encode_sections(Sections(body=DataBody([b"x"])))


class RawClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        credentials = plain_credentials("RootManageSharedAccessKey", key)
        settings = ConnectionSettings(container_id="flood", sasl_credentials=credentials)
        self.clock = SystemClock()
        self.connection = Connection(Role.CLIENT, settings, self.clock.now())
        self._reader, self._writer = reader, writer
        self.accepted_count = self.refused_count = 0

    async def turn(self) -> list[Event]:
        """Write what is due and read what comes."""
        self._writer.write(self.connection.data_to_send())
        return self.connection.receive_data(await self._reader.read(1 << 16), self.clock.now())

    async def attach(self, address: str) -> OutgoingLink:
        self.connection.open()
        while self.connection.remote_open is None:
            await self.turn()
        session = self.connection.begin()
        await self.turn()
        link = session.attach("flood", is_sender=True, target=Target(address=address))
        assert isinstance(link, OutgoingLink)
        while not link.is_attached:
            await self.turn()
        return link

    async def run_until_accepted(self, count: int) -> None:
        while self.accepted_count < count:
            self._count(await self.turn())

    async def run_until_answered(self, count: int) -> None:
        while self.accepted_count + self.refused_count < count:
            self._count(await self.turn())

    def _count(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Dispositions):
                if isinstance(event.state, Rejected):
                    assert event.state.error is not None
                    assert event.state.error.condition == ServerBusy.condition
                    self.refused_count += len(event.deliveries)
                else:
                    self.accepted_count += len(event.deliveries)


class GatedStore(MemoryStore):
    """Writes only while its gate is open."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def commit(self, changes: Sequence[Change]) -> None:
        assert self._gate.wait(WAIT_S)
        super().commit(changes)


async def flooded_server(folder: Path) -> tuple[NamespaceServer, threading.Event]:
    """A namespace with a queue `orders`, and the gate of its store, which is open."""
    gate = threading.Event()
    gate.set()
    settings = ServerSettings("flood", folder, amqp_port=0, http_port=0, store_count=1)
    server = NamespaceServer(settings, open_store=lambda _: GatedStore(gate))
    await server.start()
    await server.control.create_queue(QueueDescription("orders"))
    return server, gate


async def test_reading_stops_while_the_store_is_behind_and_nothing_is_lost(tmp_path: Path) -> None:
    server, gate = await flooded_server(tmp_path)
    client = RawClient(*await asyncio.open_connection("127.0.0.1", server.amqp_port), server.root_rule.primary_key)
    link = await client.attach("orders")
    gate.clear()
    link.transfers([(b"%d" % number, PAYLOAD) for number in range(MESSAGE_COUNT)])
    sending = asyncio.create_task(client.run_until_accepted(MESSAGE_COUNT))
    (transport,) = server.connections
    assert isinstance(transport, AmqpTransport)
    while not transport.is_reading_paused:
        await asyncio.sleep(0.01)
    assert not sending.done()
    gate.set()
    await asyncio.wait_for(sending, WAIT_S)
    assert not transport.is_reading_paused
    assert server.entities.queue("orders").main.counts().active == MESSAGE_COUNT
    await server.stop()


async def test_what_waits_for_a_slow_store_is_bounded_however_many_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, client_count, count_each, body = 4 << 20, 200, 4, b"x" * 60_000
    monkeypatch.setattr(message_broker, "WAITING_BYTES_MAX", limit)
    server, gate = await flooded_server(tmp_path)
    clients, links = list[RawClient](), list[OutgoingLink]()
    for _ in range(client_count):
        streams = await asyncio.open_connection("127.0.0.1", server.amqp_port)
        clients.append(RawClient(*streams, server.root_rule.primary_key))
        links.append(await clients[-1].attach("orders"))
    gate.clear()
    payload = encode_sections(Sections(body=DataBody([body])))
    for link in links:
        link.transfers([(b"%d" % number, payload) for number in range(count_each)])
    sending = [asyncio.create_task(client.run_until_answered(count_each)) for client in clients]
    (store,) = server.stores.stores
    async with asyncio.timeout(WAIT_S):
        while store.waiting_bytes + sum(client.refused_count for client in clients) * len(body) < (
            client_count * count_each * len(body)
        ):
            await asyncio.sleep(0.01)
    assert limit < store.waiting_bytes < limit + count_each * len(payload) + (1 << 20)
    gate.set()
    await asyncio.wait_for(asyncio.gather(*sending), WAIT_S)
    accepted_count = sum(client.accepted_count for client in clients)
    assert server.entities.queue("orders").main.counts().active == accepted_count
    assert accepted_count * len(body) >= limit
    assert store.waiting_bytes == 0
    (late,) = links[:1]
    late.transfers([(b"late", payload)])
    await asyncio.wait_for(clients[0].run_until_answered(count_each + 1), WAIT_S)
    assert server.entities.queue("orders").main.counts().active == accepted_count + 1
    await server.stop()
