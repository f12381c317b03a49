"""Values and columns survive a line; garbage is refused, and nothing else is raised."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.codec.types import Described, Int, Long, Symbol, Timestamp
from twinbus.broker.commands import Claim, Peek, PeekMerged, PreviewRepair, Repair
from twinbus.broker.consumer import TakenMessage
from twinbus.broker.outcomes import Abandon, DeadLetter
from twinbus.broker.replies import Holdings, QueueCounts
from twinbus.clock import NEVER
from twinbus.cluster.lines import values
from twinbus.cluster.lines.columns import (
    ColumnReader,
    ColumnWriter,
    read_messages,
    read_taken,
    write_messages,
    write_taken,
)
from twinbus.cluster.lines.frames import LineBroken
from twinbus.model.descriptions import SqlFilter
from twinbus.model.message import Message
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.reads import BacklogShares, Share

FEW = QueueCounts(1, 2, 3, 4, is_limited=True, is_unknown=False)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=20)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | TEXTS
    | st.binary(max_size=20)
    | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(TEXTS, inner, max_size=4)
        | st.frozensets(st.integers(), max_size=4)
    ),
    max_leaves=20,
)
MESSAGES = st.builds(
    Message,
    st.binary(max_size=50),
    TEXTS,
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.none() | st.integers(0, 2**40),
    st.none() | st.integers(0, 2**40),
    st.booleans(),
)
ROWS = st.builds(
    StoredMessage,
    NUMBERS,
    st.binary(max_size=50),
    NUMBERS,
    st.just(NEVER) | NUMBERS,
    st.sampled_from(MessageState),
    st.just(0) | NUMBERS,
    st.integers(0, 2**31 - 1),
    st.none() | TEXTS,
    st.just(0) | NUMBERS,
)


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value: object) -> None:
    copy = values.decode(values.encode(value))
    assert copy == value
    assert type(copy) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        Peek(3, 10, "session"),
        PeekMerged({0: 1, 3: 2}, 5),
        Claim(5, "owner", None, 7),
        PreviewRepair(Repair(1, 2, numbers=[1, 2], filter=SqlFilter("a = 1", (("p", Int(3)),))), 5),
        Abandon({"a": Int(1), "b": Long(2), "c": Symbol("x"), "d": UUID(int=5), "e": Timestamp(7)}),
        DeadLetter(Symbol("why"), None, {"list": [Int(1), "x"], "described": Described(Symbol("d"), 5)}),
        Holdings(FEW, FEW, FEW, FEW, 99),
        BacklogShares({None: Share(1, 2), "q": Share(3, 4)}, None),
        TakenMessage(StoredMessage(1, b"c", 2, 3, MessageState.DEFERRED), b"t" * 16, 5),
    ],
)
def test_commands_and_replies_come_back_as_they_were(value: object) -> None:
    copy = values.decode(values.encode(value))
    assert copy == value
    assert type(copy) is type(value)
    if isinstance(value, Abandon):
        assert isinstance(copy, Abandon)
        assert [type(each) for each in copy.properties.values()] == [type(each) for each in value.properties.values()]


@given(st.binary(max_size=60))
def test_garbage_is_no_value(data: bytes) -> None:
    try:
        values.decode(data)
    except LineBroken:
        return


@given(st.binary(max_size=60))
def test_garbage_is_no_column(data: bytes) -> None:
    for read in (read_messages, read_taken):
        try:
            reader = ColumnReader(data)
            read(reader)
            reader.end()
        except LineBroken:
            pass


@given(st.data(), st.lists(MESSAGES, max_size=8))
def test_messages_come_back_as_they_were(data: st.DataObject, messages: list[Message]) -> None:
    origins = data.draw(st.none() | st.lists(NUMBERS, min_size=len(messages), max_size=len(messages)))
    writer = ColumnWriter()
    write_messages(writer, messages, origins)
    reader = ColumnReader(writer.done())
    assert read_messages(reader) == (messages, origins)
    reader.end()


@given(st.lists(st.tuples(ROWS, NUMBERS), min_size=1, max_size=8), st.booleans())
def test_deliveries_come_back_as_they_were(rows: list[tuple[StoredMessage, int]], is_locked: bool) -> None:
    taken = [TakenMessage(row, bytes([place]) * 16 if is_locked else b"", end) for place, (row, end) in enumerate(rows)]
    writer = ColumnWriter()
    write_taken(writer, taken)
    reader = ColumnReader(writer.done())
    assert read_taken(reader) == taken
    reader.end()


def test_a_frame_that_is_cut_short_is_refused() -> None:
    writer = ColumnWriter()
    write_messages(writer, [Message(b"content", "id", "s", None, None, 1, None, False)])
    data = writer.done()
    for size in range(len(data)):
        with pytest.raises(LineBroken):
            read_messages(ColumnReader(data[:size]))


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["", ""],
        ["a", "", "bcd"],
        ["a", None, "b"],
        [None],
        ["ü", "a"],
        ["\ud800", "a"],
        ["a" * 70_000, "b"],
    ],
)
def test_texts_cross_a_line_as_they_are(texts: list[str | None]) -> None:
    writer = ColumnWriter()
    writer.texts(texts)
    reader = ColumnReader(writer.done())
    assert reader.texts(len(texts)) == texts
    reader.end()


def test_texts_that_end_before_their_sizes_break_the_line() -> None:
    writer = ColumnWriter()
    writer.texts(["abc", "def"])
    for size in range(len(writer.done())):
        with pytest.raises(LineBroken):
            ColumnReader(writer.done()[:size]).texts(2)
