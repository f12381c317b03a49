"""+ - * / % on the values of a filter.

Integers are 64 bits wide and signed, and division drops the fraction, as in C. One double makes
the result a double. `+` joins text with anything. Times and durations add and subtract as such.
Unknown in, unknown out. What has no result (overflow, division by zero, TRUE * 2) is a
FilterError: the filter cannot be evaluated on this message.
"""

import math
from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from twinbus.amqp.codec.types import Timestamp
from twinbus.errors import FilterError
from twinbus.model.message_limits import PROPERTY_SIZE_MAX
from twinbus.model.rules.values import KINDS, MILLISECOND, NUMBER_TYPES, Kind, kind_name, text_of

Calculating: TypeAlias = Callable[[object, object], object]
Number: TypeAlias = int | float

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**63 - 1
TEXT_LENGTH_MAX = PROPERTY_SIZE_MAX  # no property may be longer, and repeated joining has to stop somewhere


def _in_range(result: Number) -> Number:
    if isinstance(result, int) and not INTEGER_MIN <= result <= INTEGER_MAX:
        raise FilterError("An integer calculation in the filter leaves 64 bits. Make one operand a decimal, as in 1.0.")
    return result


def _add_numbers(left: Number, right: Number) -> Number:
    return _in_range(left + right)


def _subtract_numbers(left: Number, right: Number) -> Number:
    return _in_range(left - right)


def _multiply_numbers(left: Number, right: Number) -> Number:
    return _in_range(left * right)


def _divide_numbers(left: Number, right: Number) -> Number:
    if right == 0:
        raise _zero_divisor()
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return _in_range(quotient if (left < 0) == (right < 0) else -quotient)
    return left / right


def _remainder_of_numbers(left: Number, right: Number) -> Number:
    if right == 0:
        raise _zero_divisor()
    if isinstance(left, int) and isinstance(right, int):
        remainder = abs(left) % abs(right)
        return -remainder if left < 0 else remainder
    # math.fmod refuses an infinite dividend, which has no remainder in IEEE arithmetic either.
    return math.nan if math.isinf(left) else math.fmod(left, right)


def _zero_divisor() -> FilterError:
    return FilterError("A division by zero in the filter. Test the divisor first, as in x <> 0 AND 10 / x > 2.")


_NUMERIC: dict[str, Callable[[Number, Number], Number]] = {
    "+": _add_numbers,
    "-": _subtract_numbers,
    "*": _multiply_numbers,
    "/": _divide_numbers,
    "%": _remainder_of_numbers,
}


def _calculating(operator: str) -> Calculating:
    numeric = _NUMERIC[operator]

    def calculate(left: object, right: object) -> object:
        if type(left) in NUMBER_TYPES and type(right) in NUMBER_TYPES:
            return numeric(left, right)  # type: ignore[arg-type]
        if left is None or right is None:
            return None
        return _calculate_other(operator, left, right)

    return calculate


OPERATIONS: dict[str, Calculating] = {operator: _calculating(operator) for operator in _NUMERIC}


def _calculate_other(operator: str, left: object, right: object) -> object:
    kinds = (KINDS.get(type(left)), KINDS.get(type(right)))
    if operator == "+" and Kind.TEXT in kinds and None not in kinds:
        return _join(text_of(left), text_of(right))
    try:
        result = _shift_time(operator, kinds, left, right)
    except OverflowError:
        raise FilterError("A time calculated in the filter is out of range. Check the duration.") from None
    if result is None:
        raise FilterError(
            f"The filter cannot calculate {kind_name(left)} {operator} {kind_name(right)}. "
            "Send the property as a number, or test its type first."
        )
    return result


def _join(left: str, right: str) -> str:
    if len(left) + len(right) > TEXT_LENGTH_MAX:
        raise FilterError(
            f"A text joined in the filter is longer than {TEXT_LENGTH_MAX} characters. Join fewer properties."
        )
    return left + right


def _shift_time(operator: str, kinds: tuple[Kind | None, Kind | None], left: object, right: object) -> object:
    """None if these kinds have no such operation."""
    match kinds, operator, left, right:
        case (Kind.TIME, Kind.TIME), "-", int(), int():
            return (left - right) * MILLISECOND
        case (Kind.TIME, Kind.DURATION), "+" | "-", int(), timedelta():
            sign = 1 if operator == "+" else -1
            return Timestamp(_in_range(left + sign * (right // MILLISECOND)))
        case (Kind.DURATION, Kind.TIME), "+", timedelta(), int():
            return Timestamp(_in_range(right + left // MILLISECOND))
        case (Kind.DURATION, Kind.DURATION), "+", timedelta(), timedelta():
            return left + right
        case (Kind.DURATION, Kind.DURATION), "-", timedelta(), timedelta():
            return left - right
        case _:
            return None


def negative(value: object) -> object:
    if type(value) in NUMBER_TYPES:
        return _in_range(-value)  # type: ignore[operator]
    if value is None or isinstance(value, timedelta):
        return None if value is None else -value
    raise FilterError(f"The filter cannot negate a value of type {kind_name(value)}. Send the property as a number.")


def positive(value: object) -> object:
    if value is None or type(value) in NUMBER_TYPES or isinstance(value, timedelta):
        return value
    raise FilterError(
        f"The filter cannot apply + to a value of type {kind_name(value)}. Send the property as a number."
    )
