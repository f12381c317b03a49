"""Units: each began 64 KB."""

import pytest

from twinbus.meter.operation import SYPHON_PRODUCT, Cause, Path, path_of, units_of, who_of_agent


@pytest.mark.rule("D1.2")
@pytest.mark.parametrize(
    ("size", "units"), [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (131_072, 2), (131_073, 3), (262_144, 4)]
)
def test_each_began_64_kb_is_a_unit_and_a_message_at_least_one(size: int, units: int) -> None:
    assert units_of(size) == units


@pytest.mark.rule("D1")
def test_everything_is_billed_but_settlements_and_copies() -> None:
    assert {cause for cause in Cause if not cause.is_billed} == {Cause.SETTLE, Cause.COPY}


def test_the_path_is_decided_by_who_acts_and_then_by_where() -> None:
    assert path_of("orders", "anybody") is Path.PRIMARY
    assert path_of("contoso/X-ServiceBus-Transfer/3", "anybody") is Path.BACKLOG
    assert path_of("contoso/x-servicebus-transfer/3", SYPHON_PRODUCT) is Path.SYPHON
    assert path_of("orders", SYPHON_PRODUCT) is Path.SYPHON


def test_an_application_is_known_by_the_first_name_of_its_user_agent() -> None:
    assert who_of_agent("azsdk-python-servicebus/7.15.0 pyamqp/2.0 Python/3.11") == "azsdk-python-servicebus"
    assert who_of_agent("checkout azsdk-python-servicebus/7.15.0") == "checkout"
    assert who_of_agent("") == ""
    assert len(who_of_agent("x" * 1000)) == 64
