"""One process of a namespace is killed under load: nothing that was acknowledged is lost, and sending goes on.

Each seed picks which process is killed and when. The ledger is the clients': what was acknowledged, and what came out.
"""

import asyncio
import os
import random
import signal
import statistics
import time
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from tests.measured import Measured
from tests.server.nodes.two_nodes import TwoNodes, several_nodes
from twinbus.errors import MessagingError

NODES = 4
SENDERS = 4
SENDING_S = 3.0
BACK_S = 3.0
"""In which the fragments of a killed process are served again, on a machine with nothing else to do."""
DRAINED_S = 120.0
KILLS = 25
"""Of one namespace, one after the other."""


async def send_until(client: ServiceBusClient, name: str, stop: asyncio.Event, acknowledged: set[str]) -> int:
    """Sends of batches that failed. A client whose connection ends connects again."""
    number = failures = 0
    while not stop.is_set():
        try:
            async with client.get_queue_sender("parts") as sender:
                while not stop.is_set():
                    ids = [f"{name}-{number + each}" for each in range(10)]
                    number += 10
                    await sender.send_messages([ServiceBusMessage(each, message_id=each) for each in ids])
                    acknowledged.update(ids)
        except ServiceBusError:
            failures += 1
    return failures


async def drain(client: ServiceBusClient, wanted: set[str]) -> set[str]:
    found: set[str] = set()
    deadline = time.monotonic() + DRAINED_S
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with client.get_queue_receiver("parts", receive_mode=mode) as receiver:
        while not found >= wanted and time.monotonic() < deadline:
            found.update(map(str, await receiver.receive_messages(500, max_wait_time=5)))
    return found


async def kill_under_load(namespace: TwoNodes, seed: int) -> float:
    """Returns after how many seconds all fragments were served again."""
    chance = random.Random(seed)
    stop, acknowledged = asyncio.Event(), set[str]()
    victim, moment = chance.randrange(NODES), chance.uniform(0.5, SENDING_S - 1)
    connection_string = namespace.supervisor.connection_string
    clients = [ServiceBusClient.from_connection_string(connection_string, retry_total=0) for _ in range(SENDERS)]
    sending = [
        asyncio.create_task(send_until(client, f"{seed}-{number}", stop, acknowledged))
        for number, client in enumerate(clients)
    ]
    await asyncio.sleep(moment)
    os.kill(namespace.supervisor.process_ids[victim], signal.SIGKILL)
    back = asyncio.create_task(until_back(namespace))
    await asyncio.sleep(0.5)
    before = len(acknowledged)
    await asyncio.sleep(SENDING_S - moment)
    assert len(acknowledged) > before, "keyless sends went on"
    back_s = await back
    stop.set()
    await asyncio.gather(*sending)
    lost = acknowledged - await drain(clients[0], acknowledged)
    assert not lost, f"{len(lost)} of {len(acknowledged)}: {sorted(lost)[:10]}"
    for client in clients:
        await client.close()
    return back_s


async def until_back(namespace: TwoNodes) -> float:
    """A process was just killed: after how many seconds all fragments are served again."""
    killed_at = time.monotonic()
    while True:
        with suppress(MessagingError):  # asked of the one that was killed
            if (await namespace.ask("GET", "/health"))["status"] == "healthy":
                return time.monotonic() - killed_at
        await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
async def test_what_was_acknowledged_before_a_process_was_killed_is_there(tmp_path: Path) -> None:
    async with several_nodes(NODES, tmp_path, "parts:partitioned") as namespace:
        await kill_under_load(namespace, seed=1)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, 100, KILLS))
async def test_a_hundred_processes_are_killed_under_load_and_nothing_is_lost(
    tmp_path: Path, first: int, measured: Measured
) -> None:
    async with several_nodes(NODES, tmp_path, "parts:partitioned") as namespace:
        back_s = [await kill_under_load(namespace, seed) for seed in range(first, first + KILLS)]
    soon = sum(each < BACK_S for each in back_s)
    measured("kills of one of four processes", {"in all": KILLS, f"back in {BACK_S:.0f} s": soon})
    middle, most = int(1_000 * statistics.median(back_s)), int(1_000 * max(back_s))
    measured(f"back after a kill, from seed {first}", {"ms in the middle": middle, "ms at most": most})
