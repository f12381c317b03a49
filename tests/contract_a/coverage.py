"""Which tests prove which rule of the contract: the marks in the test files in, a page out.

python -m tests.contract_a.coverage > docs/contract-coverage.md
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "contract-coverage.md"

RULES = {
    "A1": "Fragments: an ordinary entity lives in one store, a partitioned one in 16 fragments; chosen at creation",
    "A2": "The key that pins: session id, else partition key, else message id where duplicates are detected",
    "A3": "Placement: same key, same fragment, always; no key, round robin",
    "A4": "A store is down: keyless messages go on, pinned ones fail, nothing else notices",
    "A5": "Receive: from all fragments, and receivers cannot tell",
    "A6": "Management: changes touch every fragment or fail; counts are summed; Limited where one is ill",
    "A7": "Transactions: one key on a partitioned entity, one entity, all or nothing",
    "A8": "Batches, settlements and deferred receives stay within one fragment",
    "A9": "Message sessions: one receiver, order, state, and what losing the lock means",
    "A10": "Duplicate detection: by message id, on a partitioned entity within its key",
    "A11": "Auto-forwarding of messages and dead letters, and the transfer dead-letter queue",
    "A12": "Peek: active, deferred, scheduled and locked messages, in pages; merged on request",
    "A13": "Scheduling: cancelled by number, a new number on activation",
    "A14": "Time to live: a ceiling, locked messages, the dead-letter queue, deferred messages",
    "A15": "Dead-letter reasons",
    "A16": "Topics: rules, filters and actions",
    "A17": "Entity status and access",
    "A18": "Pings: accepted, counted and never delivered",
}

HEAD = """# Which test proves which rule

Made from the marks `@pytest.mark.rule("A5")` in the tests by `make docs`; a test checks that it is current and that no rule is
without one. The rules are those of partitioned messaging entities.
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
    parts = [HEAD]
    for rule, places in marked_tests().items():
        parts.append(f"\n## {rule}\n\n{RULES[rule]}.\n\n")
        parts += [f"- `{place.rpartition('::')[2]}` ({place.partition('::')[0]})\n" for place in places]
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
