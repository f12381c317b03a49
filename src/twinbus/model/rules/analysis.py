"""What can be said about a filter without a message: asked once, when the filter is compiled."""

from collections.abc import Iterator
from typing import TypeAlias

from twinbus.model.rules.nodes import (
    And,
    Arithmetic,
    Comparison,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    NewId,
    Not,
    Or,
    Parameter,
    Predicate,
    Property,
    PropertyNamed,
    Sign,
)

Node: TypeAlias = Predicate | Expression


def children(node: Node) -> Iterator[Node]:
    match node:
        case And(terms) | Or(terms):
            yield from terms
        case Not(operand) | IsNull(operand) | Sign(_, operand):
            yield operand
        case Comparison(_, left, right):
            yield from (left, right)
        case In(operand, choices):
            yield from (operand, *choices)
        case Like(operand, pattern, escape):
            yield from (operand, pattern) if escape is None else (operand, pattern, escape)
        case Exists(target):
            yield target
        case PropertyNamed(name):
            yield name
        case Arithmetic(first, rest):
            yield first
            yield from (operand for _, operand in rest)


def is_constant(node: Node) -> bool:
    """Whether it has the same outcome on every message."""
    return not isinstance(node, Property | PropertyNamed | NewId) and all(map(is_constant, children(node)))


def cannot_fail(node: Node) -> bool:
    """Whether it has an outcome, if only unknown, on every message.

    Comparisons always have one. Only calculations, computed names and computed patterns can fail.
    """
    if isinstance(node, Arithmetic | Sign | PropertyNamed):
        return False
    if isinstance(node, Like) and not _is_given(node.pattern, node.escape):
        return False
    return all(map(cannot_fail, children(node)))


def required_equalities(predicate: Predicate) -> list[tuple[Property, Literal | Parameter]]:
    """Property = constant for all that have to hold wherever the predicate is true."""
    if isinstance(predicate, And):
        return [found for term in predicate.terms for found in required_equalities(term)]
    if not isinstance(predicate, Comparison) or predicate.operator != "=":
        return []
    for target, value in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
        if isinstance(target, Property) and isinstance(value, Literal | Parameter):
            return [(target, value)]
    return []


def _is_given(*operands: Expression | None) -> bool:
    return all(operand is None or isinstance(operand, Literal | Parameter) for operand in operands)
