"""The clock of the machine is set while a whole namespace serves a client."""

import asyncio
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from twinbus.clock import Millis, NamespaceClock
from twinbus.http.websocket import PATH, SUB_PROTOCOL
from twinbus.model.descriptions import QueueDescription
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings

HALF_HOUR: Millis = 1_800_000
"""Tokens of the SDK are good for an hour, by the clock."""
WAIT_S = 10.0


class Wall:
    """Of a machine whose clock a test sets."""

    def __init__(self) -> None:
        self.set_ns = 0

    def __call__(self) -> int:
        return time.time_ns() + self.set_ns


def server_at(folder: Path, wall: Wall) -> NamespaceServer:
    settings = ServerSettings("test", folder, amqp_port=0, http_port=0, store_count=1)
    return NamespaceServer(settings, clock=NamespaceClock(wall_ns=wall))


async def set_clock(server: NamespaceServer, wall: Wall, by: Millis) -> None:
    before = server.clock.now()
    wall.set_ns += by * 1_000_000
    async with asyncio.timeout(WAIT_S):
        while abs(server.clock.now() - before) < HALF_HOUR // 2:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("by", [HALF_HOUR, -HALF_HOUR], ids=["forward", "back"])
async def test_a_client_keeps_its_connection_its_locks_and_its_session(
    tmp_path: Path, by: Millis, caplog: pytest.LogCaptureFixture
) -> None:
    wall = Wall()
    server = server_at(tmp_path, wall)
    await server.start()
    try:
        await server.control.create_queue(QueueDescription("q"))
        await server.control.create_queue(QueueDescription("s", requires_session=True, auto_delete_on_idle=300_000))
        async with ServiceBusClient.from_connection_string(server.connection_string) as client:
            await client.get_queue_sender("q").send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
            await client.get_queue_sender("s").send_messages(ServiceBusMessage("c", session_id="x"))
            async with client.get_queue_receiver("q") as receiver:
                first, *others = await receiver.receive_messages(2, max_wait_time=5)
                others = others or await receiver.receive_messages(1, max_wait_time=5)
                session = await client.get_queue_receiver("s", session_id="x").__aenter__()
                (third,) = await session.receive_messages(1, max_wait_time=5)
                count = len(server.connections)
                await set_clock(server, wall, by)
                await receiver.complete_message(first)
                # The last: the SDK compares what it is told with a clock that was not set.
                renewed = await receiver.renew_message_lock(others[0])
                assert abs(renewed.timestamp() * 1000 - server.clock.now()) < 5 * 60_000
                await session.complete_message(third)
                assert len(server.connections) == count
                await session.close()
        assert [queue.main.counts().active for queue in server.entities.queues()] == [1, 0]
        assert server.entities.idle(server.clock.now()) == []
    finally:
        await server.stop()
    assert [record.message for record in caplog.records].count("clock_stepped") == 1
    caplog.clear()


async def test_a_websocket_is_not_silent_because_the_clock_was_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wall = Wall()
    server = server_at(tmp_path, wall)
    await server.start()
    try:
        url = f"ws://127.0.0.1:{server.http_port}{PATH}"
        async with connect(url, subprotocols=[Subprotocol(SUB_PROTOCOL)], proxy=None) as client:
            await client.send(b"AMQP\x03\x01\x00\x00")
            await client.recv(decode=False)
            await set_clock(server, wall, HALF_HOUR)
            async with asyncio.timeout(WAIT_S):
                await (await client.ping())
            assert len(server.connections) == 1
    finally:
        await server.stop()
    caplog.clear()
