"""Queues and topics whose messages may be as large as those of the service's largest tier."""

import gc
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from twinbus.amqp.connection_settings import BUFFER_SIZE
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.model.message_limits import LARGE_MESSAGE_KB_MAX, MESSAGE_SIZE_CEILING
from twinbus.testing.local_namespace import LocalNamespace

WAIT_S = 30.0
SIZE = 20 * 1024 * 1024


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalNamespace]:
    with LocalNamespace(tmp_path, store_count=1) as local:
        yield local


def largest() -> bytes:
    """An encoded message of exactly the largest size."""
    envelope = len(encode_message(bytes(1000), message_id="m")) - 1000
    return encode_message(bytes(MESSAGE_SIZE_CEILING - envelope), message_id="m")


def resident_size() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_the_largest_message_survives_a_restart_and_is_peeked_and_received(local: LocalNamespace) -> None:
    payload = largest()
    assert len(payload) == MESSAGE_SIZE_CEILING > BUFFER_SIZE
    local.create_queue("large", max_message_size_in_kilobytes=LARGE_MESSAGE_KB_MAX)
    async with await Namespace.connect(local.connection_string) as namespace:
        sender = await namespace.sender("large")
        assert await sender.send([payload]) == [None]
    local.restart()
    async with await Namespace.connect(local.connection_string) as namespace:
        (peeked,) = await namespace.entity("large").peek(10)
        assert encode_message(peeked.body, message_id="m") == payload
        receiver = await namespace.receiver("large", credit=1, deletes=True)
        (received,) = await receiver.receive(1, WAIT_S)
        assert received.body == peeked.body


async def test_large_messages_are_peeked_one_by_one(local: LocalNamespace) -> None:
    local.create_queue("large", max_message_size_in_kilobytes=LARGE_MESSAGE_KB_MAX)
    async with await Namespace.connect(local.connection_string) as namespace:
        sender = await namespace.sender("large")
        sizes = [10, 2_000_000, 300_000, 10]
        assert await sender.send([encode_message(bytes(size)) for size in sizes]) == [None] * 4
        entity, seen, after = namespace.entity("large"), [], 0
        while page := await entity.peek(10, from_number=after + 1):
            seen.append([len(message.body) for message in page])
            after = page[-1].sequence_number or 0
        assert seen == [[10], [2_000_000], [300_000], [10]]


async def test_subscriptions_give_large_messages_of_their_topic(local: LocalNamespace) -> None:
    local.create_topic("news", "one", "two", max_message_size_in_kilobytes=LARGE_MESSAGE_KB_MAX)
    async with await Namespace.connect(local.connection_string) as namespace:
        sender = await namespace.sender("news")
        assert await sender.send([encode_message(bytes(2_000_000))]) == [None]
        for name in ("one", "two"):
            receiver = await namespace.receiver(f"news/Subscriptions/{name}", credit=1, deletes=True)
            (received,) = await receiver.receive(1, WAIT_S)
            assert len(received.body) == 2_000_000


async def test_memory_is_given_back_after_large_messages(local: LocalNamespace) -> None:
    local.create_queue("large", max_message_size_in_kilobytes=LARGE_MESSAGE_KB_MAX)
    before = 0
    async with await Namespace.connect(local.connection_string) as namespace:
        sender = await namespace.sender("large")
        receiver = await namespace.receiver("large", credit=1, deletes=True)
        for round_number in range(6):
            assert await sender.send([encode_message(bytes(SIZE))]) == [None]
            (received,) = await receiver.receive(1, WAIT_S)
            assert len(received.body) == SIZE
            gc.collect()
            if round_number == 1:
                before = resident_size()
    assert resident_size() < before + 2 * SIZE
