"""The simulation of queues under faults, with messaging stores in PostgreSQL instead of memory; tiny segments, so that rows come
from journals, from layers and from tables."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from tests.simulation.turmoil import LOCK_DURATION, Turmoil
from tests.store.postgres_places import opened
from twinbus.model.descriptions import QueueDescription
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.postgres.place import PostgresPlace
from twinbus.store.store_limits import StoreLimits

STORES = 4
STEPS = 250
SEEDS = 25
SEEDS_EACH_TIME = 1
DESCRIPTIONS = {
    "keyless": QueueDescription("q", enable_partitioning=True, lock_duration=LOCK_DURATION),
    "duplicates": QueueDescription(
        "q", enable_partitioning=True, requires_duplicate_detection=True, lock_duration=LOCK_DURATION
    ),
    "sessions": QueueDescription(
        "q", enable_partitioning=True, requires_session=True, lock_duration=LOCK_DURATION, max_delivery_count=1_000
    ),
}


@pytest.fixture
def make_store(postgres_dsn: str, fresh_namespace: str) -> Iterator[Callable[[], MessagingStore]]:
    numbers = count()
    with ExitStack() as stack:

        def make() -> MessagingStore:
            place = PostgresPlace(postgres_dsn, fresh_namespace, next(numbers), STORES)
            store = opened(place, limits=StoreLimits(segment_entries_max=40))
            stack.callback(store.close)
            return store

        yield make


@pytest.mark.parametrize("kind", DESCRIPTIONS)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < SEEDS_EACH_TIME else pytest.mark.nightly) for seed in range(SEEDS)]
)
def test_promises_hold_with_stores_in_postgresql(
    seed: int, kind: str, make_store: Callable[[], MessagingStore]
) -> None:
    turmoil = Turmoil(seed, DESCRIPTIONS[kind], store_count=STORES, make_store=make_store)
    turmoil.run(STEPS)
    turmoil.heal()
    turmoil.check()
