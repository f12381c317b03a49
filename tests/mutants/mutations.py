"""Single changes to a source file: its text in, every change that can be made to it out.

kind        a change
compare     `<` to `<=`, `==` to `!=`, `is` to `is not`, `in` to `not in`, and back
constant    a number one larger, True to False and back
condition   of an `if`, a `while`, a choice or a comprehension: negated
logic       `and` to `or`, and back
arithmetic  `+` to `-`, `*` to `+`, `//` to `*`, and back
statement   a call, a raise, an assignment to an attribute or an item: dropped
result      what is returned: None, or if it is a truth value its contrary
argument    the last one of a call: dropped

A change is a replacement of a piece of the text, so everything else in the file stays as it is. What no test should pin down is left
alone: assertions, annotations, texts for people and logs, and what only type checkers and debuggers read.
"""

import ast
import re
from typing import NamedTuple

KINDS = ("compare", "constant", "condition", "logic", "arithmetic", "statement", "result", "argument")

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
}
UNTESTED_CALLS = {"super", "cast", "NewType", "TypeVar", "isinstance", "getLogger"}
UNTESTED_NAMES = {"__slots__", "__all__", "__match_args__"}
UNTESTED_METHODS = {"__repr__"}
UNTESTED_ARGUMENTS = {"meaning"}
"""What is said of something on a page."""


class Lines(NamedTuple):
    first: int
    last: int


class Mutation(NamedTuple):
    kind: str
    function: str  # that it is in, such as `Session.begin`; "" outside of all functions
    line: int
    start: int  # of the piece in the bytes of the text
    end: int
    replacement: bytes
    statement_lines: Lines  # of the statement that it is in, or of its head if others are inside

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.replacement + source[self.end :]


def mutations(source: bytes) -> list[Mutation]:
    """Some of them may be no Python: see `is_valid`."""
    found = _Finder(source)
    found.visit(ast.parse(source))
    return found.mutations


def is_valid(source: bytes) -> bool:
    """Whether Python can read it: with an argument dropped, for example, it may not."""
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class _Finder(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self.mutations: list[Mutation] = []
        self._source = source
        self._line_starts = [0, *[match.end() for match in re.finditer(b"\n", source)]]
        self._scopes: list[str] = []
        self._statement = Lines(0, 0)
        self._is_in_function = False
        self._returns_truth = False

    # Where it is

    def _position(self, line: int, column: int) -> int:
        return self._line_starts[line - 1] + column

    def _bounds(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._position(node.lineno, node.col_offset), self._position(node.end_lineno, node.end_col_offset)

    def _text(self, node: ast.AST) -> bytes:
        start, end = self._bounds(node)
        return self._source[start:end]

    def _replace(self, kind: str, start: int, end: int, replacement: bytes) -> None:
        line = self._source.count(b"\n", 0, start) + 1
        function = ".".join(self._scopes) if self._is_in_function else ""
        self.mutations.append(Mutation(kind, function, line, start, end, replacement, self._statement))

    def _replace_node(self, kind: str, node: ast.AST, replacement: bytes) -> None:
        self._replace(kind, *self._bounds(node), replacement)

    def _replace_between(self, kind: str, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """The operator, among the spaces, parentheses and comments between its operands."""
        start, end = self._bounds(left)[1], self._bounds(right)[0]
        operator = re.escape(old.encode()).replace(rb"\ ", rb"\s+")
        for match in re.finditer(rb"#.*|(%s)" % operator, self._source[start:end]):
            if match[1]:
                self._replace(kind, start + match.start(), start + match.end(), new.encode())
                return

    # What is visited

    def visit(self, node: ast.AST) -> None:
        before = self._statement
        if isinstance(node, ast.stmt):
            self._statement = _head(node)
        super().visit(node)
        self._statement = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in UNTESTED_METHODS or any(_name(each) == "overload" for each in node.decorator_list):
            return
        before = self._is_in_function, self._returns_truth
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        self._scopes.append(node.name)
        self._is_in_function = True
        self._returns_truth = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()
        self._is_in_function, self._returns_truth = before

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(_name(base) in ("Protocol", "TypedDict") for base in node.bases):
            return
        self._scopes.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._scopes.pop()

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if _name(node.annotation) == "TypeAlias":
            return
        if node.value is not None:
            self._drop_assignment(node, [node.target])
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Name) and target.id in UNTESTED_NAMES for target in node.targets):
            return
        self._drop_assignment(node, node.targets)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace_node("statement", node, b"pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace_node("statement", node, b"pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace_node("statement", node, b"pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace_node("statement", node, b"pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        """What it says and is caused by is not changed: most of it is text."""
        self._replace_node("statement", node, b"pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            if isinstance(node.value.func, ast.Attribute) and _name(node.value.func.value) == "log":
                return
            self._replace_node("statement", node, b"pass")
            self.visit(node.value)
        elif not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        if self._returns_truth:
            self._replace_node("result", node.value, b"not (" + self._text(node.value) + b")")
        elif not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._replace_node("result", node.value, b"None")
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if _name(node.test) != "TYPE_CHECKING":
            self._negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self._replace_between("compare", left, right, *COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._replace_between("logic", left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        operator = ARITHMETIC.get(type(node.op))
        if operator is not None and not (_is_text(node.left) or _is_text(node.right)):
            self._replace_between("arithmetic", node.left, node.right, *operator)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace_node("constant", node, repr(not node.value).encode())
        elif isinstance(node.value, int):
            self._replace_node("constant", node, str(node.value + 1).encode())

    def visit_Call(self, node: ast.Call) -> None:
        if _name(node.func) in UNTESTED_CALLS:
            return
        if any(keyword.arg == "strict" for keyword in node.keywords):
            # Of `zip`: an assertion.
            for argument in node.args:
                self.visit(argument)
            return
        arguments: list[ast.AST] = [*node.args, *node.keywords]
        arguments.sort(key=self._bounds)
        if arguments and not (isinstance(arguments[-1], ast.GeneratorExp) or _is_untested(node, arguments[-1])):
            start = self._bounds(arguments[-2])[1] if len(arguments) > 1 else self._bounds(arguments[-1])[0]
            self._replace("argument", start, self._bounds(arguments[-1])[1], b"")
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        self._replace_node("condition", test, b"not (" + self._text(test) + b")")

    def _drop_assignment(self, node: ast.stmt, targets: list[ast.expr]) -> None:
        """A name that is never set would fail wherever it is used."""
        if self._is_in_function and all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets):
            self._replace_node("statement", node, b"pass")


def _head(node: ast.stmt) -> Lines:
    inside = [each.lineno for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
    last = min(inside) - 1 if inside else node.end_lineno or node.lineno
    return Lines(node.lineno, max(node.lineno, last))


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_untested(call: ast.Call, argument: ast.AST) -> bool:
    """A text for people, or the order of bytes, which is written out and would be the same without."""
    if isinstance(argument, ast.keyword) and argument.arg in UNTESTED_ARGUMENTS:
        return True
    is_big = isinstance(argument, ast.Constant) and argument.value == "big"
    return is_big and _name(call.func) in ("to_bytes", "from_bytes")


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )
