"""Which tests prove which rule of the contract: the marks in the test files in, a page out.

python -m tests.contract_a.coverage > docs/contract-coverage.md
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.contract_a.rules import PARTS, RULES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contract-coverage.md"

HEAD = """# Which test proves which rule

Made from the marks `@pytest.mark.rule("A5")` in the tests by `make docs`; a test checks that it is current and that no rule is
without one.
"""


@cache
def marked_tests() -> dict[str, list[str]]:
    """Places of tests by rule, in the order of files and lines."""
    found: dict[str, list[str]] = {rule: [] for rule in RULES}
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
    for part in PARTS:
        lines.append(f"\n## {part.title}\n")
        for rule, text in part.rules.items():
            lines.append(f"\n### {rule}\n\n{text}.\n\n")
            lines += [
                f"- `{place.rpartition('::')[2]}` ({place.partition('::')[0]})\n" for place in marked_tests()[rule]
            ]
    return "".join(lines)


if __name__ == "__main__":
    print(page(), end="")
