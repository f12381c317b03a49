"""A receiver that takes a million messages and settles none of them: what the namespace holds for it in memory."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.measured import Measured
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace

COUNT, TOGETHER, BODY = 1_000_000, 10_000, b"x" * 700
BYTES_EACH_MAX = 600
"""Of memory, which is less than a content: the lock and the row without it."""
WAIT_S = 300.0


def memory_bytes(process_id: int) -> int:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) * 1024


async def fill(connection_string: str) -> None:
    async with await Namespace.connect(connection_string) as namespace:
        sender, payloads = await namespace.sender("q"), [encode_message(BODY)] * TOGETHER
        for _ in range(COUNT // TOGETHER):
            assert not any(await sender.send(payloads))


async def take_all(connection_string: str, process_id: int) -> int:
    """How much memory the namespace holds when all of them are locked."""
    async with await Namespace.connect(connection_string) as namespace:
        receiver, left = await namespace.receiver("q", credit=COUNT), COUNT
        while left:
            left -= len(await receiver.collect(min(left, TOGETHER), wait_s=WAIT_S))
        return memory_bytes(process_id)


@pytest.mark.nightly
@pytest.mark.timeout(1_200)
def test_a_million_locked_messages_take_no_memory_for_their_contents(tmp_path: Path, measured: Measured) -> None:
    command = [sys.executable, "-m", "twinbus", "serve", "n", "--data", str(tmp_path), "--json", "--no-meter"]
    command += ["--amqp-port", "0", "--http-port", "0", "--stores", "1", "--queue", "q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            connection_string = json.loads(process.stdout.readline())["connection_string"]
            asyncio.run(fill(connection_string))
            before = memory_bytes(process.pid)
            taken = asyncio.run(take_all(connection_string, process.pid)) - before
            # They are free again with the connection, and have their contents.
            again = asyncio.run(take_all(connection_string, process.pid)) - before
        finally:
            process.terminate()
    figures = {"bytes for each": taken // COUNT, "bytes for each the second time": again // COUNT}
    measured(f"{COUNT} locked messages of {len(BODY)} bytes", figures)
    assert taken < COUNT * BYTES_EACH_MAX
