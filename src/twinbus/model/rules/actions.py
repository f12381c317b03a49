"""What a rule's action does to the copy it is for: SET and REMOVE, one after the other.

Each statement sees what the ones before it did. The message itself stays as it is; the outcome is
new content. A SET keeps the type that a property had where the new value fits in it. The system
properties that an action may change are those of the properties section, and all of them are text.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from twinbus.amqp.codec.types import Symbol, Value
from twinbus.amqp.errors import EncodeError
from twinbus.errors import FilterError
from twinbus.model.content import NewProperties, with_application_properties, with_properties
from twinbus.model.identity import ID_LENGTH_MAX
from twinbus.model.rules.compiler import Compiler
from twinbus.model.rules.conversion import converted_like
from twinbus.model.rules.evaluation import Evaluate
from twinbus.model.rules.nodes import Property, Scope, Set, Statement
from twinbus.model.rules.values import encodable, text_of
from twinbus.model.rules.view import SYSTEM_PROPERTIES, FilterView, SystemProperty

RULE_NAME_PROPERTY = "RuleName"

_ID_FIELDS = frozenset({"message_id", "group_id", "reply_to_group_id"})


class Draft:
    """A copy of a message while an action changes it. The view stays: every action starts from the message as it was sent."""

    def __init__(self, view: FilterView) -> None:
        self.view = FilterView(view.content, view.sequence_number, view.enqueued_at)
        self.view.user = dict(view.user)
        self.view.properties = replace(view.properties)
        self._places = view.places
        self._names = dict(view.names)
        self._set: dict[str, Value] = {}
        self._removed: set[str] = set()
        self._fields: dict[str, Value] = {}

    def set_user(self, name: str, value: object) -> None:
        """A property that is there keeps the spelling of its name."""
        key = name.lower()
        fitting = converted_like(self.view.user.get(key), value)
        self.view.user[key] = fitting
        spelled = self._names.setdefault(key, name)
        self._set[spelled] = encodable(fitting)

    def remove_user(self, name: str) -> None:
        key = name.lower()
        self.view.user.pop(key, None)
        spelled = self._names.get(key)
        if spelled is not None:
            self._set.pop(spelled, None)
            self._removed.add(spelled)

    def set_system(self, field: str, value: object) -> None:
        text = None if value is None else text_of(value)
        if text is not None and field in _ID_FIELDS and len(text) > ID_LENGTH_MAX:
            raise FilterError(
                f"The action sets {field} to {len(text)} characters, and {ID_LENGTH_MAX} is the limit. Set a shorter text."
            )
        if field == "message_id" and not text:
            raise FilterError("The action sets the message id to nothing. Set it to a text, as in newid().")
        written = Symbol(text) if field == "content_type" and text is not None else text
        setattr(self.view.properties, field, written)
        self._fields[field] = written

    def content(self) -> bytes:
        changed = with_application_properties(self.view.content, NewProperties(self._set), self._removed, self._places)
        return with_properties(changed, self._fields) if self._fields else changed


Step: TypeAlias = Callable[[Draft], None]


class CompiledAction:
    """The action of one rule, or one without a rule, ready to be applied to any message."""

    __slots__ = ("_rule_name", "_steps")

    def __init__(self, rule_name: str | None, steps: Sequence[Step]) -> None:
        self._rule_name = rule_name
        self._steps = tuple(steps)

    def apply(self, view: FilterView, removed: Collection[str] = ()) -> bytes:
        """The content of this rule's copy, which also names the rule. FilterError if a statement cannot be carried out.

        `removed`: properties that go in the end, though the statements see them."""
        draft = Draft(view)
        for step in self._steps:
            step(draft)
        for name in removed:
            draft.remove_user(name)
        if self._rule_name is not None:
            draft.set_user(RULE_NAME_PROPERTY, self._rule_name)
        try:
            return draft.content()
        except EncodeError as error:
            raise FilterError(f"The action sets a property to a value that no message can hold: {error}.") from None


def compile_action(rule_name: str | None, statements: Sequence[Statement], compiler: Compiler) -> CompiledAction:
    """ArgumentError if a statement changes a system property that does not exist or may not be changed."""
    return CompiledAction(rule_name, [_step(statement, compiler) for statement in statements])


def _step(statement: Statement, compiler: Compiler) -> Step:
    target = statement.target
    if isinstance(statement, Set):
        value = compiler.expression(statement.value)
        if target.scope is Scope.USER:
            return _set_user(target.name, value)
        return _set_system(_writable(target, compiler), value)
    if target.scope is Scope.USER:
        return lambda draft: draft.remove_user(target.name)
    field = _writable(target, compiler)
    if field == "message_id":
        raise compiler.refuse(target.position, "a message cannot be without MessageId; use SET")
    return lambda draft: draft.set_system(field, None)


def _set_user(name: str, value: Evaluate) -> Step:
    return lambda draft: draft.set_user(name, value(draft.view))


def _set_system(field: str, value: Evaluate) -> Step:
    return lambda draft: draft.set_system(field, value(draft.view))


def _writable(target: Property, compiler: Compiler) -> str:
    found: SystemProperty = compiler.system_property(target)
    if found.field is None:
        names = ", ".join(sorted({known.name for known in SYSTEM_PROPERTIES.values() if known.field}))
        raise compiler.refuse(target.position, f"an action cannot change {found.name}; expected {names}")
    return found.field
