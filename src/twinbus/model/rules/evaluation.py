"""The functions that compiled filters are made of.

Each takes functions or constants and returns a function of the message's view: to a value, or to
True, False or None (unknown) for a test. The tables of three-valued logic:

    AND  T F U      OR  T F U      NOT
    T    T F U      T   T T T      T F
    F    F F F      F   T F U      F T
    U    U F U      U   T U U      U U

AND stops at the first false and OR at the first true, so what follows cannot fail any more. That
is how a filter guards a calculation: `x <> 0 AND 10 / x > 2`.
"""

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from twinbus.errors import ArgumentError, FilterError
from twinbus.model.rules.arithmetic import Calculating
from twinbus.model.rules.like import Matcher, like_matcher
from twinbus.model.rules.values import (
    COMPARISONS,
    KINDS,
    NUMBER_TYPES,
    TEXT_TYPES,
    Truth,
    equal,
    equality_key,
    kind_name,
)
from twinbus.model.rules.view import FilterView

Evaluate: TypeAlias = Callable[[FilterView], object]
Test: TypeAlias = Callable[[FilterView], Truth]

MATCHER_CACHE_SIZE = 1_024
REMEMBERED_LENGTH_MAX = 128
"""Of patterns that come with messages. One may have 32 KB, and what is made of it a hundred times as much."""
_matcher = lru_cache(MATCHER_CACHE_SIZE)(like_matcher)
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {  # of two values of one ordered kind
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def conjunction(terms: list[Test]) -> Test:
    if len(terms) == 2:
        return _both(*terms)

    def test(view: FilterView) -> Truth:
        outcome: Truth = True
        for term in terms:
            truth = term(view)
            if truth is False:
                return False
            if truth is None:
                outcome = None
        return outcome

    return test


def _both(left: Test, right: Test) -> Test:
    def test(view: FilterView) -> Truth:
        first = left(view)
        if first is False:
            return False
        second = right(view)
        # With a true left side the right one decides; with an unknown one it can only make it false.
        return second if first or second is False else None

    return test


def disjunction(terms: list[Test]) -> Test:
    def test(view: FilterView) -> Truth:
        outcome: Truth = False
        for term in terms:
            truth = term(view)
            if truth:
                return True
            if truth is None:
                outcome = None
        return outcome

    return test


def negation(operand: Test) -> Test:
    def test(view: FilterView) -> Truth:
        truth = operand(view)
        return None if truth is None else not truth

    return test


def negation_if(negated: bool, operand: Test) -> Test:
    return negation(operand) if negated else operand


def null_test(operand: Evaluate, negated: bool) -> Test:
    if negated:
        return lambda view: operand(view) is not None
    return lambda view: operand(view) is None


def compare_both(sign: str, left: Evaluate, right: Evaluate) -> Test:
    compare = COMPARISONS[sign]
    return lambda view: compare(left(view), right(view))


def compare_to_constant(sign: str, left: Evaluate, constant: object) -> Test:
    compare = COMPARISONS[sign]
    return lambda view: compare(left(view), constant)


def compare_user_property(sign: str, name: str, constant: object) -> Test:
    """The test that most filters are made of, with the kinds decided here as far as they can be."""
    compare, holds = COMPARISONS[sign], _HOLDS[sign]
    comparable = next((types for types in (TEXT_TYPES, NUMBER_TYPES) if type(constant) in types), frozenset[type]())

    def test(view: FilterView) -> Truth:
        value = view.user.get(name)
        if type(value) in comparable:
            return holds(value, constant)
        return compare(value, constant)

    return test


def among(operand: Evaluate, choices: list[Evaluate]) -> Test:
    """The operand equals one of them; a comparison that is unknown may have been the one."""

    def test(view: FilterView) -> Truth:
        value = operand(view)
        if value is None:
            return None
        outcome: Truth = False
        for choice in choices:
            truth = equal(value, choice(view))
            if truth:
                return True
            if truth is None:
                outcome = None
        return outcome

    return test


def among_constants(operand: Evaluate, choices: list[object]) -> Test:
    keys = frozenset(map(equality_key, choices)) - {None}
    kinds = {KINDS.get(type(choice)) for choice in choices}
    only_kind = kinds.pop() if len(kinds) == 1 else None

    def test(view: FilterView) -> Truth:
        value = operand(view)
        key = equality_key(value)
        if key in keys:
            return True
        kind = KINDS.get(type(value))
        return False if kind is not None and kind is only_kind else None

    return test


def pattern_matcher(pattern: object, escape: object) -> Matcher:
    if not isinstance(pattern, str):
        raise FilterError(f"LIKE needs a text as its pattern, not {kind_name(pattern)}.")
    if escape is not None and not isinstance(escape, str):
        raise FilterError(f"ESCAPE needs a text of one character, not {kind_name(escape)}.")
    make = _matcher if len(pattern) <= REMEMBERED_LENGTH_MAX else like_matcher
    return make(pattern, escape)


def like(operand: Evaluate, matches: Matcher) -> Test:
    def test(view: FilterView) -> Truth:
        value = operand(view)
        return matches(value) if isinstance(value, str) else None

    return test


def like_computed(operand: Evaluate, pattern: Evaluate, escape: Evaluate | None) -> Test:
    def test(view: FilterView) -> Truth:
        value, pattern_text = operand(view), pattern(view)
        escape_text = None if escape is None else escape(view)
        if pattern_text is None or (escape is not None and escape_text is None):
            return None
        try:
            matches = pattern_matcher(pattern_text, escape_text)
        except ArgumentError as error:
            raise FilterError(str(error)) from None
        return matches(value) if isinstance(value, str) else None

    return test


def named_property(name: Evaluate) -> Evaluate:
    def evaluate(view: FilterView) -> object:
        key = name(view)
        if key is None:
            return None
        if not isinstance(key, str):
            raise FilterError(f"property() needs a text as the name, not {kind_name(key)}.")
        return view.user.get(key.lower())

    return evaluate


def unary(calculate: Callable[[object], object], operand: Evaluate) -> Evaluate:
    return lambda view: calculate(operand(view))


def chain(first: Evaluate, rest: list[tuple[Calculating, Evaluate]]) -> Evaluate:
    def evaluate(view: FilterView) -> object:
        value = first(view)
        for calculate, operand in rest:
            value = calculate(value, operand(view))
        return value

    return evaluate
