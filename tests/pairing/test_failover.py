import pytest

from twinbus.clock import NEVER
from twinbus.pairing.deciding.failover import FailoverDetector, Route
from twinbus.pairing.events import Availability

NOON = 1_800_000_000_000
SECOND = 1000
DOWN = ConnectionError("down")
GONE = LookupError("gone")


def detector(interval_s: int = 60, ping_s: int = 30, ramp_s: int = 0) -> FailoverDetector:
    return FailoverDetector(interval_s * SECOND, ping_s * SECOND, ramp_s * SECOND)


def failed_over(ramp_s: int = 0) -> FailoverDetector:
    made = detector(ramp_s=ramp_s)
    made.primary_failed(DOWN, NOON)
    made.advance(NOON + 60 * SECOND)
    return made


@pytest.mark.rule("B2.1")
def test_a_healthy_entity_is_sent_to_at_the_primary() -> None:
    assert detector().route(NOON) is Route.PRIMARY
    assert detector().is_untroubled


@pytest.mark.rule("B3.3")
def test_failures_inside_the_failover_interval_stay_at_the_primary() -> None:
    entity = detector()
    entity.primary_failed(DOWN, NOON)
    assert entity.route(NOON + 60 * SECOND - 1) is Route.PRIMARY
    assert entity.availability() is Availability.FAILING


@pytest.mark.rule("B3.4")
def test_the_entity_fails_over_when_the_interval_passes_without_a_success() -> None:
    entity = detector()
    entity.primary_failed(DOWN, NOON)
    assert entity.route(NOON + 60 * SECOND) is Route.BACKLOG
    assert entity.availability() is Availability.FAILED_OVER


@pytest.mark.rule("B3.1")
def test_only_the_first_failure_of_a_row_starts_the_timer() -> None:
    entity = detector()
    assert entity.primary_failed(DOWN, NOON)
    assert not entity.primary_failed(DOWN, NOON + 59 * SECOND)
    assert entity.route(NOON + 60 * SECOND) is Route.BACKLOG


@pytest.mark.rule("B3.2")
def test_a_success_inside_the_failover_interval_restarts_the_count() -> None:
    entity = detector()
    entity.primary_failed(DOWN, NOON)
    entity.primary_answered()
    entity.primary_failed(DOWN, NOON + 59 * SECOND)
    assert entity.route(NOON + 118 * SECOND) is Route.PRIMARY
    assert entity.route(NOON + 119 * SECOND) is Route.BACKLOG


@pytest.mark.rule("B3.4")
def test_an_interval_of_zero_fails_over_on_the_first_failure() -> None:
    entity = detector(interval_s=0)
    entity.primary_failed(DOWN, NOON)
    assert entity.route(NOON) is Route.BACKLOG


@pytest.mark.rule("B3")
def test_a_late_success_does_not_end_a_failover() -> None:
    entity = failed_over()
    entity.primary_answered()
    assert entity.route(NOON + 61 * SECOND) is Route.BACKLOG
    assert not entity.is_untroubled


@pytest.mark.rule("B7.1")
def test_the_first_ping_is_due_one_ping_interval_after_failover_and_then_every_interval() -> None:
    entity = failed_over()
    assert entity.next_action_at() == NOON + 90 * SECOND
    assert not entity.start_ping(NOON + 90 * SECOND - 1)
    assert entity.start_ping(NOON + 90 * SECOND)
    entity.ping_failed(DOWN, is_lasting=False)
    assert entity.next_action_at() == NOON + 120 * SECOND


@pytest.mark.rule("B7")
def test_there_is_one_ping_at_a_time() -> None:
    entity = failed_over()
    assert entity.start_ping(NOON + 90 * SECOND)
    assert not entity.start_ping(NOON + 300 * SECOND)
    assert entity.next_action_at() == NEVER


@pytest.mark.rule("B7.2")
def test_a_ping_that_gets_through_makes_the_entity_healthy_and_ends_the_pings() -> None:
    entity = failed_over()
    entity.start_ping(NOON + 90 * SECOND)
    assert entity.recover(NOON + 91 * SECOND)
    assert entity.is_untroubled
    assert entity.next_action_at() == NEVER
    assert not entity.start_ping(NOON + 900 * SECOND)


@pytest.mark.rule("B7.3")
def test_a_lasting_ping_error_makes_sends_raise_it_until_the_error_changes() -> None:
    entity = failed_over()
    entity.start_ping(NOON + 90 * SECOND)
    entity.ping_failed(GONE, is_lasting=True)
    assert entity.route(NOON + 91 * SECOND) is Route.REFUSED
    assert entity.availability() is Availability.REFUSING
    entity.start_ping(NOON + 120 * SECOND)
    entity.ping_failed(DOWN, is_lasting=False)
    assert entity.route(NOON + 121 * SECOND) is Route.BACKLOG


@pytest.mark.rule("B7")
def test_a_ramp_brings_a_rising_share_of_sends_back_to_the_primary() -> None:
    entity = failed_over(ramp_s=10)
    entity.recover(NOON + 100 * SECOND)
    assert entity.availability() is Availability.RECOVERING
    assert entity.route(NOON + 101 * SECOND, draw=0.9) is Route.BACKLOG
    assert entity.route(NOON + 101 * SECOND, draw=0.05) is Route.PRIMARY
    assert entity.route(NOON + 109 * SECOND, draw=0.8) is Route.PRIMARY
    assert entity.route(NOON + 110 * SECOND, draw=0.99) is Route.PRIMARY
    assert entity.is_untroubled


@pytest.mark.rule("B7")
def test_an_outage_during_the_ramp_starts_the_timer_again() -> None:
    entity = failed_over(ramp_s=10)
    entity.recover(NOON + 100 * SECOND)
    entity.primary_failed(DOWN, NOON + 101 * SECOND)
    assert entity.route(NOON + 161 * SECOND) is Route.BACKLOG
    assert entity.recovered_at is None
