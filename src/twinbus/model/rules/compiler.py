"""Nodes in, functions out: a filter is compiled once and evaluated on every message."""

from collections.abc import Callable, Mapping
from typing import TypeAlias
from uuid import UUID

from twinbus.errors import ArgumentError, FilterError
from twinbus.model.rules import nodes
from twinbus.model.rules.arithmetic import OPERATIONS, negative, positive
from twinbus.model.rules.evaluation import (
    Evaluate,
    Test,
    among,
    among_constants,
    chain,
    compare_both,
    compare_to_constant,
    compare_user_property,
    conjunction,
    disjunction,
    like,
    like_computed,
    named_property,
    negation,
    negation_if,
    null_test,
    pattern_matcher,
    unary,
)
from twinbus.model.rules.lexer import syntax_error
from twinbus.model.rules.nodes import Expression, Predicate, Scope
from twinbus.model.rules.view import SYSTEM_PROPERTIES, SystemProperty

NewIdSource: TypeAlias = Callable[[], UUID]

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Compiler:
    """Compiles the nodes of one text. Raises ArgumentError for names that the text uses and nobody defined."""

    def __init__(self, text: str, parameters: Mapping[str, object], new_id: NewIdSource) -> None:
        self._text = text
        self._parameters = parameters
        self._new_id = new_id

    # Predicates

    def predicate(self, node: Predicate) -> Test:
        match node:
            case nodes.And(terms):
                return conjunction([self.predicate(term) for term in terms])
            case nodes.Or(terms):
                return disjunction([self.predicate(term) for term in terms])
            case nodes.Not(operand):
                return negation(self.predicate(operand))
            case nodes.Comparison():
                return self._comparison(node)
            case nodes.IsNull(operand, negated):
                return null_test(self.expression(operand), negated)
            case nodes.Exists(target):
                return self._existence(target)
            case nodes.In(operand, _, negated):
                return negation_if(negated, self._membership(node, self.expression(operand)))
            case nodes.Like(operand, _, _, negated):
                return negation_if(negated, self._likeness(node, self.expression(operand)))

    def _comparison(self, node: nodes.Comparison) -> Test:
        sign, left, right = node.operator, node.left, node.right
        if self.is_given(left) and not self.is_given(right):
            sign, left, right = _MIRRORED[sign], right, left
        if not self.is_given(right):
            return compare_both(sign, self.expression(left), self.expression(right))
        constant = self.given(right)
        if isinstance(left, nodes.Property) and left.scope is Scope.USER:
            return compare_user_property(sign, left.name.lower(), constant)
        return compare_to_constant(sign, self.expression(left), constant)

    def _existence(self, target: nodes.Property) -> Test:
        if target.scope is Scope.SYSTEM:
            return null_test(self.expression(target), negated=True)
        name = target.name.lower()
        return lambda view: name in view.user

    def _membership(self, node: nodes.In, operand: Evaluate) -> Test:
        if all(map(self.is_given, node.choices)):
            return among_constants(operand, [self.given(choice) for choice in node.choices])
        return among(operand, [self.expression(choice) for choice in node.choices])

    def _likeness(self, node: nodes.Like, operand: Evaluate) -> Test:
        escape = node.escape
        if not self.is_given(node.pattern) or (escape is not None and not self.is_given(escape)):
            computed_escape = None if escape is None else self.expression(escape)
            return like_computed(operand, self.expression(node.pattern), computed_escape)
        pattern_text = self.given(node.pattern)
        escape_text = None if escape is None else self.given(escape)
        if pattern_text is None or (escape is not None and escape_text is None):
            return lambda view: None
        try:
            return like(operand, pattern_matcher(pattern_text, escape_text))
        except (ArgumentError, FilterError) as error:
            raise self.refuse(node.position, str(error).rstrip(".")) from None

    # Expressions

    def expression(self, node: Expression) -> Evaluate:
        match node:
            case nodes.Literal() | nodes.Parameter():
                constant = self.given(node)
                return lambda view: constant
            case nodes.Property(name, Scope.USER):
                key = name.lower()
                return lambda view: view.user.get(key)
            case nodes.Property():
                return self.system_property(node).read
            case nodes.PropertyNamed(name):
                return named_property(self.expression(name))
            case nodes.NewId():
                new_id = self._new_id
                return lambda view: new_id()
            case nodes.Sign(sign, operand):
                return unary(negative if sign == "-" else positive, self.expression(operand))
            case nodes.Arithmetic(first, rest):
                return chain(
                    self.expression(first), [(OPERATIONS[sign], self.expression(operand)) for sign, operand in rest]
                )

    def is_given(self, node: Expression) -> bool:
        return isinstance(node, nodes.Literal | nodes.Parameter)

    def given(self, node: Expression) -> object:
        """The value of a literal or parameter."""
        if isinstance(node, nodes.Literal):
            return node.value
        assert isinstance(node, nodes.Parameter)
        name = node.name.lower()
        if name not in self._parameters:
            raise self.refuse(node.position, f"there is no parameter @{node.name}; add it to the rule")
        return self._parameters[name]

    def refuse(self, position: int, problem: str) -> ArgumentError:
        return syntax_error(self._text, position, problem)

    def system_property(self, node: nodes.Property) -> SystemProperty:
        found = SYSTEM_PROPERTIES.get(node.name.lower())
        if found is None:
            names = ", ".join(sorted({known.name for known in SYSTEM_PROPERTIES.values()}))
            raise self.refuse(node.position, f"there is no system property {node.name}; expected {names}")
        return found
