"""Which tests prove which statement of the contract: the contract and the marks in the test files in, two pages out.

    ### A4 A store is down             a rule, which `rule("A4")` marks as a whole
    - **A4.2** A pinned message …      a statement of it, which `rule("A4.2")` marks
      *Held by* `test_a_pinned_…`      written here, below each statement

`python -m tests.contract_a.coverage` writes the names of the tests into docs/contract.md, and all of them into
docs/contract-coverage.md.
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
STATEMENT = re.compile(r"^- \*\*(?P<name>[A-D]\d+\.\d+)\*\* (?P<text>.*(?:\n  (?!\*Held by\*).*)*)$", re.MULTILINE)
HELD_BY = re.compile(r"^  \*Held by\* .*\n", re.MULTILINE)

HEAD = """# Which test proves which statement

The statements are on the page of the [contract](contract.md). `make docs` generates this page, and the names of tests on that one, from
the marks `@pytest.mark.rule("A5.3")` in the tests; a test checks that both are current, and that no rule and no statement is
without a test. A test may also be marked with a whole rule, `@pytest.mark.rule("A5")`.
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
def statements() -> dict[str, str]:
    """The texts of all statements by their names, in the order of the page."""
    return {found["name"]: " ".join(found["text"].split()) for found in STATEMENT.finditer(CONTRACT.read_text())}


def statements_of(rule: str) -> list[str]:
    return [name for name in statements() if name.partition(".")[0] == rule]


@cache
def marked_tests() -> dict[str, list[str]]:
    """Places of tests by rule or statement, in the order of files and lines."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, test in _marks_in(ast.parse(file.read_text())):
            places = found.setdefault(name, [])
            place = f"{file.relative_to(ROOT).as_posix()}::{test}"
            if place not in places:
                places.append(place)
    return found


def proofs_of(rule: str) -> list[str]:
    """Of the rule itself and of its statements."""
    return [place for name in (rule, *statements_of(rule)) for place in marked_tests().get(name, [])]


def _marks_in(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.rule":
                    yield from ((ast.literal_eval(name), node.name) for name in mark.args)


def contract() -> str:
    """The contract, with the names of tests below its statements."""
    return STATEMENT.sub(_with_tests, HELD_BY.sub("", CONTRACT.read_text()))


def _with_tests(found: re.Match[str]) -> str:
    places = marked_tests().get(found["name"], [])
    if not places:
        return found[0]
    others = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{found[0]}\n  *Held by* `{_name_of(places[0])}`{others}"


def page() -> str:
    lines = [HEAD]
    for rule in rules():
        lines.append(f"\n## {headings()[rule]}\n")
        for name in statements_of(rule):
            lines.append(f"\n**{name}** {statements()[name]}\n\n")
            lines += _listed(marked_tests().get(name, []))
        whole = marked_tests().get(rule, [])
        if whole:
            lines.append("\nThe rule as a whole:\n\n" if statements_of(rule) else "\n")
            lines += _listed(whole)
    return "".join(lines)


def _listed(places: list[str]) -> list[str]:
    return [f"- `{_name_of(place)}` ({place.partition('::')[0]})\n" for place in places]


def _name_of(place: str) -> str:
    return place.rpartition("::")[2]


if __name__ == "__main__":
    CONTRACT.write_text(contract())
    PAGE.write_text(page())
