import ast
from pathlib import Path

from twinbus.model import wire_names

SOURCES = Path(wire_names.__file__).parents[1]
# Names of error conditions are with the errors, where one may read like the name of an operation.
OWNERS = {SOURCES / "model" / "wire_names.py", SOURCES / "errors.py"}


def literals(source: Path) -> set[str]:
    constants = [node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant)]
    return {
        value.decode("latin-1") if isinstance(value, bytes) else value
        for value in constants
        if isinstance(value, str | bytes)
    }


def test_every_name_of_the_wire_is_spelled_once() -> None:
    names = {value for name, value in vars(wire_names).items() if name.isupper() and isinstance(value, str)}
    spelled = {
        str(source.relative_to(SOURCES)): literals(source) & names
        for source in SOURCES.rglob("*.py")
        if source not in OWNERS
    }
    assert {source: found for source, found in spelled.items() if found} == {}


def test_names_of_the_wire_differ() -> None:
    names = [value for name, value in vars(wire_names).items() if name.isupper() and isinstance(value, str)]
    assert len(set(names)) == len(names)
