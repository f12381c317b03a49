import pytest

from twinbus.clock import NEVER
from twinbus.pairing.partnership import FaultPartner, Partner, Partnership, StopPumps

NOON = 1_800_000_000_000
GRACE = 5000


@pytest.mark.rule("B9.1")
def test_a_fault_of_one_faults_the_other_at_once_and_stops_the_pumps() -> None:
    assert Partnership(GRACE).faulted(Partner.PRIMARY) == [FaultPartner(Partner.SECONDARY), StopPumps()]


@pytest.mark.rule("B9.2")
def test_one_closed_alone_has_five_seconds_until_the_other_is_faulted() -> None:
    partners = Partnership(GRACE)
    assert partners.closed(Partner.SECONDARY, NOON) == []
    assert partners.advance(NOON + 4999) == []
    assert partners.advance(NOON + 5000) == [FaultPartner(Partner.PRIMARY), StopPumps()]
    assert partners.grace_ends_at == NEVER


@pytest.mark.rule("B9.2")
def test_both_closed_within_the_grace_fault_nobody() -> None:
    partners = Partnership(GRACE)
    partners.closed(Partner.PRIMARY, NOON)
    assert partners.closed(Partner.SECONDARY, NOON + 4999) == [StopPumps()]
    assert partners.advance(NOON + 60_000) == []


@pytest.mark.rule("B9")
def test_a_fault_within_the_grace_of_a_close_stops_the_pumps_once() -> None:
    partners = Partnership(GRACE)
    partners.closed(Partner.PRIMARY, NOON)
    assert partners.faulted(Partner.SECONDARY) == [StopPumps()]
    assert partners.faulted(Partner.SECONDARY) == []


@pytest.mark.rule("B9")
def test_closing_twice_does_not_prolong_the_grace() -> None:
    partners = Partnership(GRACE)
    partners.closed(Partner.PRIMARY, NOON)
    partners.closed(Partner.PRIMARY, NOON + 4000)
    assert partners.grace_ends_at == NOON + GRACE
