"""Whatever is chosen of an entity (fragments, ranges, limits, tasks), each message of it is read once, and no other.

What there is comes from the namespace, message by message; what is wanted is computed from that by the plain meaning of
the options, without fragments' heads, ranges or plans.
"""

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipeline.source.bus import Bus, rows
from tests.pipeline.source.micro_batches import Query
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.model.wire_names import MessageState
from twinbus.pipeline.source import planning
from twinbus.pipeline.source.access.connections import Detect
from twinbus.pipeline.source.live_entity import own, plain
from twinbus.pipeline.source.ranges import fragment_of
from twinbus.testing.local_namespace import LocalNamespace

COUNT = 96
FRAGMENT_COUNT = 16
EXAMPLES = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], print_blob=True
)

chosen_fragments = st.none() | st.sets(st.integers(0, FRAGMENT_COUNT - 1), min_size=1)
offsets = st.none() | st.dictionaries(st.integers(0, FRAGMENT_COUNT - 1), st.integers(0, 16), min_size=1)
tasks = st.tuples(st.integers(1, 20), st.integers(1, 20)).map(sorted)
page_counts = st.sampled_from([1, 2, 3, 7, 1000])


class Filled:
    """A partitioned queue with messages in some fragments, gaps between them, and its numbers with their bodies."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.path = bus.queue(enable_partitioning=True)
        # Keys of few kinds leave fragments empty, and fill others unevenly.
        bodies = [f"m{n}" for n in range(COUNT)]
        payloads = [
            encode_message(body, message_id=body, partition_key=f"k{n % 11 if n % 3 else 0}")
            for n, body in enumerate(bodies)
        ]
        with BlockingNamespace.connect(bus.namespace.connection_string) as client:
            assert not any(client.sender(self.path).send_batches(payloads))
        bus.take(self.path, COUNT // 8)
        with BlockingNamespace.connect(bus.namespace.connection_string) as client:
            # Somebody has deferred every third of them: claims lie around those, in many ranges. No receiver has a part in
            # it: one that gives messages back gets them again, and holds them until it has closed.
            extras = client.extras(self.path)
            held = [n for first, last in client.run(extras.claim(COUNT)) for n in range(first, last + 1)]
            client.run(extras.undefer([(number, number) for place, number in enumerate(held) if place % 3]))
            found = client.run(extras.peek_merged(COUNT))
        active = [message for message in found if message.state is MessageState.ACTIVE]
        self.bodies = {message.sequence_number or 0: bytes(message.body).decode() for message in active}
        self.numbers = sorted(self.bodies)
        assert len(self.numbers) == len(held) - len(held[::3]) == 56


@pytest.fixture(scope="module")
def filled(namespace: LocalNamespace) -> Filled:
    return Filled(Bus(namespace))


@pytest.fixture(autouse=True)
def _small_tasks() -> Iterator[None]:
    """So that a few messages make many tasks."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "ROWS_PER_TASK", 9)
        patched.setattr(planning, "ROWS_PER_TASK_MIN", 9)
        yield


def numbered(given: dict[int, int]) -> dict[int, int]:
    return {fragment: (fragment << 48) + number for fragment, number in given.items()}


def as_options(fragments: set[int] | None, **found: dict[int, int] | None) -> dict[str, str]:
    options = {name: json.dumps(numbered(given)) for name, given in found.items() if given is not None}
    if fragments is not None:
        options["fragments"] = ",".join(map(str, fragments))
    return options


def wanted(
    numbers: list[int], fragments: set[int] | None, first: dict[int, int] | None, end: dict[int, int] | None = None
) -> list[int]:
    starts, ends = numbered(first or {}), numbered(end or {})
    return [
        number
        for number in numbers
        if (fragments is None or fragment_of(number) in fragments)
        and number >= starts.get(fragment_of(number), 0)
        and number < ends.get(fragment_of(number), number + 1)
    ]


@given(chosen_fragments, offsets, offsets, tasks, page_counts)
@EXAMPLES
def test_a_batch_query_reads_each_chosen_message_once(
    filled: Filled,
    fragments: set[int] | None,
    first: dict[int, int] | None,
    end: dict[int, int] | None,
    partitions: list[int],
    page_count: int,
) -> None:
    least, most = partitions
    reader = filled.bus.batch(
        filled.path,
        minPartitions=str(least),
        maxPartitions=str(most),
        prefetchCount=str(page_count),
        **as_options(fragments, startingOffsets=first, endingOffsets=end),  # type: ignore[arg-type]
    )
    planned = reader.partitions()
    assert len(planned) <= most
    found = sorted(row["sequenceNumber"] for row in rows(reader, planned))
    assert found == wanted(filled.numbers, fragments, first, end)


@pytest.mark.parametrize("detect", [pytest.param(own, id="own"), pytest.param(plain, id="plain")])
@given(
    fragments=chosen_fragments,
    count_max=st.none() | st.integers(3, 60),
    bytes_max=st.none() | st.integers(300, 20_000),
    partitions=tasks,
    page_count=page_counts,
)
@settings(EXAMPLES, max_examples=10)
def test_a_stream_reads_each_chosen_message_in_one_batch(
    filled: Filled,
    detect: Detect,
    fragments: set[int] | None,
    count_max: int | None,
    bytes_max: int | None,
    partitions: list[int],
    page_count: int,
) -> None:
    limits = {
        name: str(limit)
        for name, limit in (("maxMessagesPerTrigger", count_max), ("maxBytesPerTrigger", bytes_max))
        if limit is not None
    }
    least, most = partitions
    reader = filled.bus.stream(
        filled.path,
        detect,
        minPartitions=str(least),
        maxPartitions=str(most),
        prefetchCount=str(page_count),
        **limits,
        **as_options(fragments),
    )
    query = Query(lambda: reader)
    query.run()
    expected = [filled.bodies[number] for number in wanted(filled.numbers, fragments, None)]
    assert sorted(query.kept) == sorted(expected)
    assert count_max is None or max(query.sizes, default=0) <= count_max


@pytest.mark.parametrize("limit", [7, 1000])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("fragments", [{0, 1}, {3, 5, 15}, None])
def test_a_consuming_stream_takes_each_chosen_message_once_and_leaves_the_others(
    bus: Bus, fragments: set[int] | None, most: int, limit: int
) -> None:
    here = Filled(bus)
    given = as_options(fragments)
    made = {"mode": "consume", "maxPartitions": str(most), "maxMessagesPerTrigger": str(limit), **given}
    query = Query(lambda: bus.stream(here.path, **made))  # type: ignore[arg-type]
    query.run()
    chosen = wanted(here.numbers, fragments, None)
    assert sorted(query.kept) == sorted(here.bodies[number] for number in chosen)
    assert bus.counts(here.path)[0] == len(here.numbers) - len(chosen)
