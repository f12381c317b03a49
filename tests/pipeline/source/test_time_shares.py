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


class Dense:
    """Fragments whose numbers have no gaps, by the times of their messages: quick however many there are."""

    def __init__(self, times: dict[int, list[int]]) -> None:
        self.times = times
        self.position = dict.fromkeys(times, 0)
        self.request_count = 0

    async def __call__(self, numbers: Sequence[int]) -> list[tuple[int, int] | None]:
        self.request_count += 1
        places = [(n >> 48, n & 0xFFFFFFFF) for n in numbers]
        return [((f << 48) + p, self.times[f][p]) if p < len(self.times[f]) else None for f, p in places]

    def next_batch(self, limit: int, turn: int) -> int:
        """How many messages it has; none is younger than one that is left, or they are of one millisecond."""
        room = {f: ((f << 48) + self.position[f], (f << 48) + len(times)) for f, times in self.times.items()}
        shares = asyncio.run(time_shares(room, limit, turn, self))
        newest = max((self.times[f][self.position[f] + share - 1] for f, share in shares.items()), default=0)
        for fragment, share in shares.items():
            self.position[fragment] += share
        left = (times[self.position[f]] for f, times in self.times.items() if self.position[f] < len(times))
        assert newest <= min(left, default=newest)
        return sum(shares.values())


def test_a_batch_of_thousands_takes_a_few_requests_and_is_nearly_full() -> None:
    dice = Random(1)
    counts = {fragment: 200 if fragment % 4 else 40_000 for fragment in range(16)}
    backlog = Dense({f: sorted(dice.randrange(10_000_000) for _ in range(count)) for f, count in counts.items()})
    assert 15_000 <= backlog.next_batch(20_000, 0) <= 20_000
    assert backlog.request_count <= 9


@pytest.mark.parametrize("at_once", [1, 50, 1_000])
@pytest.mark.parametrize("count", [300_000, 1_000_000, 2_000_000])
def test_a_large_backlog_is_read_in_large_batches(count: int, at_once: int) -> None:
    """Though the numbers that are asked about in a round are further apart than a batch is large. `at_once` messages have one
    time."""
    dice, limit = Random(count + at_once), 100_000
    weights = [dice.randrange(2, 6) for _ in range(16)]
    owners = [fragment for fragment, weight in enumerate(weights) for _ in range(weight)]
    dice.shuffle(owners)
    times: dict[int, list[int]] = {fragment: [] for fragment in range(16)}
    for run in range(0, count, 50):
        times[owners[run // 50 % len(owners)]] += [number // at_once for number in range(run, run + 50)]
    backlog, left = Dense(times), count
    for turn in range(count // 75_000 + 1):
        backlog.request_count = 0
        read = backlog.next_batch(limit, turn)
        assert min(left, 75_000) <= read <= limit
        assert backlog.request_count <= 9
        left -= read
        if not left:
            return
    raise AssertionError(f"{left} messages are left")


def test_a_batch_has_something_although_the_clock_was_set_back() -> None:
    """Times fall with rising numbers there. A batch without a message would end a run that has more to read."""
    for seed in range(300):
        dice = Random(seed)
        times = {fragment: with_steps_back(dice) for fragment in range(dice.randrange(2, 5))}
        limit = dice.choice([1, 2, 5, 20, 60])
        room = {f: (f << 48, (f << 48) + len(each)) for f, each in times.items()}
        shares = asyncio.run(time_shares(room, limit, 0, Dense(times)))
        assert 0 < sum(shares.values()) <= limit, seed


def with_steps_back(dice: Random) -> list[int]:
    times, now = [], 1_000
    for _ in range(dice.choice([3, 30, 200])):
        now += dice.choice([0, 0, 1, 20])
        if dice.random() < 0.03:
            now -= dice.randrange(500)
        times.append(now)
    return times


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


def test_a_batch_of_claims_that_a_crash_left_says_what_waits_behind_it(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, ["claimed"])
    crashed = bus.stream(path, mode="consume")
    start = crashed.latestOffset(crashed.initialOffset(), crashed.getDefaultReadLimit())
    crashed.latestOffset(start, crashed.getDefaultReadLimit())
    bus.send(path, ["waits", "waits too"])
    reader = bus.stream(path, mode="consume", maxMessagesPerTrigger="1")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end["claim"] == {"0": [[1, 2]]}
    batch = bus.batch(path, includeStates="active")
    oldest = min(row["enqueuedTime"] for row in rows(batch, batch.partitions()))
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert (reported["waiting"], reported.get("oldest")) == ({"0": 2}, int(oldest.timestamp() * 1000))


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
