"""Which tests prove which rule of the contract: the marks in the test files in, a page out.

python -m tests.contract_a.coverage > docs/contract-coverage.md
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT / "docs" / "contract.md"
PAGE = ROOT / "docs" / "contract-coverage.md"

HEADING = re.compile(r"^(?P<level>###?) (?P<text>(?P<name>[A-D]\d*)\b.*)$", re.MULTILINE)

HEAD = """# Which test proves which rule

The rules are on the page of the [contract](contract.md). `make docs` generates this page from the marks `@pytest.mark.rule("A5")` in the
tests; a test checks that it is current and that every rule has a test.
"""


@cache
def headings() -> dict[str, str]:
    """The headings of the contract by what sources and tests cite: "A5" of a rule, "D" of a whole part."""
    return {found["name"]: found["text"] for found in HEADING.finditer(CONTRACT.read_text())}


@cache
def rules() -> list[str]:
    """The names of the numbered rules."""
    return [name for name in headings() if len(name) > 1]


@cache
def marked_tests() -> dict[str, list[str]]:
    """Places of tests by rule, in the order of files and lines."""
    found: dict[str, list[str]] = {rule: [] for rule in rules()}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for rule, name in _marks_in(ast.parse(file.read_text())):
            found.setdefault(rule, []).append(f"{file.relative_to(ROOT).as_posix()}::{name}")
    return found


def _marks_in(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.rule":
                    yield from ((ast.literal_eval(name), node.name) for name in mark.args)


def page() -> str:
    lines = [HEAD]
    for rule in rules():
        lines.append(f"\n## {headings()[rule]}\n\n")
        lines += [f"- `{place.rpartition('::')[2]}` ({place.partition('::')[0]})\n" for place in marked_tests()[rule]]
    return "".join(lines)


if __name__ == "__main__":
    print(page(), end="")
