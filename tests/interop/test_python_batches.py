"""Batches that the official Python SDK calls full: it counts the messages, and not what it puts around them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from tests.interop.running_server import RunningServer

SIZES = (0, 100, 180, 200, 250, 256, 1_000, 5_000, 60_000, 130_000, 261_000)
KINDS: dict[str, dict[str, Any]] = {
    "bare": {},
    "ids": {"message_id": "m" * 128, "partition_key": "p" * 128, "subject": "s" * 128},
    "sessions": {"session_id": "s" * 128},
    "properties": {"application_properties": {f"property {number}": "value" * 9 for number in range(30)}},
}


def fill(sender: ServiceBusSender, new: Callable[[], ServiceBusMessage]) -> ServiceBusMessageBatch:
    batch = sender.create_message_batch()
    try:
        while True:
            batch.add_message(new())
    except MessageSizeExceededError:
        return batch


@pytest.mark.parametrize("size_kb", [256, 2_048])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_the_sdk_calls_full_is_accepted(server: RunningServer, kind: str, size_kb: int) -> None:
    path = f"full-{kind}-{size_kb}"
    queue = server.create_queue(path, requires_session=kind == "sessions", max_message_size_kb=size_kb)
    with server.client() as client, client.get_queue_sender(queue) as sender:
        sizes = SIZES if size_kb == 256 else SIZES[6:]
        for size in sizes:
            batch = fill(sender, partial(ServiceBusMessage, bytes(size), **KINDS[kind]))
            if len(batch):
                sender.send_messages(batch)


def test_a_batch_beyond_what_the_link_announces_is_refused_with_the_services_condition(server: RunningServer) -> None:
    queue = server.create_queue("overfull")
    with server.client() as client, client.get_queue_sender(queue) as sender:
        batch = ServiceBusMessageBatch(max_size_in_bytes=1_000_000)
        for _ in range(263):
            batch.add_message(ServiceBusMessage(bytes(1_000)))
        with pytest.raises(MessageSizeExceededError, match=r"'overfull' takes batches of at most 262144 bytes"):
            sender.send_messages(batch)


def test_the_sdk_fills_batches_up_to_the_size_that_the_link_announces(server: RunningServer) -> None:
    with server.client() as client:
        assert _batch_size(client, server.create_queue("sized-as-usual")) == 256 * 1024
        assert _batch_size(client, server.create_queue("sized-large", max_message_size_kb=102_400)) == 1024 * 1024


def _batch_size(client: ServiceBusClient, queue: str) -> int:
    with client.get_queue_sender(queue) as sender:
        return sender.create_message_batch().max_size_in_bytes
