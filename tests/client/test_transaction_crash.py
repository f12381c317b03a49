"""A namespace is killed while transactions are being committed: each of them happened whole, or not at all."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.child_server import ChildServer
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import MessagingError

PARTS = 3
QUEUE, RECEIPTS = "ordinary", "partitioned"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[ChildServer]:
    child = ChildServer(tmp_path)
    yield child
    child.kill()


def generation(number: int) -> list[bytes]:
    return [encode_message(f"{number}-{part}") for part in range(PARTS)]


def number_of(messages: list[ReceivedMessage]) -> int:
    """Which generation they are; there must be one, and all of it."""
    bodies = sorted(message.body.decode() for message in messages)
    number = int(bodies[0].split("-")[0])
    assert bodies == [f"{number}-{part}" for part in range(PARTS)]
    return number


async def replace_generations(namespace: Namespace, committed: list[int]) -> None:
    """Each generation is completed, the next one sent and a receipt sent via the queue, in one transaction."""
    receiver = await namespace.receiver(QUEUE, credit=4 * PARTS)
    sender, receipts = await namespace.sender(QUEUE), await namespace.sender(RECEIPTS, via=QUEUE)
    while True:
        messages = await receiver.collect(PARTS, 5)
        number = number_of(messages)
        async with namespace.transaction() as transaction:
            await transaction.complete(receiver, messages)
            await transaction.send(sender, generation(number + 1))
            await transaction.send(receipts, [encode_message(str(number))])
        committed.append(number)


async def live_until_killed(child: ChildServer, moment_s: float, committed: list[int]) -> None:
    namespace = await Namespace.connect(child.connection_string, timeout_s=10)
    working = asyncio.create_task(replace_generations(namespace, committed))
    await asyncio.sleep(moment_s)
    await asyncio.to_thread(child.kill)
    with pytest.raises(MessagingError):
        await working
    await namespace.close()


async def peek_all(namespace: Namespace, path: str) -> list[ReceivedMessage]:
    receiver = await namespace.receiver(path, deletes=True)
    found: list[ReceivedMessage] = []
    while more := await receiver.receive(1_000, 0.5):
        found += more
    return found


@pytest.mark.slow
@pytest.mark.rule("A7.2")
async def test_a_kill_leaves_every_transaction_whole_or_undone(child: ChildServer) -> None:
    moments, committed = random.Random(7), [-1]
    async with await Namespace.connect(child.connection_string) as namespace:
        await (await namespace.sender(QUEUE)).send(generation(0))
    for _ in range(3):
        await live_until_killed(child, moments.uniform(0.2, 0.5), committed)
        child.start()
        async with await Namespace.connect(child.connection_string) as namespace:
            now = number_of(await namespace.entity(QUEUE).peek(250))
            # The last commit may have been made and its answer lost; none that was answered is undone.
            assert now in (committed[-1] + 1, committed[-1] + 2)
    assert len(committed) > 20
    async with await Namespace.connect(child.connection_string) as namespace:
        # A message is transferred at least once: a kill between the two queues sends it twice.
        receipts = {int(message.body) for message in await peek_all(namespace, RECEIPTS)}
    assert receipts == set(range(now))
