"""Options of the source: what is understood, and one clear line for what is not."""

import pickle
from typing import Any

import pytest

from twinbus.model.wire_names import MessageState
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.source.option_table import BATCH, SOURCE_OPTIONS, STREAM
from twinbus.pipeline.source.options import AdoptDeferred, Edge, Mode, SourceOptions

KEY = "c2VjcmV0LXNlY3JldA=="
CONNECTION = {
    "connectionString": f"Endpoint=sb://localhost;SharedAccessKeyName=root;SharedAccessKey={KEY};"
    "UseDevelopmentEmulator=true"
}
THIRD = 3 << 48


def read(used_by: str = "both", **given: str) -> SourceOptions:
    return SourceOptions.from_options({**CONNECTION, "queue": "orders", **given}, used_by)


def test_a_queue_alone_is_browsed_from_its_first_message() -> None:
    options = read()
    assert (options.paths, options.mode, options.start) == (("orders",), Mode.BROWSE, Edge.EARLIEST)
    assert (options.count_max, options.has_bodies, options.states) == (None, True, (MessageState.ACTIVE,))


def test_names_are_not_case_sensitive() -> None:
    assert read(MAXMESSAGESPERTRIGGER="7").count_max == 7


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"queue": "orders"}, ("orders",)),
        ({"queue": "a/b", "subQueue": "deadletter"}, ("a/b/$DeadLetterQueue",)),
        ({"topic": "news", "subscription": "all"}, ("news/Subscriptions/all",)),
        (
            {"topic": "news", "subscription": "all", "subQueue": "deadLetter"},
            ("news/Subscriptions/all/$DeadLetterQueue",),
        ),
        ({"queues": "a, b,a"}, ("a", "b")),
    ],
)
def test_an_entity_is_a_queue_or_queues_or_a_subscription(given: dict[str, str], paths: tuple[str, ...]) -> None:
    assert SourceOptions.from_options({**CONNECTION, **given}).paths == paths


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"startingOffsets": "Latest"}, "start", Edge.LATEST),
        ({"startingOffsets": f'{{"0": 17, "3": {THIRD + 5}}}'}, "start", {0: 17, 3: THIRD + 5}),
        ({"startingTimestamp": "1970-01-01T00:00:02+00:00"}, "start", 2_000),
        ({"startingTimestamp": "2500"}, "start", 2_500),
        ({"startingTimestamp": "2038-09-25T16:17:18.607+02:00"}, "start", 2_169_037_038_607),
        ({"startingTimestamp": "1970-01-01T00:00:02.000001Z"}, "start", 2_001),
        ({"endingOffsets": '{"0": 42}'}, "ending", {0: 42}),
        ({"endingOffsets": "latest"}, "ending", None),
        ({"maxBytesPerTrigger": "1000"}, "bytes_max", 1_000),
        ({"fragments": "0, 3,15"}, "fragments", {0, 3, 15}),
        ({"fragments": "all"}, "fragments", None),
        ({"minPollInterval": "500ms"}, "poll_interval_s", 0.5),
        ({"minPollInterval": "2"}, "poll_interval_s", 2.0),
        ({"visibilityLag": "1.5 m"}, "visibility_lag_s", 90.0),
        ({"includeBody": "FALSE"}, "has_bodies", False),
        ({"includeStates": "active,scheduled"}, "states", (MessageState.ACTIVE, MessageState.SCHEDULED)),
        ({"failOnDataLoss": "true"}, "fails_on_data_loss", True),
        ({"mode": "consume", "adoptDeferred": "fail"}, "adopt_deferred", AdoptDeferred.FAIL),
        ({"mode": "consume"}, "count_max", 100_000),
        ({"mode": "consume", "maxMessagesPerTrigger": "5"}, "count_max", 5),
        ({"prefetchCount": "10"}, "page_count", 10),
        ({"minPartitions": "3"}, "partitions_min", 3),
        ({"maxPartitions": "3"}, "partitions_max", 3),
        ({"minPartitions": "40"}, "partitions_max", 40),
    ],
)
def test_values_are_read(given: dict[str, str], field: str, value: Any) -> None:
    assert getattr(read(**given), field) == value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxMessagePerTrigger": "5"}, "Do you mean maxMessagesPerTrigger"),
        ({"zzz": "5"}, "has no option 'zzz'"),
        ({"path": "orders"}, "load\\(\\) does not accept a path"),
        ({"provider": "servicebus"}, "CREATE TEMPORARY VIEW … USING servicebus"),
        ({"endingOffsets": "earliest"}, "must be latest or sequence numbers by fragment: "),
        ({"startingOffsets": "[1]"}, "'\\[1\\]'; it must be earliest or latest or sequence numbers by fragment: "),
        ({"mode": "eat"}, "browse or consume"),
        ({"subQueue": "dead"}, "none or deadLetter"),
        ({"topic": "news"}, "queue and topic both say"),
        ({"subscription": "all"}, "go together"),
        ({"queue": "a//"}, "queue: "),
        ({"startingOffsets": "first"}, "earliest or latest"),
        ({"startingOffsets": "{0: 1}"}, "sequence numbers"),
        ({"startingOffsets": '{"3": 5}'}, "a number of fragment 0"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "both say where to start"),
        ({"startingTimestamp": "2026-01-02T03:04:05"}, "with its zone"),
        ({"subQueue": "deadLetter", "visibilityLag": "5s"}, "dead letters keep the times of their entity"),
        ({"startingTimestamp": "noon"}, "milliseconds since 1970"),
        ({"maxMessagesPerTrigger": "0"}, "from 1 to"),
        ({"maxBytesPerTrigger": "10 MB"}, "whole number"),
        ({"minPartitions": "5", "maxPartitions": "4"}, "above maxPartitions"),
        ({"fragments": "16"}, "from 0 to 15"),
        ({"fragments": ","}, "fragments is empty"),
        ({"prefetchCount": "1001"}, "from 1 to 1000"),
        ({"minPollInterval": "soon"}, "500ms, 2s, 5m"),
        ({"includeBody": "no"}, "true or false"),
        ({"includeStates": "locked"}, "active, deferred, scheduled"),
        ({"adoptDeferred": "true"}, "goes with mode=consume"),
        ({"mode": "consume", "startingOffsets": "latest"}, "goes with mode=browse"),
        ({"mode": "consume", "failOnDataLoss": "true"}, "goes with mode=browse"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as refused:
        read(**given)
    assert "\n" not in str(refused.value)
    assert KEY not in str(refused.value)


def test_an_entity_has_to_be_named() -> None:
    with pytest.raises(OptionError, match="No option says which entity"):
        SourceOptions.from_options(CONNECTION)


@pytest.mark.parametrize("given", [{"startingOffsets": '{"0": 1}'}, {"endingOffsets": '{"0": 1}'}])
def test_sequence_numbers_do_not_go_with_several_queues(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="one entity"):
        SourceOptions.from_options({**CONNECTION, "queues": "a,b", **given})


@pytest.mark.parametrize(
    ("used_by", "given", "said"),
    [
        (STREAM, {"endingOffsets": "latest"}, "batch query only"),
        (BATCH, {"maxMessagesPerTrigger": "5"}, "stream query only"),
        (BATCH, {"startingOffsets": "latest"}, "nothing to read"),
        (BATCH, {"mode": "consume"}, "needs readStream"),
    ],
)
def test_an_option_of_the_other_kind_of_query_is_refused(used_by: str, given: dict[str, str], said: str) -> None:
    read(**given)
    with pytest.raises(OptionError, match=said):
        read(used_by, **given)


def test_a_stream_reads_one_entity() -> None:
    with pytest.raises(OptionError, match="batch query only"):
        SourceOptions.from_options({**CONNECTION, "queues": "a,b"}, STREAM)


def test_names_that_catalogs_put_there_are_passed_over() -> None:
    assert read(**{"serialization.format": "1"}) == read()


def test_secrets_are_in_no_text_and_travel_to_the_workers() -> None:
    options = read()
    assert KEY not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_every_option_has_a_reader_and_a_meaning() -> None:
    for option in SOURCE_OPTIONS:
        assert option.meaning or option.name == "subscription"
