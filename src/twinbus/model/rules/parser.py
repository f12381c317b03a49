"""Text of a filter or action in, nodes out: recursive descent with one token of look-ahead.

    predicate   or    := and  { OR and }            and := not { AND not }       not := [NOT] test
                test  := sum [ comparison sum | IS [NOT] NULL | [NOT] IN (sum, ...) | [NOT] LIKE sum [ESCAPE sum] ]
                       | EXISTS ( property )
    expression  sum   := product { +|- product }    product := sign { *|/|% sign }    sign := [+|-] primary
                primary := constant | @parameter | property | newid() | property(sum) | p(sum) | ( or )
    action      { SET property = sum | REMOVE property } separated by ; or , or nothing

A parenthesis may open a predicate or an expression, so both are read by the same functions, and
each operator checks the sort of what it was given.
"""

from collections.abc import Callable
from math import isinf
from typing import TypeVar

from twinbus.errors import ArgumentError
from twinbus.model.rules import nodes
from twinbus.model.rules.arithmetic import INTEGER_MAX, INTEGER_MIN
from twinbus.model.rules.lexer import TokenCursor, TokenKind
from twinbus.model.rules.nodes import PREDICATES, Expression, Predicate, Scope, Statement

TEXT_LENGTH_MAX = 1_024
STATEMENT_COUNT_MAX = 32
NESTING_MAX = 32  # each level takes some ten frames of the interpreter's stack, here and in evaluation

_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_VALUE_STARTS = "a value (a property, constant, parameter, function or parenthesis)"

Node = TypeVar("Node")


def parse_filter(text: str) -> Predicate:
    """ArgumentError, with position and expectation, if the text is not one whole predicate."""
    parser = _Parser(text)
    node = parser.either()
    if not parser.at_end():
        parser.expected("AND, OR or the end")
    return parser.predicate_at(node, 0)


def parse_action(text: str) -> tuple[Statement, ...]:
    """ArgumentError if the text is not one to STATEMENT_COUNT_MAX statements."""
    parser = _Parser(text)
    statements = [parser.statement()]
    while not parser.at_end():
        if len(statements) == STATEMENT_COUNT_MAX:
            parser.fail(f"an action has at most {STATEMENT_COUNT_MAX} statements; split it over several rules")
        statements.append(parser.statement())
    return tuple(statements)


