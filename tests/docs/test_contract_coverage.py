"""Every rule of the contract has a test, and the page that says which is current."""

import pytest

from tests.contract_a.coverage import PAGE, marked_tests, page
from tests.contract_a.rules import RULES


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_the_contract_has_a_test(rule: str) -> None:
    assert marked_tests()[rule]


def test_no_test_claims_a_rule_that_does_not_exist() -> None:
    assert marked_tests().keys() == RULES.keys()


def test_the_page_of_rules_and_tests_is_current() -> None:
    assert PAGE.read_text() == page(), "run: make docs"
