"""Money reads the same everywhere."""

from decimal import Decimal
from fractions import Fraction

import pytest

from twinbus.cost.amounts import change_text, count_text, money_text, money_value


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "0.00"),
        ("10", "10.00"),
        ("0.5", "0.50"),
        ("0.0000008", "0.0000008"),
        ("1234567.891", "1,234,567.891"),
        ("0.00000000004", "0.00"),
        ("-3.1", "-3.10"),
    ],
)
def test_money_has_two_decimals_and_as_many_more_as_it_needs(amount: str, text: str) -> None:
    assert money_text(Decimal(amount)) == text
    assert money_value(Decimal(amount)) == text.replace(",", "")


def test_a_difference_has_its_sign() -> None:
    assert [change_text(Decimal(each)) for each in ("1", "0", "-1")] == ["+1.00", "0.00", "-1.00"]


def test_counts_are_whole_where_they_are() -> None:
    assert count_text(Fraction(28_800)) == "28,800"
    assert count_text(Fraction(3600, 7)) == "514.286"
