"""The stream reader for Spark 4.0 and 4.1, asked as those versions ask it."""

import json

import pytest

from tests.pipeline.source.bus import Bus, bodies, names
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.live_entity import SourceFailed
from twinbus.pipeline.source.offsets import NEW_QUERY, JsonOffset
from twinbus.pipeline.source.option_table import STREAM
from twinbus.pipeline.source.rows.columns import NAMES
from twinbus.pipeline.source.unbounded_stream_reader import UnboundedStreamReader

COUNT = 40


def reader(bus: Bus, path: str, **given: str) -> UnboundedStreamReader:
    return UnboundedStreamReader(bus.options(path, STREAM, **given), NAMES)


def batch(stream: UnboundedStreamReader, start: JsonOffset, end: JsonOffset) -> list[str]:
    """Offsets have been on the disk in between."""
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    return sorted(bodies([row for part in stream.partitions(start, end) for row in rows_of(stream, part)]))


def rows_of(stream: UnboundedStreamReader, part: object) -> list[dict[str, object]]:
    return [row for each in stream.read(part) for row in each.to_pylist()]  # type: ignore[arg-type]


def test_each_batch_starts_where_the_one_before_it_ended_also_after_a_restart(bus: Bus) -> None:
    path = bus.queue(enable_partitioning=True)
    bus.spread(path, names(COUNT))
    first = reader(bus, path)
    end = first.latestOffset()
    assert batch(first, first.initialOffset(), end) == sorted(names(COUNT))
    assert first.latestOffset() == end, "an offset that differs is new data to Spark"

    again = reader(bus, path)
    assert again.latestOffset() == end
    bus.spread(path, names(COUNT, prefix="n"))
    assert batch(again, end, again.latestOffset()) == sorted(names(COUNT, prefix="n"))
    assert batch(again, dict(NEW_QUERY), end) == sorted(names(COUNT)), "a batch that is run again has the same messages"


def test_a_queue_that_was_made_again_is_read_from_its_first_message(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(COUNT))
    end = reader(bus, path).latestOffset()
    bus.namespace.administration.delete_queue(path)
    bus.namespace.create_queue(path)
    bus.send(path, names(COUNT, prefix="n"))
    again = reader(bus, path)
    assert batch(again, end, again.latestOffset()) == sorted(names(COUNT, prefix="n"))


def test_a_query_starts_at_the_numbers_that_it_was_given(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    stream = reader(bus, path, startingOffsets='{"0": 4}')
    assert batch(stream, stream.initialOffset(), stream.latestOffset()) == ["m3", "m4"]


def test_messages_that_others_took_are_an_error_where_that_is_asked_for(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(5))
    stream = reader(bus, path, failOnDataLoss="true")
    end = stream.latestOffset()
    bus.send(path, names(2, prefix="n"))
    assert len(bus.take(path, 6)) == 6
    with pytest.raises(SourceFailed, match="removed or expired"):
        stream.partitions(end, stream.latestOffset())


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "consume"},
        {"startingOffsets": "latest"},
        {"maxMessagesPerTrigger": "5"},
        {"maxBytesPerTrigger": "5"},
    ],
)
def test_what_needs_the_start_of_a_batch_is_refused(bus: Bus, given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=r"needs Spark 4\.2 or later"):
        reader(bus, bus.queue(), **given)
