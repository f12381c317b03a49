"""What can be said about a filter without a message: asked once, when the filter is compiled."""

from collections.abc import Iterator
from typing import TypeAlias

from twinbus.model.rules import nodes
from twinbus.model.rules.nodes import Expression, Predicate

Node: TypeAlias = Predicate | Expression


def children(node: Node) -> Iterator[Node]:
    match node:
        case nodes.And(terms) | nodes.Or(terms):
            yield from terms
        case nodes.Not(operand) | nodes.IsNull(operand) | nodes.Sign(_, operand):
            yield operand
        case nodes.Comparison(_, left, right):
            yield from (left, right)
        case nodes.In(operand, choices):
            yield from (operand, *choices)
        case nodes.Like(operand, pattern, escape):
            yield from (operand, pattern) if escape is None else (operand, pattern, escape)
        case nodes.Exists(target):
            yield target
        case nodes.PropertyNamed(name):
            yield name
        case nodes.Arithmetic(first, rest):
            yield first
            yield from (operand for _, operand in rest)


def is_constant(node: Node) -> bool:
    """Whether it has the same outcome on every message."""
    return not isinstance(node, nodes.Property | nodes.PropertyNamed | nodes.NewId) and all(
        map(is_constant, children(node))
    )


def cannot_fail(node: Node) -> bool:
    """Whether it has an outcome, if only unknown, on every message.

    Comparisons always have one. Only calculations, computed names and computed patterns can fail.
    """
    if isinstance(node, nodes.Arithmetic | nodes.Sign | nodes.PropertyNamed):
        return False
    if isinstance(node, nodes.Like) and not _is_given(node.pattern, node.escape):
        return False
    return all(map(cannot_fail, children(node)))


def required_equalities(predicate: Predicate) -> list[tuple[nodes.Property, nodes.Literal | nodes.Parameter]]:
    """Property = constant for all that have to hold wherever the predicate is true."""
    if isinstance(predicate, nodes.And):
        return [found for term in predicate.terms for found in required_equalities(term)]
    if not isinstance(predicate, nodes.Comparison) or predicate.operator != "=":
        return []
    for target, value in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
        if isinstance(target, nodes.Property) and isinstance(value, nodes.Literal | nodes.Parameter):
            return [(target, value)]
    return []


def _is_given(*operands: Expression | None) -> bool:
    return all(operand is None or isinstance(operand, nodes.Literal | nodes.Parameter) for operand in operands)
