"""Money and counts as text and JSON, the same in every report, so that a figure can be found again in all of them."""

from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

from twinbus.cost.tiers import EXACT

SMALLEST = Decimal("1E-10")
"""A thousandth of the price of one operation where a million of them cost a tenth."""

CENT = Decimal("0.01")


def money_text(amount: Decimal) -> str:
    """For people: at least two decimals, and as many more as the amount has, up to ten."""
    return f"{_rounded(amount):,f}"


def money_value(amount: Decimal) -> str:
    """For JSON and CSV: the same digits, which a binary number would change."""
    return f"{_rounded(amount):f}"


def _rounded(amount: Decimal) -> Decimal:
    rounded = amount.quantize(SMALLEST, ROUND_HALF_EVEN, EXACT).normalize(EXACT)
    if rounded == rounded.quantize(CENT, context=EXACT):
        return rounded.quantize(CENT, context=EXACT)
    return rounded


def change_text(amount: Decimal) -> str:
    """A difference, with its sign."""
    return ("+" if amount > 0 else "") + money_text(amount)


def count_value(count: Fraction | int) -> int | float:
    """For JSON: whole where it is, else to three decimals."""
    exact = Fraction(count)
    return exact.numerator if exact.denominator == 1 else round(float(exact), 3)


def count_text(count: Fraction | int) -> str:
    value = count_value(count)
    return f"{value:,}"
