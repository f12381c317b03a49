"""Whichever process a client is connected to, it finds the same namespace: sent through one, received through another."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from operator import methodcaller
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from tests.server.nodes.two_nodes import TwoNodes, two_nodes
from twinbus.server.listening.ports import Door
from twinbus.server.listening.sockets import port_of
from twinbus.server.server_settings import ExtraPort

SASL = b"AMQP\3\1\0\0"
PING = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
QUEUES = ("even", "odd", "parts:partitioned")
NAMES = ("even", "odd", "parts")


@pytest.fixture
async def namespace(tmp_path: Path) -> AsyncIterator[TwoNodes]:
    extra = (ExtraPort(0, False), ExtraPort(0, True))
    async with two_nodes(tmp_path, *QUEUES, connections_max=6, tls_port=0, also_listen=extra) as namespace:
        yield namespace


def client_of(namespace: TwoNodes) -> ServiceBusClient:
    """Connections go to the two processes in turns."""
    return ServiceBusClient.from_connection_string(namespace.supervisor.connection_string, retry_total=0)


async def test_what_is_sent_through_one_process_is_received_through_the_other(namespace: TwoNodes) -> None:
    async with client_of(namespace) as one, client_of(namespace) as other:
        for name in NAMES:
            for sending, receiving in ((one, other), (other, one)):
                async with sending.get_queue_sender(name) as sender, receiving.get_queue_receiver(name) as receiver:
                    await sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
                    found: list[str] = []
                    while len(found) < 20:
                        for message in await receiver.receive_messages(20, max_wait_time=10):
                            found.append(str(message))
                            await receiver.complete_message(message)
                    assert sorted(found, key=int) == [str(number) for number in range(20)]
    for name in NAMES:
        for _ in range(2):
            counted = await namespace.administer(methodcaller("get_queue_runtime_properties", name))
            assert (counted.active_message_count, counted.total_message_count) == (0, 0)


async def test_sessions_dead_letters_schedules_and_rules_work_from_any_process(namespace: TwoNodes) -> None:
    await namespace.administer(lambda client: client.create_queue("sessions", requires_session=True))
    await namespace.administer(lambda client: client.create_topic("topic", enable_partitioning=True))
    await namespace.administer(lambda client: client.create_subscription("topic", "all"))
    async with client_of(namespace) as one, client_of(namespace) as other:
        async with one.get_queue_sender("sessions") as sender:
            await sender.send_messages([ServiceBusMessage("s", session_id=str(number)) for number in range(4)])
        for number in range(4):
            async with other.get_queue_receiver("sessions", session_id=str(number)) as receiver:
                (message,) = await receiver.receive_messages(1, max_wait_time=10)
                await receiver.session.set_state(b"seen")
                await receiver.dead_letter_message(message, reason="tried")
        async with one.get_queue_receiver("sessions", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            dead: list[ServiceBusReceivedMessage] = []
            while len(dead) < 4:
                dead += await receiver.receive_messages(4 - len(dead), max_wait_time=10)
            assert {message.dead_letter_reason for message in dead} == {"tried"}
        async with one.get_topic_sender("topic") as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(16)])
        async with other.get_subscription_receiver("topic", "all") as receiver:
            copies: list[str] = []
            while len(copies) < 16:
                for message in await receiver.receive_messages(16, max_wait_time=10):
                    copies.append(str(message))
                    await receiver.complete_message(message)
        assert sorted(copies, key=int) == [str(number) for number in range(16)]


async def test_the_limit_of_connections_is_that_of_the_namespace(namespace: TwoNodes) -> None:
    clients = [client_of(namespace) for _ in range(7)]
    senders = [client.get_queue_sender("even") for client in clients]
    for sender in senders[:6]:
        await sender.__aenter__()
    with pytest.raises((ServiceBusConnectionError, ServiceBusError)):
        await senders[6].__aenter__()
    await clients[0].close()
    async with asyncio.timeout(20):
        while True:
            async with client_of(namespace) as again:
                try:
                    async with again.get_queue_sender("even") as sender:
                        await sender.send_messages(ServiceBusMessage("fits"))
                        break
                except ServiceBusError:
                    await asyncio.sleep(0.05)  # until the one that was closed is gone on both sides
    for client in clients:
        await client.close()


async def test_every_port_leads_to_the_namespace(namespace: TwoNodes) -> None:
    trusting = ssl.create_default_context(cafile=str(namespace.supervisor.tls_authority))
    doors = namespace.supervisor.doors
    assert [door for _, door in doors] == [Door.SHARED, Door.SHARED, Door.TLS, Door.TLS, Door.HTTP]
    for sock, door in [*doors, *doors]:
        tls = trusting if door is Door.TLS else None
        reader, writer = await asyncio.open_connection("localhost", port_of(sock), family=socket.AF_INET, ssl=tls)
        writer.write(PING if door is Door.HTTP else SASL)
        assert await reader.readexactly(4) == (b"HTTP" if door is Door.HTTP else b"AMQP")
        writer.close()
