import pytest

from twinbus.model.message_limits import BATCH_SIZE_MAX
from twinbus.pipeline.connection_options import OptionError
from twinbus.pipeline.sink.options import SINK_OPTIONS, SinkOptions

SECRET = "c2VjcmV0"
CONNECTION = {"connectionString": f"Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey={SECRET}"}


def parse(**options: str) -> SinkOptions:
    return SinkOptions.from_options({**CONNECTION, **options})


def test_without_options_the_target_is_in_the_rows() -> None:
    options = parse()
    assert options.target is None
    assert options.batch_bytes == BATCH_SIZE_MAX
    assert (options.has_text_properties, options.is_idempotent) == (False, False)
    assert (options.oversize_queue, options.rate) == (None, None)


def test_options_are_found_in_any_case() -> None:
    options = parse(
        QUEUE="orders",
        BatchBytes="65536",
        propertyvalues="TEXT",
        idempotent="True",
        onoversize="deadletter",
        deadLetterQueue="large",
        maxmessagespersecond="2.5",
    )
    assert (options.target, options.batch_bytes, options.rate) == ("orders", 65536, 2.5)
    assert (options.has_text_properties, options.is_idempotent, options.oversize_queue) == (True, True, "large")
    assert parse(topic="news").target == "news"


def test_what_spark_itself_puts_among_the_options_is_left_alone() -> None:
    SinkOptions.from_options({**CONNECTION, "checkpointLocation": "/y", "queryName": "z", "option.x": "1"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "a", "topic": "b"}, "queue and topic"),
        ({"queue": "a//b"}, "queue: 'a//b' is not a name"),
        ({"topic": "+"}, "not a name for a topic"),
        ({"quue": "a"}, "no option 'quue'"),
        ({"path": "orders"}, "do not accept a path here"),
        ({"batchBytes": "1000"}, "batchBytes is '1000'"),
        ({"batchBytes": "lots"}, "batchBytes is 'lots'"),
        ({"batchBytes": str(BATCH_SIZE_MAX + 1)}, "batchBytes"),
        ({"propertyValues": "xml"}, "json or text"),
        ({"idempotent": "yes"}, "false or true"),
        ({"onOversize": "skip"}, "fail or deadLetter"),
        ({"onOversize": "deadLetter"}, "needs deadLetterQueue"),
        ({"deadLetterQueue": "a"}, "onOversize = deadLetter"),
        ({"maxMessagesPerSecond": "0"}, "above 0"),
        ({"maxMessagesPerSecond": "nan"}, "above 0"),
        ({"maxMessagesPerSecond": "fast"}, "above 0"),
        ({"connectionStringEnv": "X"}, "both say where"),
    ],
)
def test_a_wrong_option_is_named_in_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as caught:
        parse(**options)
    assert "\n" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_key_is_in_no_text_made_of_the_options() -> None:
    assert SECRET not in repr(parse(queue="q"))


def test_every_option_says_what_it_means() -> None:
    assert all(option.meaning.endswith(".") for option in SINK_OPTIONS)
