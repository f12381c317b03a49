from twinbus.pipeline.syphon.standing import PROBE_AFTER_MAX, Breaker


def opened() -> Breaker:
    breaker = Breaker()
    breaker.round_ended(0, "orders", now=1_000)
    return breaker


def test_a_round_that_met_an_outage_and_moved_nothing_opens_the_breaker() -> None:
    breaker = opened()
    assert breaker.is_open
    assert breaker.path == "orders"


def test_one_destination_that_is_down_does_not_stop_the_others() -> None:
    breaker = Breaker()
    breaker.round_ended(500, "orders", now=0)
    assert not breaker.is_open


def test_a_round_without_outages_leaves_the_breaker_closed() -> None:
    breaker = Breaker()
    breaker.round_ended(0, None, now=0)
    assert not breaker.is_open


def test_the_first_probe_is_a_second_later_and_each_failure_doubles_the_time_up_to_a_limit() -> None:
    breaker = opened()
    assert not breaker.is_probe_due(1_999)
    assert breaker.is_probe_due(2_000)
    waits, now = [], 2_000
    for _ in range(7):
        breaker.probe_failed(now)
        waits.append(breaker.probe_at - now)
        now = breaker.probe_at
    assert waits == [2_000, 4_000, 8_000, 16_000, PROBE_AFTER_MAX, PROBE_AFTER_MAX, PROBE_AFTER_MAX]


def test_a_probe_that_is_answered_closes_the_breaker_and_the_next_outage_is_probed_soon_again() -> None:
    breaker = opened()
    breaker.probe_failed(2_000)
    breaker.probe_answered()
    assert not breaker.is_open
    breaker.round_ended(0, "orders", now=50_000)
    assert breaker.probe_at == 51_000
