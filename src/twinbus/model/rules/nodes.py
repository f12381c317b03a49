"""The parts of a filter or an action, as values.

There are two sorts, and the grammar never mixes them: a *predicate* is true, false or unknown; an
*expression* has a value. Chains of one precedence are flat (`a AND b AND c` is one node), so the
depth of a tree is the nesting somebody wrote, and not the length of a list.

`position` is where the text has the node. It is for error texts and takes no part in equality.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

Constant: TypeAlias = "str | int | float | bool | None"


class Scope(Enum):
    SYSTEM = "sys"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Equality tells 1, 1.0 and TRUE apart, as the grammar does."""

    value: Constant
    kind: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self.value).__name__)


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    scope: Scope = Scope.USER
    position: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """`@name`; the name is kept without its sign."""

    name: str
    position: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NewId:
    """`newid()`: a new uuid each time it is evaluated."""


@dataclass(frozen=True, slots=True)
class PropertyNamed:
    """`property(name)`: the user property whose name is the value of an expression."""

    name: "Expression"


@dataclass(frozen=True, slots=True)
class Sign:
    """Unary `+` or `-`."""

    operator: str
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`first` and then (operator, operand) from left to right; all operators of one precedence."""

    first: "Expression"
    rest: tuple[tuple[str, "Expression"], ...]


Expression: TypeAlias = Literal | Property | Parameter | NewId | PropertyNamed | Sign | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """`operator` is one of = <> < <= > >= (`!=` is read as `<>`)."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expression
    negated: bool = False


@dataclass(frozen=True, slots=True)
class In:
    operand: Expression
    choices: tuple[Expression, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Like:
    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False
    position: int = field(default=0, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Exists:
    property: Property


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Predicate"


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple["Predicate", ...]


Predicate: TypeAlias = Comparison | IsNull | In | Like | Exists | Not | And | Or
PREDICATES = (Comparison, IsNull, In, Like, Exists, Not, And, Or)


@dataclass(frozen=True, slots=True)
class Set:
    target: Property
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    target: Property


Statement: TypeAlias = Set | Remove
