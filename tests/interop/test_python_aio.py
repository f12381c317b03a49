"""The official Python SDK in its async form, and what goes over topics."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import count

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from tests.interop.running_server import RunningServer

_numbers = count(1)


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[ServiceBusClient]:
    client = ServiceBusClient.from_connection_string(server.connection_string, retry_total=1, retry_backoff_factor=0.1)
    async with client:
        yield client


@pytest.fixture(params=["ordinary", "partitioned"])
def queue(server: RunningServer, request: pytest.FixtureRequest) -> str:
    return server.create_queue(f"aio-{next(_numbers)}", enable_partitioning=request.param == "partitioned")


async def test_messages_are_sent_received_and_settled(client: ServiceBusClient, queue: str) -> None:
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage("0"))
        await sender.send_messages([ServiceBusMessage(str(number)) for number in range(1, 4)])
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("4"))
        await sender.send_messages(batch)
        found: dict[str, int] = {}
        while len(found) < 5:
            for message in await receiver.receive_messages(5, max_wait_time=5):
                if str(message) == "2" and message.delivery_count == 0:
                    await receiver.abandon_message(message)
                    continue
                found[str(message)] = message.delivery_count or 0
                await receiver.complete_message(message)
        assert found == {"0": 0, "1": 0, "2": 1, "3": 0, "4": 0}
        assert await receiver.receive_messages(1, max_wait_time=0.3) == []


async def test_deferred_and_dead_lettered_messages_are_found_again(
    client: ServiceBusClient, server: RunningServer, queue: str
) -> None:
    server.put(queue, "defer", "bury")
    async with client.get_queue_receiver(queue) as receiver:
        numbers: list[int] = []
        handled = 0
        while handled < 2:
            for message in await receiver.receive_messages(2, max_wait_time=5):
                handled += 1
                if str(message) == "defer":
                    await receiver.defer_message(message)
                    numbers.append(message.sequence_number or 0)
                else:
                    await receiver.dead_letter_message(message, reason="why", error_description="because")
        (deferred,) = await receiver.receive_deferred_messages(numbers)
        await receiver.renew_message_lock(deferred)
        await receiver.complete_message(deferred)
    async with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = await receiver.receive_messages(1, max_wait_time=5)
        assert (str(dead), dead.dead_letter_reason) == ("bury", "why")
        await receiver.complete_message(dead)


async def test_a_lock_that_ran_out_is_lost(client: ServiceBusClient, server: RunningServer, queue: str) -> None:
    server.put(queue, "a")
    async with client.get_queue_receiver(queue) as receiver:
        (message,) = await receiver.receive_messages(1, max_wait_time=5)
        server.clock.advance(61)
        await asyncio.sleep(0.2)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)


async def test_many_senders_and_receivers_at_once_lose_and_repeat_nothing(client: ServiceBusClient, queue: str) -> None:
    wanted = {f"{sender}-{number}" for sender in range(4) for number in range(25)}
    found: list[str] = []

    async def send(index: int) -> None:
        async with client.get_queue_sender(queue) as sender:
            for number in range(25):
                await sender.send_messages(ServiceBusMessage(f"{index}-{number}"))

    async def receive() -> None:
        async with client.get_queue_receiver(queue, prefetch_count=10) as receiver:
            while len(found) < len(wanted):
                for message in await receiver.receive_messages(10, max_wait_time=0.3):
                    await receiver.complete_message(message)
                    found.append(str(message))

    await asyncio.wait_for(asyncio.gather(*[send(index) for index in range(4)], receive(), receive()), 30)
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("is_partitioned", [False, True])
async def test_every_subscription_of_a_topic_gets_a_copy(
    client: ServiceBusClient, server: RunningServer, is_partitioned: bool
) -> None:
    topic = server.create_topic(f"topic-{next(_numbers)}", "one", "two", enable_partitioning=is_partitioned)
    async with client.get_topic_sender(topic) as sender:
        await sender.send_messages([ServiceBusMessage("a", time_to_live=timedelta(minutes=5)), ServiceBusMessage("b")])
    for subscription in ("one", "two"):
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        async with client.get_subscription_receiver(topic, subscription, receive_mode=mode) as receiver:
            found: list[str] = []
            while len(found) < 2:
                found += map(str, await receiver.receive_messages(2, max_wait_time=5))
            assert sorted(found) == ["a", "b"]


async def test_a_topic_cannot_be_received_from(client: ServiceBusClient, server: RunningServer) -> None:
    topic = server.create_topic(f"topic-{next(_numbers)}")
    with pytest.raises(ServiceBusError):
        async with client.get_queue_receiver(topic) as receiver:
            await receiver.receive_messages(1, max_wait_time=0.3)
