"""The option `filter`: what does not match is not read, and nothing else is missing."""

import pytest

from tests.pipeline.source.bus import Bus, bodies, names, rows
from tests.pipeline.source.micro_batches import Query
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.pipeline.connection_options import OptionError

COUNT = 40
IS_NEW = "sys.Label = 'it''s new' AND n >= 10"


@pytest.fixture
def path(bus: Bus) -> str:
    path = bus.queue(enable_partitioning=True)
    payloads = [
        encode_message(
            name,
            message_id=name,
            partition_key=name,
            subject=("it's new", None)[number % 2],
            application_properties={"n": number},
        )
        for number, name in enumerate(names(COUNT))
    ]
    with BlockingNamespace.connect(bus.namespace.connection_string) as client:
        assert not any(client.sender(path).send_batches(payloads))
    return path


@pytest.mark.parametrize("count", ["1", "3", "1000"])
def test_a_batch_and_a_stream_have_what_matches_whatever_the_page(bus: Bus, path: str, count: str) -> None:
    expected = sorted(f"m{number}" for number in range(10, COUNT, 2))
    reader = bus.batch(path, filter=IS_NEW, prefetchCount=count)
    assert sorted(bodies(rows(reader, reader.partitions()))) == expected
    query = Query(lambda: bus.stream(path, filter=IS_NEW, prefetchCount=count, maxMessagesPerTrigger="7"))
    query.run()
    assert sorted(query.kept) == expected


def test_a_filter_is_checked_when_the_query_is_defined(bus: Bus, path: str) -> None:
    with pytest.raises(OptionError, match="filter"):
        bus.batch(path, filter="sys.Label =")
    with pytest.raises(OptionError, match="mode=browse"):
        bus.stream(path, filter=IS_NEW, mode="consume")
