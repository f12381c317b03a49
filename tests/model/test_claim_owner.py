"""The owner of a claim as a number."""

import pytest

from twinbus.model.claim_owner import owner_name, owner_number


@pytest.mark.parametrize("digits", ["0000000000000001", "7fffffffffffffff", "8000000000000000", "ffffffffffffffff"])
def test_the_name_of_a_query_is_a_number_of_64_bits_and_back(digits: str) -> None:
    number = owner_number(f"spark-{digits}")
    assert number is not None
    assert -(2**63) <= number < 2**63
    assert owner_name(number) == f"spark-{digits}"


@pytest.mark.parametrize(
    "name", ["", "job", "spark-", "spark-0000000000000000", "spark-ABCDEFABCDEFABCD", "spark-00000000000000011"]
)
def test_any_other_name_is_no_number(name: str) -> None:
    assert owner_number(name) is None
