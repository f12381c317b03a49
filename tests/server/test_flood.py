"""A client that ignores credit, as the Python SDK does, in front of a slow store: the socket holds it back."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

from twinbus.amqp.connection import Connection, ConnectionSettings, Role
from twinbus.amqp.events import Dispositions, Event
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.amqp.sasl import plain_credentials
from twinbus.amqp.sections import DataBody, Sections, encode_sections
from twinbus.amqp.terminus import Target
from twinbus.clock import SystemClock
from twinbus.model.descriptions import QueueDescription
from twinbus.server.listener import AmqpTransport
from twinbus.server.namespace import NamespaceServer
from twinbus.server.settings import ServerSettings
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

    async def turn(self) -> list[Event]:
        """Write what there is to say and read what comes."""
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
        while count > 0:
            for event in await self.turn():
                if isinstance(event, Dispositions):
                    count -= len(event.deliveries)


class GatedStore(MemoryStore):
    """Writes only while its gate is open."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def commit(self, changes: Sequence[Change]) -> None:
        assert self._gate.wait(WAIT_S)
        super().commit(changes)


async def test_reading_stops_while_the_store_is_behind_and_nothing_is_lost(tmp_path: Path) -> None:
    gate = threading.Event()
    gate.set()
    settings = ServerSettings("flood", tmp_path, amqp_port=0, http_port=0, store_count=1)
    server = NamespaceServer(settings, open_store=lambda _: GatedStore(gate))
    await server.start()
    await server.control.create_queue(QueueDescription("orders"))
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