class _Parser(TokenCursor):
    """One text on its way to nodes."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_LENGTH_MAX:
            raise ArgumentError(
                f"The expression has {len(text)} characters, and {TEXT_LENGTH_MAX} is the limit; "
                "shorten it or use several rules."
            )
        super().__init__(text)
        self._nesting = 0

    # Sorts

    def predicate_at(self, node: Predicate | Expression, position: int) -> Predicate:
        if not isinstance(node, PREDICATES):
            self.fail("expected a condition, found a value; compare it with something, as in x = TRUE", position)
        return node

    def _expression_at(self, node: Predicate | Expression, position: int) -> Expression:
        if isinstance(node, PREDICATES):
            self.fail("expected a value, found a condition; conditions cannot be compared or calculated with", position)
        return node

    def _nested(self, read: Callable[[], Node]) -> Node:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            self.fail(f"nested more than {NESTING_MAX} deep; use fewer parentheses and signs")
        node = read()
        self._nesting -= 1
        return node

    # Predicates

    def either(self) -> Predicate | Expression:
        """A predicate or an expression, whichever the text has."""
        return self._joined("OR", nodes.Or, lambda: self._joined("AND", nodes.And, self._negation))

    def _joined(
        self, keyword: str, node: type[nodes.And] | type[nodes.Or], read: Callable[[], Predicate | Expression]
    ) -> Predicate | Expression:
        position = self.next.position
        first = read()
        if not self.is_next(TokenKind.KEYWORD, keyword):
            return first
        terms = [self.predicate_at(first, position)]
        while self.take(TokenKind.KEYWORD, keyword):
            position = self.next.position
            terms.append(self.predicate_at(read(), position))
        return node(tuple(terms))

    def _negation(self) -> Predicate | Expression:
        if not self.take(TokenKind.KEYWORD, "NOT"):
            return self._test()
        position = self.next.position
        return nodes.Not(self.predicate_at(self._nested(self._negation), position))

    def _test(self) -> Predicate | Expression:
        if self.take(TokenKind.KEYWORD, "EXISTS"):
            return self._exists()
        position = self.next.position
        left = self._sum()
        operator = self.take(TokenKind.SYMBOL, *_COMPARISONS)
        if operator:
            return nodes.Comparison(_COMPARISONS[operator.text], self._expression_at(left, position), self._operand())
        if not self.is_next(TokenKind.KEYWORD, "IS", "NOT", "IN", "LIKE"):
            return left
        return self._keyword_test(self._expression_at(left, position))

    def _keyword_test(self, left: Expression) -> Predicate:
        if self.take(TokenKind.KEYWORD, "IS"):
            negated = self.take(TokenKind.KEYWORD, "NOT") is not None
            self.expect(TokenKind.KEYWORD, "NULL")
            return nodes.IsNull(left, negated)
        negated = self.take(TokenKind.KEYWORD, "NOT") is not None
        if self.take(TokenKind.KEYWORD, "IN"):
            return nodes.In(left, self._choices(), negated)
        if not self.take(TokenKind.KEYWORD, "LIKE"):
            self.expected("IN or LIKE")
        position = self.next.position
        pattern = self._operand()
        escape = self._operand() if self.take(TokenKind.KEYWORD, "ESCAPE") else None
        return nodes.Like(left, pattern, escape, negated, position)

    def _exists(self) -> nodes.Exists:
        self.expect(TokenKind.SYMBOL, "(")
        target = self._property()
        self.expect(TokenKind.SYMBOL, ")")
        return nodes.Exists(target)

    def _choices(self) -> tuple[Expression, ...]:
        self.expect(TokenKind.SYMBOL, "(")
        choices = [self._operand()]
        while self.take(TokenKind.SYMBOL, ","):
            choices.append(self._operand())
        if not self.take(TokenKind.SYMBOL, ")"):
            self.expected("',' or ')'")
        return tuple(choices)

    # Expressions

    def _operand(self) -> Expression:
        position = self.next.position
        return self._expression_at(self._sum(), position)

    def _sum(self) -> Predicate | Expression:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Predicate | Expression:
        return self._chain(("*", "/", "%"), self._sign)

    def _chain(self, operators: tuple[str, ...], read: Callable[[], Predicate | Expression]) -> Predicate | Expression:
        position = self.next.position
        first = read()
        if not self.is_next(TokenKind.SYMBOL, *operators):
            return first
        rest: list[tuple[str, Expression]] = []
        start = self._expression_at(first, position)
        while operator := self.take(TokenKind.SYMBOL, *operators):
            position = self.next.position
            rest.append((operator.text, self._expression_at(read(), position)))
        return nodes.Arithmetic(start, tuple(rest))

    def _sign(self) -> Predicate | Expression:
        operator = self.take(TokenKind.SYMBOL, "+", "-")
        if operator is None:
            return self._primary()
        if operator.text == "-" and self.next.kind in (TokenKind.INTEGER, TokenKind.NUMBER):
            # Read with its sign: the lowest 64-bit integer has no positive counterpart.
            return self._number(sign=-1)
        position = self.next.position
        return nodes.Sign(operator.text, self._expression_at(self._nested(self._sign), position))

    def _primary(self) -> Predicate | Expression:
        token = self.next
        if token.kind in (TokenKind.INTEGER, TokenKind.NUMBER):
            return self._number(sign=1)
        if token.kind is TokenKind.STRING:
            return nodes.Literal(self.advance().text)
        if token.kind is TokenKind.PARAMETER:
            return nodes.Parameter(self.advance().text, token.position)
        if token.kind is TokenKind.KEYWORD and token.text in _CONSTANTS:
            return nodes.Literal(_CONSTANTS[self.advance().text])
        if token.kind in (TokenKind.NAME, TokenKind.DELIMITED):
            return self._named()
        if not self.take(TokenKind.SYMBOL, "("):
            self.expected(_VALUE_STARTS)
        inner = self._nested(self.either)
        self.expect(TokenKind.SYMBOL, ")")
        return inner

    def _number(self, sign: int) -> nodes.Literal:
        token = self.advance()
        if token.kind is TokenKind.NUMBER:
            number = sign * float(token.text)
            if isinf(number):
                self.fail("the number is too large for a double", token.position)
            return nodes.Literal(number)
        value = sign * int(token.text)
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            self.fail("the integer does not fit in 64 bits; write it as a decimal, as in 1e20", token.position)
        return nodes.Literal(value)

    def _named(self) -> Expression:
        after = self.after_next
        if self.next.kind is TokenKind.NAME and (after.kind, after.text) == (TokenKind.SYMBOL, "("):
            return self._function()
        return self._property()

    def _function(self) -> Expression:
        name = self.advance()
        self.expect(TokenKind.SYMBOL, "(")
        if name.text.lower() == "newid":
            self.expect(TokenKind.SYMBOL, ")")
            return nodes.NewId()
        if name.text.lower() not in ("property", "p"):
            self.fail(f"there is no function {name.text}; expected newid() or property(name)", name.position)
        argument = self._nested(self._operand)
        self.expect(TokenKind.SYMBOL, ")")
        return nodes.PropertyNamed(argument)

    def _property(self) -> nodes.Property:
        token = self.next
        if token.kind not in (TokenKind.NAME, TokenKind.DELIMITED):
            self.expected("the name of a property" + (", and a reserved word needs [ ]" if token.text else ""))
        self.advance()
        if not self.take(TokenKind.SYMBOL, "."):
            return nodes.Property(token.text, Scope.USER, token.position)
        if token.kind is not TokenKind.NAME or token.text.lower() not in _SCOPES:
            self.fail("expected sys or user before '.'; put a name with dots between [ and ]", token.position)
        if self.next.kind not in (TokenKind.NAME, TokenKind.DELIMITED):
            self.expected(f"the name of a property after '{token.text}.'")
        return nodes.Property(self.advance().text, _SCOPES[token.text.lower()], token.position)

    # Actions

    def statement(self) -> Statement:
        statement = self._set_or_remove()
        is_followed = self.at_end() or self.is_next(TokenKind.KEYWORD, "SET", "REMOVE")
        if not self.take(TokenKind.SYMBOL, ";", ",") and not is_followed:
            self.expected("';', SET, REMOVE or the end")
        return statement

    def _set_or_remove(self) -> Statement:
        if self.take(TokenKind.KEYWORD, "REMOVE"):
            return nodes.Remove(self._property())
        if not self.take(TokenKind.KEYWORD, "SET"):
            self.expected("SET or REMOVE")
        target = self._property()
        self.expect(TokenKind.SYMBOL, "=")
        return nodes.Set(target, self._operand())


_CONSTANTS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
_SCOPES = {scope.value: scope for scope in Scope}
