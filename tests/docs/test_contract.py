"""The contract: every rule and every statement has a test, every citation leads to a rule, and the pages are current."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract_a.coverage import (
    CONTRACT,
    HELD_BY,
    PAGE,
    STATEMENT,
    contract,
    headings,
    marked_tests,
    page,
    proofs_of,
    rules,
    statements,
    statements_of,
)

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("src", "tests", "bench") for path in sorted((ROOT / folder).rglob("*.py"))]
CITATION = re.compile(r"\bcontract(?:\.md)?,? (?=[A-D]\d|[A-D]\b)((?:[A-D]\d*(?:, | and | to )?)+)")
CITED_PAGE = re.compile(r"(?<![/\"])\b(?:protocol|design|spark|cluster|style)\.md\b")


def citations(text: str) -> Iterator[str]:
    for found in CITATION.findall(text):
        yield from re.findall(r"[A-D]\d*", found)


@pytest.mark.parametrize("rule", rules())
def test_every_rule_of_the_contract_has_a_test(rule: str) -> None:
    assert proofs_of(rule)


@pytest.mark.parametrize("statement", statements())
def test_every_statement_of_the_contract_has_a_test(statement: str) -> None:
    assert marked_tests().get(statement), f'mark one with @pytest.mark.rule("{statement}")'


def test_statements_are_numbered_in_the_order_of_their_rules() -> None:
    numbered = [f"{rule}.{place}" for rule in rules() for place in range(1, len(statements_of(rule)) + 1)]
    assert list(statements()) == numbered


@pytest.mark.parametrize("rule", rules())
def test_every_sentence_of_a_rule_is_in_a_statement(rule: str) -> None:
    """So that none is without a test."""
    _, _, rest = CONTRACT.read_text().partition(f"\n### {headings()[rule]}\n")
    body = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
    assert STATEMENT.sub("", HELD_BY.sub("", body)).strip() == ""
    assert statements_of(rule)


def test_no_test_claims_a_rule_or_statement_that_does_not_exist() -> None:
    assert set(marked_tests()) - {*rules(), *statements()} == set()


def test_the_pages_of_statements_and_tests_are_current() -> None:
    assert CONTRACT.read_text() == contract(), "run: make docs"
    assert PAGE.read_text() == page(), "run: make docs"


def test_a_citation_of_several_rules_is_read_as_several() -> None:
    assert list(citations("(contract A2, A3 and B11) contract D; contract D2 to D4")) == [
        "A2",
        "A3",
        "B11",
        "D",
        "D2",
        "D4",
    ]


def test_every_rule_that_a_source_cites_is_on_the_page() -> None:
    cited = {name: path for path in SOURCES for name in citations(path.read_text())}
    assert len(cited) > 15
    assert {name: path.name for name, path in cited.items() if name not in headings()} == {}


@pytest.mark.parametrize("folder", ["src", "tests", "bench"])
def test_sources_cite_only_pages_that_are_in_the_repository(folder: str) -> None:
    shown = [path for path in SOURCES if path.is_relative_to(ROOT / folder) and path != Path(__file__)]
    citing = [path.relative_to(ROOT).as_posix() for path in shown if CITED_PAGE.search(path.read_text())]
    assert citing == []
