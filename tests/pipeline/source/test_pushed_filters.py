"""The option `pushFilters`: whatever Spark pushes down, nothing is missing that its own filters would have kept."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tests.pipeline.source.bus import NOW, Bus, rows
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.pipeline.source.batch_reader import FilteringBatchReader
from twinbus.pipeline.source.option_table import BATCH
from twinbus.pipeline.source.rows.columns import NAMES
from twinbus.testing.local_namespace import LocalNamespace

COUNT = 60
TEXTS = ("a", "A", "ab", "b%", "_", "!", "it's", "ä", "Ä", "", "10")
TEXT_COLUMNS = ("messageId", "correlationId", "subject", "to", "sessionId", "contentType", "replyTo")
IDS: tuple[Any, ...] = (*TEXTS[:-2], 10, UUID(int=7), b"\x0a\x0b")

HOLDS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda found, value: found is not None and found == value,
    EqualNullSafe: lambda found, value: found == value,
    GreaterThan: lambda found, value: found is not None and found > value,
    GreaterThanOrEqual: lambda found, value: found is not None and found >= value,
    LessThan: lambda found, value: found is not None and found < value,
    LessThanOrEqual: lambda found, value: found is not None and found <= value,
    In: lambda found, value: found is not None and found in value,
    IsNull: lambda found, _: found is None,
    IsNotNull: lambda found, _: found is not None,
    StringStartsWith: lambda found, value: found is not None and found.startswith(value),
    StringEndsWith: lambda found, value: found is not None and found.endswith(value),
    StringContains: lambda found, value: found is not None and value in found,
}
"""What each means to Spark."""
ORDERED = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


class Filled:
    """A partitioned queue of messages with awkward texts, and all its rows."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.path = bus.queue(enable_partitioning=True)
        payloads = [
            encode_message(
                b"",
                message_id=IDS[n % len(IDS)],
                correlation_id=IDS[n % 5] if n % 2 else None,
                subject=TEXTS[n % 7] if n % 3 else None,
                to=TEXTS[n % len(TEXTS)],
                session_id=f"s{n % 4}",
                content_type=TEXTS[n % 2] if n % 5 else None,
            )
            for n in range(COUNT)
        ]
        with BlockingNamespace.connect(bus.namespace.connection_string) as client:
            for payload in payloads:
                assert not any(client.sender(self.path).send_batches([payload]))
        self.rows = self.read([])
        assert len(self.rows) == COUNT

    def read(self, filters: list[Filter], **given: str) -> list[dict[str, Any]]:
        options = self.bus.options(self.path, BATCH, pushFilters="true", **given)
        reader = FilteringBatchReader(options, NAMES, NOW)
        assert list(reader.pushFilters(filters)) == filters  # Spark applies them again
        return rows(reader, reader.partitions())


@pytest.fixture(scope="module")
def filled(namespace: LocalNamespace) -> Filled:
    return Filled(Bus(namespace))


def holds(pushed: Filter, row: dict[str, Any]) -> bool:
    if isinstance(pushed, Not):
        return not holds(pushed.child, row)
    kind: Any = pushed
    return HOLDS[type(pushed)](row[kind.attribute[0]], getattr(pushed, "value", None))


def chosen(found: list[dict[str, Any]], filters: list[Filter]) -> list[int]:
    return sorted(row["sequenceNumber"] for row in found if all(holds(each, row) for each in filters))


def text_filters() -> st.SearchStrategy[Filter]:
    column = st.sampled_from(TEXT_COLUMNS).map(lambda name: (name,))
    text = st.sampled_from((*TEXTS, "s1", "0a0b", str(UUID(int=7)))) | st.text(max_size=3)
    kinds = st.sampled_from([EqualTo, EqualNullSafe, StringStartsWith, StringEndsWith, StringContains])
    return st.one_of(
        st.builds(lambda kind, name, value: kind(name, value), kinds, column, text),
        st.builds(In, column, st.lists(text | st.none(), max_size=4).map(tuple)),
        st.builds(lambda kind, name: kind(name), st.sampled_from([IsNull, IsNotNull]), column),
        st.builds(lambda name, value: Not(EqualTo(name, value)), column, text),
    )


def number_filters(found: list[dict[str, Any]]) -> st.SearchStrategy[Filter]:
    numbers = st.sampled_from([row["sequenceNumber"] for row in found]) | st.integers(-5, 2**62)
    moments = st.sampled_from([row["enqueuedTime"] for row in found]).flatmap(
        lambda at: st.sampled_from([timedelta(0), timedelta(microseconds=1), timedelta(milliseconds=-1)]).map(
            at.__add__
        )
    )
    fragments = st.integers(-1, 17)
    kinds = st.sampled_from(ORDERED)
    return st.one_of(
        *[
            st.builds(lambda kind, value, name=name: kind((name,), value), kinds, values)
            for name, values in (("sequenceNumber", numbers), ("enqueuedTime", moments), ("fragment", fragments))
        ],
        st.builds(lambda values: In(("sequenceNumber",), tuple(values)), st.lists(numbers | st.none(), max_size=5)),
        st.builds(lambda values: In(("fragment",), tuple(values)), st.lists(fragments, max_size=5)),
    )


@given(st.data())
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_read_with_pushed_filters_has_what_one_without_them_has(filled: Filled, data: st.DataObject) -> None:
    filters = data.draw(st.lists(text_filters() | number_filters(filled.rows), max_size=4))
    assert chosen(filled.read(filters), filters) == chosen(filled.rows, filters)


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(("fragment",), 3)],
        [StringStartsWith(("to",), "b%")],
        [EqualTo(("correlationId",), "it's"), IsNotNull(("subject",))],
        [In(("sessionId",), ("s1", None))],
    ],
)
def test_what_is_filtered_out_is_not_read(filled: Filled, filters: list[Filter]) -> None:
    found = filled.read(filters)
    assert sorted(row["sequenceNumber"] for row in found) == chosen(filled.rows, filters)
    assert len(found) < COUNT


def test_numbers_and_times_bound_what_is_planned(filled: Filled) -> None:
    number = filled.rows[COUNT // 2]["sequenceNumber"]
    options = filled.bus.options(filled.path, BATCH, pushFilters="true")
    for pushed, count in (
        (EqualTo(("sequenceNumber",), number), 1),
        (GreaterThan(("enqueuedTime",), datetime.now(UTC) + timedelta(days=1)), 0),
        (LessThan(("enqueuedTime",), datetime(2020, 1, 1, tzinfo=UTC)), 0),
    ):
        reader = FilteringBatchReader(options, NAMES, NOW)
        reader.pushFilters([pushed])
        planned = [end - first for part in reader.partitions() for piece in part.slices for first, end in piece.ranges]  # type: ignore[attr-defined]
        assert sum(planned) == count


def test_a_filter_that_is_too_long_for_the_namespace_is_left_to_spark(filled: Filled) -> None:
    many = In(("to",), tuple("x" * 30 + str(n) for n in range(60)))
    assert len(filled.read([many])) == COUNT
    written = "sys.To = 'ab' OR sys.To = '" + "y" * 900 + "'"
    assert {row["to"] for row in filled.read([StringContains(("to",), "z" * 200)], filter=written)} == {"ab"}
