"""A receiver that takes a million messages and settles none of them: what the namespace holds for it in memory."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from tests.attack.served_namespace import ServedNamespace, served
from tests.measured import Measured
from twinbus.broker.held_contents import HELD_BYTES_MAX
from twinbus.client.administration import administration_client
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace

COUNT, TOGETHER, BODY = 1_000_000, 10_000, b"x" * 700
BYTES_MAX = HELD_BYTES_MAX + (32 << 20) + 400 * COUNT
"""The contents that may stay, what is on its way, and for each of the others its lock and its row without content."""
WAIT_S = 300.0


def memory_bytes(process_id: int) -> int:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


async def fill(connection_string: str) -> None:
    async with await Namespace.connect(connection_string) as namespace:
        sender, payloads = await namespace.sender("q"), [encode_message(BODY)] * TOGETHER
        for _ in range(COUNT // TOGETHER):
            assert not any(await sender.send(payloads))


async def take_all(where: ServedNamespace) -> int:
    """How much memory the namespace holds when all of them are locked."""
    async with await Namespace.connect(where.connection_string) as namespace:
        receiver, left = await namespace.receiver("q", credit=COUNT), COUNT
        while left:
            left -= len(await receiver.collect(min(left, TOGETHER), wait_s=WAIT_S))
        return memory_bytes(where.process_id)


@pytest.mark.nightly
@pytest.mark.timeout(1_200)
def test_a_million_locked_messages_take_no_memory_for_their_contents(tmp_path: Path, measured: Measured) -> None:
    with served(tmp_path, "--stores", "1") as namespace:
        administration = administration_client(namespace.connection_string, namespace.endpoint)
        # As long as a lock may be: a machine that is busy with other things must not see them end.
        administration.create_queue("q", lock_duration=timedelta(minutes=5))
        asyncio.run(fill(namespace.connection_string))
        before = memory_bytes(namespace.process_id)
        taken = asyncio.run(take_all(namespace)) - before
    measured(f"{COUNT} locked messages of {len(BODY)} bytes", {"bytes of memory for each": taken // COUNT})
    assert taken < BYTES_MAX
