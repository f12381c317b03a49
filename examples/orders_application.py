"""An application of the SDK, unchanged, with paired namespaces: only `main`, which makes the client, knows of them.

Everything above `main` annotates the SDK's own types; `mypy --strict` accepts a pair in their place. With the connection strings
that `twinbus up` prints, and a queue of the primary:

    python examples/orders_application.py PRIMARY --secondary SECONDARY --queue orders

Without `--secondary` the same application runs with the SDK's own clients.
"""

import argparse
import asyncio

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.aio import ServiceBusSender as AsyncServiceBusSender

from twinbus.pairing import SendAvailabilityPairedNamespaceOptions, pair_namespaces
from twinbus.pairing.aio import pair_namespaces as pair_namespaces_async


def send_one_by_one(sender: ServiceBusSender, customer: str, count: int) -> None:
    for number in range(count):
        sender.send_messages(ServiceBusMessage(f"{customer} {number}", subject="order"), timeout=20)


def send_in_a_batch(sender: ServiceBusSender, customer: str, count: int) -> None:
    batch = sender.create_message_batch()
    for number in range(count):
        batch.add_message(ServiceBusMessage(f"{customer} {number}", subject="order"))
    sender.send_messages(batch)


def run(client: ServiceBusClient, queue: str, count: int) -> int:
    """Sends, receives and completes; returns how many orders it got."""
    with client.get_queue_sender(queue) as sender:
        send_one_by_one(sender, "contoso", count)
        send_in_a_batch(sender, "fabrikam", count)
    taken = 0
    with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        for message in receiver:
            receiver.complete_message(message)
            taken += 1
            if taken == 2 * count:
                break
    return taken


async def send_one_by_one_async(sender: AsyncServiceBusSender, customer: str, count: int) -> None:
    for number in range(count):
        await sender.send_messages(ServiceBusMessage(f"{customer} {number}", subject="order"), timeout=20)


async def run_async(client: AsyncServiceBusClient, queue: str, count: int) -> int:
    async with client.get_queue_sender(queue) as sender:
        await send_one_by_one_async(sender, "contoso", count)
    taken = 0
    async with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
        async for message in receiver:
            await receiver.complete_message(message)
            taken += 1
            if taken == count:
                break
    return taken


OPTIONS = SendAvailabilityPairedNamespaceOptions(require_backlog=False)


def new_client(primary: str, secondary: str | None) -> ServiceBusClient:
    return (
        pair_namespaces(primary, secondary, OPTIONS) if secondary else ServiceBusClient.from_connection_string(primary)
    )


async def new_async_client(primary: str, secondary: str | None) -> AsyncServiceBusClient:
    if secondary:
        return await pair_namespaces_async(primary, secondary, OPTIONS)
    return AsyncServiceBusClient.from_connection_string(primary)


async def main_async(primary: str, secondary: str | None, queue: str, count: int) -> int:
    async with await new_async_client(primary, secondary) as client:
        return await run_async(client, queue, count)


def main() -> None:
    arguments = argparse.ArgumentParser(description="An unchanged application, with paired namespaces or without.")
    arguments.add_argument("primary", help="connection string")
    arguments.add_argument("--secondary", help="connection string")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--count", type=int, default=10)
    given = arguments.parse_args()
    with new_client(given.primary, given.secondary) as client:
        taken = run(client, given.queue, given.count)
    taken_async = asyncio.run(main_async(given.primary, given.secondary, given.queue, given.count))
    print(f"{taken} orders sent and received, {taken_async} with asyncio")


if __name__ == "__main__":
    main()
