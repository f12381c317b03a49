"""What goes wrong among hosts, drawn by seed: one failure after the other, each healed before the next.

One node or one database at a time is out of order, so there is always a node and a store that work.
"""

import asyncio
import random
import sys
import time

from tests.server.machines.hosts import Cluster

ACTIONS = {
    "kill": 4,
    "freeze": 4,
    "freeze long": 1,
    "unplug": 4,
    "cut": 4,
    "cut both ways": 3,
    "delay": 4,
    "restart": 3,
    "restart all": 1,
    "fail over": 4,
}
"""And how often each comes."""
COUNT = 2


def drawn(seed: int) -> list[str]:
    return random.Random(f"actions {seed}").choices(list(ACTIONS), list(ACTIONS.values()), k=COUNT)


async def fail(cluster: Cluster, seed: int) -> None:
    chance = random.Random(seed)
    for action in drawn(seed):
        await asyncio.sleep(chance.uniform(0.2, 1.0))
        number, other = chance.sample([1, 2, 3], 2)
        lasting = chance.uniform(8.0, 30.0) if action == "freeze long" else chance.uniform(1.0, 5.0)
        print(f"{time.strftime('%H:%M:%S')} {seed}: {action} {number} {other} {lasting:.1f}", file=sys.stderr)
        await _do(cluster, action, number, other, lasting, chance)


async def _do(cluster: Cluster, action: str, number: int, other: int, lasting: float, chance: random.Random) -> None:
    hosts = cluster.hosts
    match action:
        case "kill":
            cluster.nodes[number].kill()
            cluster.begin(number)
            await asyncio.to_thread(cluster.await_node, number)
        case "restart" | "restart all":
            for each in [number] if action == "restart" else [1, 2, 3]:
                assert await asyncio.to_thread(cluster.nodes[each].stop) == 0
                cluster.begin(each)
                await asyncio.to_thread(cluster.await_node, each)
        case "fail over":
            await asyncio.to_thread(chance.choice(cluster.databases).fail_over)
        case "freeze" | "freeze long":
            cluster.nodes[number].freeze()
            await asyncio.sleep(lasting)
            cluster.nodes[number].thaw()
        case "unplug":
            hosts.unplug(number)
            await asyncio.sleep(lasting)
            hosts.plug_in(number)
        case "delay":
            # Of two nodes one dials the other, and is reached by it at no address of its own.
            for each in (number, other):
                cluster.delay(each, chance.uniform(20, 1_500))
            await asyncio.sleep(lasting)
            for each in (number, other):
                cluster.delay(each, 0)
        case _:
            pairs = [(number, other)] if action == "cut" else [(number, other), (other, number)]
            for pair in pairs:
                hosts.cut(*pair)
            await asyncio.sleep(lasting)
            for pair in pairs:
                hosts.heal(*pair)
