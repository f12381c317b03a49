"""Queries that die between any two steps, again and again, and claims whose answers are lost: the ledger is exact."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest

from tests.pipeline.source.bus import Bus, names
from tests.pipeline.source.micro_batches import STEPS, Died, Query
from twinbus.client.namespace import Namespace
from twinbus.client.remote_errors import ConnectionLost
from twinbus.pipeline.source import live_entity
from twinbus.pipeline.source.access import plain_access
from twinbus.pipeline.source.access.connections import CONNECTIONS, Detect
from twinbus.pipeline.source.access.entity_access import Claim, EntityAccess
from twinbus.pipeline.source.live_entity import detected, plain
from twinbus.pipeline.source.ranges import Range

ASKED = ("before claim", "after claim", "before delete", "after delete")
ANSWER_LOST = "answer lost"
RUNS_MAX = 200


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_access, "CLAIM_WAIT_S", 0.02)
    monkeypatch.setattr(live_entity, "BACK_OFF_S", 0.0)


class Watched:
    """An access that says what it is about to do and has done."""

    def __init__(self, access: EntityAccess, step: Callable[[str], None]) -> None:
        self._access = access
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._access, name)

    async def claim(self, shares: Mapping[int, int], ends: Mapping[int, int] | None, owner: str) -> Claim:
        self._step("before claim")
        found = await self._access.claim(shares, ends, owner)
        self._step("after claim")
        return found

    async def delete(self, ranges: list[Range]) -> None:
        self._step("before delete")
        await self._access.delete(ranges)
        self._step("after delete")


def watched(detect: Detect, step: Callable[[str], None]) -> Detect:
    async def detect_watched(namespace: Namespace, path: str) -> EntityAccess:
        found: Any = Watched(await detect(namespace, path), step)
        access: EntityAccess = found
        return access

    return detect_watched


def run_to_the_end(bus: Bus, path: str, query: Query) -> None:
    """On a busy machine nothing may arrive while a claim waits, and the run ends: its operator would start another one."""
    for _ in range(RUNS_MAX):
        if bus.counts(path) == (0, 0):
            break
        query.run()


def consuming(bus: Bus, path: str, detect: Detect, step: Callable[[str], None], count: int) -> Query:
    return Query(lambda: bus.stream(path, watched(detect, step), mode="consume", maxMessagesPerTrigger=str(count)))


@pytest.mark.parametrize("detect", [pytest.param(detected, id="own"), pytest.param(plain, id="plain")])
@pytest.mark.parametrize("place", [*STEPS, *ASKED])
def test_a_query_that_dies_at_any_step_reads_every_message_in_one_batch(bus: Bus, detect: Detect, place: str) -> None:
    path = bus.queue()
    bus.send(path, names(10))
    visits = 0

    def step(name: str) -> None:
        nonlocal visits
        if name == place:
            visits += 1
            if visits in (2, 4):
                raise Died(place)

    query = consuming(bus, path, detect, step, 4)
    deaths = 0
    while True:
        CONNECTIONS.close()
        try:
            query.run(step)
            break
        except Died:
            deaths += 1
    assert deaths >= 1
    run_to_the_end(bus, path, query)
    assert sorted(query.kept) == sorted(names(10))
    assert bus.counts(path) == (0, 0)


@pytest.mark.parametrize("seed", range(24))
def test_whatever_happens_every_message_is_in_one_batch_and_none_is_left(bus: Bus, seed: int) -> None:
    """Goal: nothing is lost, nothing is in two batches, no claim is forgotten.

    Method: messages come while the query runs; it dies, or loses an answer, at places that the seed chooses.
    """
    random = Random(seed)
    detect = plain if seed % 4 == 0 else detected
    path = bus.queue(enable_partitioning=bool(random.getrandbits(1)))
    left = [f"m{number}" for number in range(40)]
    sent: list[str] = []
    troubles = random.randrange(3, 9)

    def send_some() -> None:
        some = [left.pop() for _ in range(min(len(left), random.randrange(12)))]
        bus.spread(path, some)
        sent.extend(some)

    def step(name: str) -> None:
        nonlocal troubles
        if name == "planned" and random.random() < 0.3:
            send_some()
        if troubles and random.random() < 0.15:
            troubles -= 1
            if name == "after claim" and random.random() < 0.5:
                raise ConnectionLost(ANSWER_LOST)
            raise Died(name)

    query = consuming(bus, path, detect, step, random.randrange(3, 15))
    while left or troubles:
        send_some()
        CONNECTIONS.close()
        try:
            query.run(step)
        except Died:
            continue
        if not left:
            troubles = 0
    run_to_the_end(bus, path, query)
    assert sorted(query.kept) == sorted(sent)
    assert len(sent) == 40
    assert set(query.written) == set(sent)
    assert bus.counts(path) == (0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_a_browsing_query_that_dies_anywhere_reads_every_message_in_one_batch(bus: Bus, seed: int) -> None:
    random = Random(seed)
    path = bus.queue(enable_partitioning=bool(random.getrandbits(1)))
    left = [f"m{number}" for number in range(40)]
    deaths = 6

    def step(name: str) -> None:
        nonlocal deaths
        if left and name == "planned" and random.random() < 0.5:
            bus.spread(path, [left.pop() for _ in range(min(len(left), random.randrange(12)))])
        if deaths and random.random() < 0.2:
            deaths -= 1
            raise Died(name)

    query = Query(lambda: bus.stream(path, plain if seed % 3 == 0 else detected, maxMessagesPerTrigger="7"))
    while left or deaths:
        bus.spread(path, [left.pop() for _ in range(min(len(left), 3))])
        try:
            query.run(step)
        except Died:
            continue
        if not left:
            deaths = 0
    query.run()
    assert sorted(query.kept) == sorted(f"m{number}" for number in range(40))
