from hypothesis import given
from hypothesis import strategies as st

from twinbus.amqp.serial_number import HALF, MASK, add, distance, span

NUMBERS = st.integers(0, MASK)


@given(NUMBERS, st.integers(-HALF, HALF - 1))
def test_the_distance_to_what_was_added_is_what_was_added(number: int, count: int) -> None:
    assert distance(number, add(number, count)) == count


def test_numbers_wrap_around() -> None:
    assert add(MASK, 1) == 0
    assert distance(MASK, 2) == 3
    assert distance(2, MASK) == -3


def test_a_range_holds_both_its_ends_also_where_it_wraps() -> None:
    assert span(5, 5) == 1
    assert span(MASK - 1, 1) == 4


def test_a_range_whose_end_is_before_its_start_is_empty() -> None:
    assert span(5, 3) == 0
    assert span(5, 4) == 0
