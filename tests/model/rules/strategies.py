"""Random filters and messages. Names, texts and numbers come from small sets, so that things often meet."""

from hypothesis import strategies as st

from twinbus.model.rules import nodes
from twinbus.model.rules.nodes import Expression, Predicate, Scope

NAMES = ("a", "B", "color", "with space", "br]ack", 'quo"te', "and")
SYSTEM_NAMES = ("Label", "To", "MessageId")

texts = st.sampled_from(["", "red", "Red", "red_", "100%", "it's", "b"])
numbers = st.sampled_from([0, 1, 2, -3, 10, 2**63 - 1, -(2**63), 0.5, 1.0, -2.5])
constants = st.one_of(texts, numbers, st.booleans(), st.none())
literals = st.builds(nodes.Literal, constants)
user_properties = st.builds(nodes.Property, st.sampled_from(NAMES))
messages = st.dictionaries(st.sampled_from(NAMES).map(str.lower), constants, max_size=5)

any_text = st.text(max_size=8)
any_literals = st.builds(
    nodes.Literal,
    st.one_of(
        any_text,
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.none(),
    ),
)
any_properties = st.one_of(
    st.builds(nodes.Property, any_text), st.builds(nodes.Property, st.sampled_from(SYSTEM_NAMES), st.just(Scope.SYSTEM))
)
any_leaves: st.SearchStrategy[Expression] = st.one_of(
    any_literals, any_properties, st.builds(nodes.Parameter, st.sampled_from(["p", "Q_1"])), st.just(nodes.NewId())
)


def expressions(leaves: st.SearchStrategy[Expression], max_leaves: int = 4) -> st.SearchStrategy[Expression]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(nodes.Arithmetic, inner, _rest(("+", "-"), inner)),
            st.builds(nodes.Arithmetic, inner, _rest(("*", "/", "%"), inner)),
            st.builds(nodes.Sign, st.sampled_from("+-"), inner),
            st.builds(nodes.PropertyNamed, inner),
        ),
        max_leaves=max_leaves,
    )


def _rest(
    operators: tuple[str, ...], operands: st.SearchStrategy[Expression]
) -> st.SearchStrategy[tuple[tuple[str, Expression], ...]]:
    return st.lists(st.tuples(st.sampled_from(operators), operands), min_size=1, max_size=3).map(tuple)


def predicates(
    operands: st.SearchStrategy[Expression],
    properties: st.SearchStrategy[nodes.Property],
    likes: st.SearchStrategy[Predicate],
) -> st.SearchStrategy[Predicate]:
    tests = st.one_of(
        st.builds(nodes.Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), operands, operands),
        st.builds(nodes.IsNull, operands, st.booleans()),
        st.builds(nodes.In, operands, st.lists(operands, min_size=1, max_size=3).map(tuple), st.booleans()),
        st.builds(nodes.Exists, properties),
        likes,
    )
    return st.recursive(
        tests,
        lambda inner: st.one_of(
            st.builds(nodes.Not, inner),
            st.builds(nodes.And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
            st.builds(nodes.Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        ),
        max_leaves=4,
    )


_any_operands = expressions(any_leaves)
printable_filters = predicates(
    _any_operands,
    any_properties,
    st.builds(nodes.Like, _any_operands, _any_operands, st.one_of(st.none(), _any_operands), st.booleans()),
)
printable_actions = st.lists(
    st.one_of(st.builds(nodes.Set, any_properties, _any_operands), st.builds(nodes.Remove, any_properties)),
    min_size=1,
    max_size=4,
).map(tuple)

patterns = st.text(alphabet="ab%_!", max_size=6)
_operands = expressions(st.one_of(literals, user_properties))
evaluable_filters = predicates(
    _operands,
    user_properties,
    st.builds(
        nodes.Like, st.one_of(literals, user_properties), st.builds(nodes.Literal, st.sampled_from(["%", "r%d", "_ed", "", "10!%"])),
        st.sampled_from([None, nodes.Literal("!")]), st.booleans(),
    ),
)  # fmt: skip
