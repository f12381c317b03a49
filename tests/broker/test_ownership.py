"""The state of a fragment has one writer: the module of the class it belongs to. And one place reads the clock.

The sources of the broker are parsed. What belongs to an owner is read from its class: whatever `__init__` and `_clear`
set. Anything else that assigns such an attribute, or changes such a container, is a violation, with one
exception: an attribute of `self` is always the class's own.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import twinbus.broker

BROKER = Path(twinbus.broker.__file__).parent

OWNERS = {
    "Fragment": "fragment/fragment.py",
    "Tally": "fragment/tally.py",
    "Agenda": "fragment/agenda.py",
    "Lane": "fragment/lane.py",
    "LockTable": "fragment/locks.py",
    "DuplicateHistory": "fragment/duplicates.py",
    "MessageSessions": "fragment/message_sessions.py",
}
CONTAINERS = {"deque", "dict", "list", "set"}
CHANGING = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "insert"),
    *(
        "intersection_update",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "rotate",
        "setdefault",
        "sort",
        "update",
    ),
}

CLOCK_READERS = {
    "MessageBroker._committed",
    "MessageBroker._answered",
    "MessageBroker._fail",
    "MessageBroker._loaded",
    "LongWork._step",
}
"""Where the store has answered, or does not, and where work goes on: the time of the call is past by then."""


# What belongs to whom


def class_in(path: Path, name: str) -> ast.ClassDef:
    tree = ast.parse(path.read_text())
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def owned_attributes(owner: ast.ClassDef) -> dict[str, bool]:
    """Its attributes; true for those that are containers."""
    found: dict[str, bool] = {}
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name in ("__init__", "_clear"):
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
                    found.setdefault(node.attr, False)
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                    found[node.target.attr] = is_container(node.annotation)
    return found


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_container(annotation: ast.expr) -> bool:
    return (
        isinstance(annotation, ast.Subscript)
        and isinstance(annotation.value, ast.Name)
        and annotation.value.id in CONTAINERS
    )


def all_owned() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Attributes, and those of them that are containers, with the modules that may write them."""
    attributes: dict[str, set[str]] = {}
    containers: dict[str, set[str]] = {}
    for name, module in OWNERS.items():
        for attribute, is_containing in owned_attributes(class_in(BROKER / module, name)).items():
            attributes.setdefault(attribute, set()).add(module)
            if is_containing:
                containers.setdefault(attribute, set()).add(module)
    return attributes, containers


ATTRIBUTES, CONTAINING = all_owned()


# What a module does


def violations(source: str, module: str) -> list[str]:
    tree = ast.parse(source)
    found = [*_assignments(tree, module), *_container_changes(tree, module)]
    return [f"{module}:{node.lineno} {text}" for node, text in found]


