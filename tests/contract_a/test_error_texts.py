"""Every text of an error says what to do: all places that make one, read from the sources (docs/contract.md A20)."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from twinbus import errors

SOURCES = Path(errors.__file__).parent
LAYERS = ("broker", "gateway", "management", "model", "http")
ERRORS = {
    name for name, each in vars(errors).items() if inspect.isclass(each) and issubclass(each, errors.MessagingError)
}
ADVICE = re.compile(r"[.;:] ['\w]")
"""What is wrong, and behind it a second sentence or clause that says what to do."""
DEMAND = re.compile(r"\b(must|has to|needs?|at most|supports only)\b|^(Name|Use|Send) ")
"""Or what is wanted, which says both at once."""


def texts(layer: str) -> Iterator[tuple[str, str]]:
    """Places and texts; what is filled in is an X."""
    for path in sorted((SOURCES / layer).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS and node.args:
                text = text_of(node.args[0])
                if text is not None:
                    yield f"{path.relative_to(SOURCES)}:{node.lineno}", text


def text_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return None


@pytest.mark.rule("A20.3")
@pytest.mark.parametrize("layer", LAYERS)
def test_every_text_of_an_error_says_what_to_do(layer: str) -> None:
    found = dict(texts(layer))
    assert len(found) > 5
    assert {place: text for place, text in found.items() if not ADVICE.search(text) and not DEMAND.search(text)} == {}
