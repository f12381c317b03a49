"""Nodes in, text out: the text parses to the same nodes again.

Every operand that is not a single word is put in parentheses. That is more of them than a person
would write, and it needs no table of precedences that could differ from the parser's.
"""

from twinbus.model.rules import nodes
from twinbus.model.rules.nodes import Expression, Predicate, Scope, Statement


def print_filter(predicate: Predicate) -> str:
    match predicate:
        case nodes.Comparison(operator, left, right):
            return f"{_operand(left)} {operator} {_operand(right)}"
        case nodes.IsNull(operand, negated):
            return f"{_operand(operand)} IS {_not(negated)}NULL"
        case nodes.In(operand, choices, negated):
            return f"{_operand(operand)} {_not(negated)}IN ({', '.join(map(_operand, choices))})"
        case nodes.Like(operand, pattern, escape, negated):
            ending = "" if escape is None else f" ESCAPE {_operand(escape)}"
            return f"{_operand(operand)} {_not(negated)}LIKE {_operand(pattern)}{ending}"
        case nodes.Exists(target):
            return f"EXISTS({print_expression(target)})"
        case nodes.Not(operand):
            return f"NOT ({print_filter(operand)})"
        case nodes.And(terms):
            return " AND ".join(f"({print_filter(term)})" for term in terms)
        case nodes.Or(terms):
            return " OR ".join(f"({print_filter(term)})" for term in terms)


def print_expression(expression: Expression) -> str:
    match expression:
        case nodes.Literal(value):
            return _literal(value)
        case nodes.Property(name, scope):
            delimited = "[" + name.replace("]", "]]") + "]"
            return f"sys.{delimited}" if scope is Scope.SYSTEM else delimited
        case nodes.Parameter(name):
            return f"@{name}"
        case nodes.NewId():
            return "newid()"
        case nodes.PropertyNamed(name):
            return f"property({print_expression(name)})"
        case nodes.Sign(operator, operand):
            # Without parentheses -5 would be read as one number.
            return f"{operator}({print_expression(operand)})"
        case nodes.Arithmetic(first, rest):
            return _operand(first) + "".join(f" {operator} {_operand(operand)}" for operator, operand in rest)


def print_action(statements: tuple[Statement, ...]) -> str:
    return "; ".join(_statement(statement) for statement in statements)


def _statement(statement: Statement) -> str:
    target = print_expression(statement.target)
    if isinstance(statement, nodes.Remove):
        return f"REMOVE {target}"
    return f"SET {target} = {print_expression(statement.value)}"


def _operand(expression: Expression) -> str:
    text = print_expression(expression)
    return f"({text})" if isinstance(expression, nodes.Arithmetic | nodes.Sign) else text


def _literal(value: str | int | float | bool | None) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case float():
            text = repr(value)
            return text if set(text) & set(".e") else f"{text}.0"
        case int():
            return str(value)


def _not(negated: bool) -> str:
    return "NOT " if negated else ""
