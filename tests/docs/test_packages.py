"""What packages say of themselves is complete: the docstring of one names its modules (docs/ARCHITECTURE.md)."""

import ast
import re
from pathlib import Path

import pytest

import twinbus

SOURCE = Path(twinbus.__file__).parent
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
LISTED = ("amqp", "broker", "definitions", "gateway", "management", "meter", "model", "server", "store")


def docstring_of(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


def modules_of(package: Path) -> set[str]:
    files = {path.stem for path in package.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in package.glob("*/__init__.py")}


def test_every_package_says_what_it_is_for() -> None:
    assert [str(package.relative_to(SOURCE)) for package in PACKAGES if not docstring_of(package)] == []


@pytest.mark.parametrize("name", LISTED)
def test_a_package_of_the_server_says_which_module_does_what(name: str) -> None:
    for package in [each for each in PACKAGES if SOURCE / name in (each, *each.parents)]:
        named = set(re.findall(r"\w+", docstring_of(package)))
        assert modules_of(package) - named == set(), f"add to the docstring of {package.relative_to(SOURCE)}"