def _assignments(tree: ast.AST, module: str) -> Iterator[tuple[ast.expr, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and not is_self(node.value):
            owners = ATTRIBUTES.get(node.attr)
            if owners is not None and module not in owners:
                yield node, f"assigns .{node.attr} of {sorted(owners)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
            target, name = node.args[:2]
            if not is_self(target) and (not isinstance(name, ast.Constant) or name.value in ATTRIBUTES):
                yield node, f"calls {node.func.id}"


def _container_changes(tree: ast.AST, module: str) -> Iterator[tuple[ast.expr, str]]:
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef):
            aliases = _aliases(scope)
            for node in ast.walk(scope):
                changed = _changed_container(node)
                attribute = _container_of(changed, aliases) if changed is not None else None
                if attribute is not None and module not in CONTAINING[attribute]:
                    assert changed is not None
                    yield changed, f"changes .{attribute} of {sorted(CONTAINING[attribute])}"


def _changed_container(node: ast.AST) -> ast.expr | None:
    """What is changed by a method of containers, or by assigning or deleting an item."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
        return node.func.value
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return node.value
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return node.target
    return None


def _container_of(node: ast.expr, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Attribute) and node.attr in CONTAINING and not is_self(node.value):
        return node.attr
    return aliases.get(node.id) if isinstance(node, ast.Name) else None


def _aliases(function: ast.FunctionDef) -> dict[str, str]:
    """Local names for containers that belong to somebody: `held = fragment.locks.held`."""
    found: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    attribute = _container_of(value, {})
                    if isinstance(name, ast.Name) and attribute is not None:
                        found[name.id] = attribute
    return found


def clock_readings(source: str) -> list[str]:
    """The functions that call `now()` of something, by their qualified names."""
    found: list[str] = []

    def look(node: ast.AST, path: tuple[str, ...]) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            path = (*path, node.name)
        if isinstance(node, ast.Attribute) and node.attr == "now":
            found.append(".".join(path))
        if isinstance(node, ast.Name) and node.id in ("datetime", "monotonic", "time"):
            found.append(".".join(path))
        for child in ast.iter_child_nodes(node):
            look(child, path)

    look(ast.parse(source), ())
    return found


def modules() -> list[str]:
    return sorted(path.relative_to(BROKER).as_posix() for path in BROKER.rglob("*.py"))


# The rules


@pytest.mark.parametrize("module", modules())
def test_only_its_owner_writes_the_state_of_a_fragment(module: str) -> None:
    assert violations((BROKER / module).read_text(), module) == []


def test_only_the_message_broker_reads_the_clock() -> None:
    readings = {name for module in modules() for name in clock_readings((BROKER / module).read_text())}
    assert readings == CLOCK_READERS


@pytest.mark.parametrize("module", modules())
def test_only_a_decision_commits_rows(module: str) -> None:
    """`Fragment.commit` is for `Decision`, and `MessageBroker.commit` for fragments as a whole."""
    calls = [
        ast.unparse(node.func.value)
        for node in ast.walk(ast.parse((BROKER / module).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "commit"
    ]
    allowed = {
        "fragment/decision.py": {"fragment"},
        "fragment/fragment.py": {"self.broker"},
        "message_broker.py": {"self", "self._port"},
        "operations/fragment_changes.py": {"broker"},
        "transaction.py": {"self._work"},  # a transaction, whose commit is that of its decisions
        "operations/steps.py": {"broker"},  # CommitEach: the fragments of an entity are created and deleted
    }
    assert {call for call in calls if call != "decision"} <= allowed.get(module, set())


# The checker


@pytest.mark.parametrize(
    "statement",
    [
        "fragment.is_loaded = True",
        "fragment.tally.active_count -= 1",
        "fragment.agenda.next_due, other = now, 1",
        "lane.first = 3",
        "del fragment.lane",
        "setattr(fragment, name, 1)",
        "fragment.locks.held.pop(token)",
        "fragment.locks.enlisted.update(tokens)",
        "fragment.locks.deferred.discard(7)",
        "del fragment.locks.held[token]",
        "fragment.lane.ready.clear()",
        "held = fragment.locks.held; del held[token]",
        "ready, other = fragment.lane.ready, 1; ready.append(message)",
        "enlisted = fragment.locks.enlisted; enlisted |= tokens",
    ],
)
def test_a_write_from_elsewhere_is_found(statement: str) -> None:
    source = f"def settle(fragment, lane, token, tokens, name, message, now):\n    {statement}\n"
    assert len(violations(source, "entity/placement.py")) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "self.lane = lane",
        "count = fragment.tally.active_count",
        "held = fragment.locks.held.get(token)",
        "fragment.locks.enlist(tokens)",
        "message.state = 1",
        "names = []; names.append(token)",
    ],
)
def test_reading_and_what_is_ones_own_are_no_violations(statement: str) -> None:
    source = f"def settle(self, fragment, lane, token, tokens, message):\n    {statement}\n"
    assert violations(source, "entity/placement.py") == []


def test_what_belongs_to_a_fragment_is_read_from_its_class() -> None:
    assert {"tally", "lane", "locks", "is_loaded", "_in_flight", "_watcher_ref"} <= ATTRIBUTES.keys()
    assert {"active_count", "next_due", "ready", "held", "next_end"} <= ATTRIBUTES.keys()
    assert {"held", "enlisted", "deferred", "ready", "_in_flight"} <= CONTAINING.keys()


def test_a_clock_that_is_read_elsewhere_is_found() -> None:
    source = "class Forwarder:\n    def run_ended(self):\n        self.pump(self.broker.clock.now())\n"
    assert clock_readings(source) == ["Forwarder.run_ended"]
