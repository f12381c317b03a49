"""A second evaluator of filters, written for being obviously right: it walks the nodes, and truth is a number.

Unknown lies halfway between false and true; then AND is the minimum, OR the maximum and NOT 1 minus.
"""

from decimal import Decimal
from typing import Any

from twinbus.model.rules import nodes
from twinbus.model.rules.nodes import Expression, Predicate

TRUE, UNKNOWN, FALSE = 1.0, 0.5, 0.0
TRUTHS = {TRUE: True, UNKNOWN: None, FALSE: False}


class Failed(Exception):
    """The filter has no outcome on this message."""


def evaluate(node: Predicate, user: dict[str, Any]) -> bool | None:
    return TRUTHS[_truth(node, user)]


def _truth(node: Predicate, user: dict[str, Any]) -> float:
    if isinstance(node, nodes.And):
        lowest = TRUE
        for term in node.terms:
            lowest = min(lowest, _truth(term, user))
            if lowest == FALSE:
                break
        return lowest
    if isinstance(node, nodes.Or):
        highest = FALSE
        for term in node.terms:
            highest = max(highest, _truth(term, user))
            if highest == TRUE:
                break
        return highest
    if isinstance(node, nodes.Not):
        return 1 - _truth(node.operand, user)
    if isinstance(node, nodes.Exists):
        return float(node.property.name.lower() in user)
    if isinstance(node, nodes.IsNull):
        return float((value(node.operand, user) is None) != node.negated)
    if isinstance(node, nodes.Comparison):
        return _compare(node.operator, value(node.left, user), value(node.right, user))
    if isinstance(node, nodes.In):
        truth = _in(node, user)
        return 1 - truth if node.negated else truth
    truth = _like(node, user)
    return 1 - truth if node.negated else truth


def _in(node: nodes.In, user: dict[str, Any]) -> float:
    wanted = value(node.operand, user)
    if wanted is None:
        return UNKNOWN
    highest = FALSE
    for choice in node.choices:
        highest = max(highest, _compare("=", wanted, value(choice, user)))
        if highest == TRUE:
            break
    return highest


def _like(node: nodes.Like, user: dict[str, Any]) -> float:
    text, pattern = value(node.operand, user), value(node.pattern, user)
    if not isinstance(text, str) or pattern is None:
        return UNKNOWN
    return float(like(text, pattern, None if node.escape is None else value(node.escape, user)))


def like(text: str, pattern: str, escape: str | None) -> bool:
    """By the set of places in the text that the pattern so far can end at."""
    ends = {0}
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            ends = {end + 1 for end in ends if text[end : end + 1] == pattern[position]}
        elif character == "%":
            ends = set(range(min(ends), len(text) + 1)) if ends else set()
        else:
            ends = {end + 1 for end in ends if end < len(text) and character in ("_", text[end])}
        position += 1
    return len(text) in ends


def _sort(operand: Any) -> str:
    if isinstance(operand, bool):
        return "boolean"
    return "number" if isinstance(operand, int | float) else "text"


def _compare(operator: str, left: Any, right: Any) -> float:
    if left is None or right is None or _sort(left) != _sort(right):
        return UNKNOWN
    if _sort(left) == "number":
        left, right = Decimal(left), Decimal(right)
    if operator in ("=", "<>"):
        return float((left == right) == (operator == "="))
    if _sort(left) == "boolean":
        return UNKNOWN
    order = (left > right) - (left < right)
    return float({"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[operator])


def value(node: Expression, user: dict[str, Any]) -> Any:
    if isinstance(node, nodes.Literal):
        return node.value
    if isinstance(node, nodes.Property):
        return user.get(node.name.lower())
    if isinstance(node, nodes.PropertyNamed):
        name = value(node.name, user)
        if name is not None and not isinstance(name, str):
            raise Failed
        return None if name is None else user.get(name.lower())
    if isinstance(node, nodes.Sign):
        return _signed(node.operator, value(node.operand, user))
    assert isinstance(node, nodes.Arithmetic)
    result = value(node.first, user)
    for operator, operand in node.rest:
        result = _calculate(operator, result, value(operand, user))
    return result


def _signed(operator: str, operand: Any) -> Any:
    if operand is None:
        return None
    if _sort(operand) != "number":
        raise Failed
    return _checked(-operand if operator == "-" else operand)


def _calculate(operator: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if operator == "+" and "text" in (_sort(left), _sort(right)):
        return str(left) + str(right)
    if {_sort(left), _sort(right)} != {"number"}:
        raise Failed
    if operator in "/%" and right == 0:
        raise Failed
    if isinstance(left, float) or isinstance(right, float):
        return _calculate_floats(operator, left, right)
    if operator == "/":
        return _checked(int(Decimal(left) / Decimal(right)))
    if operator == "%":
        return left - right * int(Decimal(left) / Decimal(right))
    return _checked({"+": left + right, "-": left - right, "*": left * right}[operator])


def _calculate_floats(operator: str, left: float, right: float) -> float:
    if operator == "%":
        return abs(left) % abs(right) * (-1 if left < 0 else 1)
    if operator == "/":
        return left / right
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


def _checked(result: Any) -> Any:
    if isinstance(result, int) and not -(2**63) <= result < 2**63:
        raise Failed
    return result
