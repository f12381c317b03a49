import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from twinbus.pipeline.sink.columns import COLUMNS, READ_ONLY, SchemaError, check_destination, find_columns
from twinbus.pipeline.source.rows.columns import NAMES as SOURCE_COLUMNS

TEXT_MAP = MapType(StringType(), StringType())


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_columns_are_found_by_name_in_any_order_and_case() -> None:
    found = find_columns(schema(SubJect=StringType(), properties=TEXT_MAP, BODY=BinaryType()))
    assert found == {"subject": 0, "properties": 1, "body": 2}


def test_what_a_source_says_of_a_message_is_left_out() -> None:
    found = find_columns(schema(body=StringType(), **{name: DoubleType() for name in READ_ONLY}))
    assert found == {"body": 0}


def test_a_column_of_nothing_but_null_is_left_out() -> None:
    assert find_columns(schema(body=StringType(), subject=NullType(), entity=NullType())) == {"body": 0}


def test_every_column_of_the_source_is_sent_or_left_out() -> None:
    known = {column.name for column in COLUMNS} | set(READ_ONLY)
    assert known.issuperset(SOURCE_COLUMNS)


@pytest.mark.parametrize("kind", [LongType(), IntegerType(), DayTimeIntervalType()])
def test_a_time_to_live_is_an_interval_or_milliseconds(kind: DataType) -> None:
    assert "timeToLive" in find_columns(schema(body=StringType(), timeToLive=kind))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": StringType(), "body": StringType()}, "no column 'id'"),
        ({"subject": StringType()}, "no column 'body'"),
        ({"body": LongType()}, "'body' is bigint; it must be string or binary"),
        ({"body": StringType(), "messageId": LongType()}, "'messageId' is bigint; it must be string"),
        ({"body": StringType(), "properties": StringType()}, "map<string,string>"),
        ({"body": StringType(), "properties": MapType(StringType(), LongType())}, "is map<string,bigint>"),
        ({"body": StringType(), "scheduledEnqueueTime": TimestampNTZType()}, "must be timestamp"),
        ({"body": StringType(), "timeToLive": StringType()}, "interval day to second"),
        ({"body": StringType(), "subject": StringType(), "Subject": StringType()}, "column 'subject' exists twice"),
    ],
)
def test_a_wrong_column_is_named_in_one_line(columns: dict[str, DataType], said: str) -> None:
    with pytest.raises(SchemaError, match=said) as caught:
        find_columns(schema(**columns))
    assert "\n" not in str(caught.value)


def test_rows_without_a_destination_need_a_target() -> None:
    check_destination({"body": 0}, "orders")
    check_destination({"body": 0, "entity": 1}, None)
    with pytest.raises(SchemaError, match="option queue or topic, or add a column 'entity'"):
        check_destination({"body": 0}, None)
