"""Operations as they are reported become rows, exact ones while there are few."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.meter.operation_rows import operation
from twinbus.meter import book as operations_book
from twinbus.meter.book import OperationsBook
from twinbus.meter.operation import Cause, EntityType
from twinbus.testing.sim_clock import SimClock


def test_an_operation_on_a_message_is_a_row_of_its_own() -> None:
    book = OperationsBook(SimClock())
    rows = [operation(message_id="a"), operation(message_id="b")]
    for row in rows:
        book.record(row)
    assert book.take_all() == rows


def test_operations_without_a_message_are_added_up() -> None:
    clock = SimClock()
    book = OperationsBook(clock)
    for _ in range(3):
        book.record(operation(message_id=None, cause=Cause.EMPTY_RECEIVE, messages=0, size=0))
    (row,) = book.take_all()
    assert (row.operations, row.messages, row.units) == (3, 0, 3)
    assert row.at == clock.now() // 1000 * 1000


def test_above_the_limit_of_a_second_operations_are_added_up_until_a_second_has_kept_it() -> None:
    clock = SimClock()
    book = OperationsBook(clock, exact_per_second_max=2)
    found = []
    for count in (2, 5, 5, 1, 2):
        for _ in range(count):
            book.record(operation())
        clock.advance(1000)
        found.append([row.operations for row in book.take()])
    assert found == [[1, 1], [1, 1, 3], [5], [1], [1, 1]]


def test_the_present_second_is_not_taken_before_it_is_over() -> None:
    clock = SimClock()
    book = OperationsBook(clock)
    book.record(operation())
    assert not book.take()
    clock.advance(1000)
    assert len(book.take()) == 1


def test_while_the_writer_is_behind_all_is_added_up_over_many_seconds() -> None:
    clock = SimClock()
    book = OperationsBook(clock)
    assert not book.take(is_behind=True)
    for _ in range(100):
        book.record(operation())
        clock.advance(1000)
    assert not book.take(is_behind=True)
    (row,) = book.take()
    assert (row.operations, row.messages, row.size) == (100, 100, 10_000)


def test_where_there_are_too_many_kinds_of_rows_entity_and_who_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations_book, "KEYS_MAX", 3)
    book = OperationsBook(SimClock(), exact_per_second_max=0)
    for number in range(10):
        book.record(operation(entity=f"queue-{number}"))
    rows = book.take_all()
    assert len(rows) == 4
    assert sum(row.units for row in rows) == 10
    assert (rows[-1].entity, rows[-1].entity_type, rows[-1].operations) == ("", EntityType.NAMESPACE, 7)


def test_totals_by_cause_are_those_of_the_rows_that_were_taken() -> None:
    book = OperationsBook(SimClock(), exact_per_second_max=1)
    for _ in range(3):
        book.record(operation())
    book.take_all()
    assert book.totals[Cause.SEND] == 3
    assert book.totals[Cause.RECEIVE] == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 300_000), st.booleans(), st.integers(0, 700)), max_size=60
    ),
    st.integers(0, 5),
)
def test_no_operation_is_missing_or_counted_twice_at_any_rate(
    reports: list[tuple[str, int, bool, int]], exact_max: int
) -> None:
    clock = SimClock()
    book = OperationsBook(clock, exact_max)
    taken = []
    for entity, size, is_behind, pause in reports:
        book.record(operation(clock.now(), entity=entity, size=size))
        clock.advance(pause)
        taken += book.take(is_behind=is_behind)
    taken += book.take_all()
    for entity in ("a", "b"):
        sizes = [size for name, size, _, _ in reports if name == entity]
        mine = [row for row in taken if row.entity == entity]
        assert sum(row.operations for row in mine) == sum(row.messages for row in mine) == len(sizes)
        assert sum(row.size for row in mine) == sum(sizes)
