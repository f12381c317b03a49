"""Streams with wrong options: Spark gets a reader, and the reason from whatever it asks that reader first."""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructType

from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.data_source import ServiceBusDataSource

CONNECTION = "Endpoint=sb://bus.example/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0"
IDS = StructType().add("messageId", StringType())
WRONG = [
    pytest.param({"queues": "a,b"}, IDS, "queues is for a batch query only", id="option"),
    pytest.param({"queue": "a", "endingOffsets": '{"0": 3}'}, IDS, "endingOffsets is for a batch query", id="ending"),
    pytest.param(
        {"queue": "a"}, StructType().add("id", StringType()), "schema has an unknown column 'id'", id="schema"
    ),
]


def reader_of(given: dict[str, str], schema: StructType) -> Any:
    return ServiceBusDataSource({"connectionString": CONNECTION, **given}).streamReader(schema)


@pytest.mark.parametrize(("given", "schema", "said"), WRONG)
def test_the_first_question_of_a_stream_tells_what_is_wrong(
    given: dict[str, str], schema: StructType, said: str
) -> None:
    reader = reader_of(given, schema)
    for ask in (reader.initialOffset, reader.latestOffset, reader.prepareForTriggerAvailableNow):
        with pytest.raises(OptionError, match=said):
            ask()
    reader.stop()
    assert isinstance(reader, SupportsTriggerAvailableNow)


def test_a_stream_with_right_options_is_not_refused() -> None:
    assert reader_of({"queue": "a"}, IDS).initialOffset() == {"v": 1}
