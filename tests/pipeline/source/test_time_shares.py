"""Batches with a limit in which fragments advance together in time."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from tests.pipeline.source.bus import Bus, rows
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.pipeline.source.stream_reader import ServiceBusStreamReader
from twinbus.pipeline.source.time_shares import time_shares

Fragments = dict[int, list[tuple[int, int]]]
"""By fragment, the numbers and times of its messages, rising."""


class Times:
    def __init__(self, fragments: Fragments) -> None:
        self._fragments = fragments
        self.request_count = 0

    async def __call__(self, numbers: Sequence[int]) -> list[tuple[int, int] | None]:
        self.request_count += 1
        return [next((each for each in self._fragments[n >> 48] if each[0] >= n), None) for n in numbers]


def made(dice: Random) -> Fragments:
    """Some busy, some quiet, some with numbers that are gone, some with many messages in a millisecond."""
    found: Fragments = {}
    for fragment in range(dice.randrange(1, 6)):
        number, time = fragment << 48, dice.randrange(50)
        found[fragment] = []
        for _ in range(dice.choice([0, 3, 30, 150])):
            number += dice.choice([1, 1, 1, 4])
            time += dice.choice([0, 0, 1, 20])
            found[fragment].append((number, time))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_no_message_of_a_later_batch_is_older_than_one_of_an_earlier_batch(seed: int) -> None:
    dice = Random(seed)
    fragments = made(dice)
    limit = dice.choice([1, 2, 7, 40])
    positions = {fragment: fragment << 48 for fragment in fragments}
    ends = {f: (messages[-1][0] + 1 if messages else f << 48) for f, messages in fragments.items()}
    newest, read = -1, []
    for turn in range(2_000):
        room = {fragment: (positions[fragment], ends[fragment]) for fragment in fragments}
        shares = asyncio.run(time_shares(room, limit, turn, Times(fragments)))
        assert sum(shares.values()) <= limit
        if not shares:
            break
        batch = []
        for fragment, share in shares.items():
            first = positions[fragment]
            batch += [each for each in fragments[fragment] if first <= each[0] < first + share]
            positions[fragment] = first + share
        if batch:
            assert min(time for _, time in batch) >= newest
            newest = max(newest, *(time for _, time in batch))
            read += [number for number, _ in batch]
    assert sorted(read) == sorted(number for messages in fragments.values() for number, _ in messages)


def test_a_batch_of_thousands_takes_a_few_requests_and_is_nearly_full() -> None:
    dice = Random(1)
    fragments: Fragments = {}
    for fragment in range(16):
        times = sorted(dice.randrange(10_000_000) for _ in range(200 if fragment % 4 else 40_000))
        fragments[fragment] = [((fragment << 48) + place, time) for place, time in enumerate(times)]
    times_of = Times(fragments)

    async def quick(numbers: Sequence[int]) -> list[tuple[int, int] | None]:
        times_of.request_count += 1
        places = [(n >> 48, n & 0xFFFFFFFF) for n in numbers]
        return [fragments[f][place] if place < len(fragments[f]) else None for f, place in places]

    room = {f: (f << 48, (f << 48) + len(messages)) for f, messages in fragments.items()}
    shares = asyncio.run(time_shares(room, 20_000, 0, quick))
    assert 15_000 <= sum(shares.values()) <= 20_000
    assert times_of.request_count <= 9


def keys_of_two_fragments(bus: Bus, path: str) -> tuple[str, str]:
    for number in range(16):
        bus.send(path, [f"probe {number}"], partition_key=f"k{number}")
    found: dict[int, str] = {}
    for row in rows(reader := bus.batch(path), reader.partitions()):
        found.setdefault(row["fragment"], row["partitionKey"])
    bus.take(path, 16)
    first, second, *_ = found.values()
    return first, second


def batches(reader: ServiceBusStreamReader) -> list[list[dict[str, Any]]]:
    """As Spark would ask for them with Trigger.AvailableNow."""
    reader.prepareForTriggerAvailableNow()
    limit, start, found = reader.getDefaultReadLimit(), reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        found.append(rows(reader, reader.partitions(start, end)))
        start = end
    return [batch for batch in found if batch]


@pytest.mark.rule("C3.1")
@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_a_busy_and_a_quiet_fragment_advance_together(bus: Bus, mode: str) -> None:
    """A watermark follows the newest message of a batch: with equal shares the whole quiet fragment is in the first one,
    and what the busy one has is then too old."""
    path = bus.queue(enable_partitioning=True)
    busy, quiet = keys_of_two_fragments(bus, path)
    with BlockingNamespace.connect(bus.namespace.connection_string) as client:
        sender = client.sender(path)
        for number in range(12):
            sender.send_batches([encode_message(f"b{number}-{n}", partition_key=busy) for n in range(10)])
            sender.send_batches([encode_message(f"q{number}", partition_key=quiet)])
    found = batches(bus.stream(path, mode=mode, maxMessagesPerTrigger="30"))
    assert sum(len(batch) for batch in found) == 132
    assert len(found) >= 5
    assert all(len(batch) <= 30 for batch in found)
    for earlier, later in pairwise(found):
        assert max(row["enqueuedTime"] for row in earlier) <= min(row["enqueuedTime"] for row in later)


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_the_oldest_message_that_no_batch_has_is_reported_with_its_time(bus: Bus, mode: str) -> None:
    path = bus.queue()
    for number in range(3):
        bus.send(path, [f"{number}-{n}" for n in range(4)])
    batch = bus.batch(path)
    times = sorted(row["enqueuedTime"] for row in rows(batch, batch.partitions()))
    reader = bus.stream(path, mode=mode, maxMessagesPerTrigger="4")
    start = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    if mode == "consume":
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert reported["oldest"] == int(times[4].timestamp() * 1000)
    for _ in range(3):
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert "oldest" not in reported
