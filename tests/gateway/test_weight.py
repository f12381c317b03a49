"""How much a connection has sent lately."""

from twinbus.gateway.weight import HEAVY_BYTES, LIGHT_BYTES_PER_MS, Weight


def test_a_burst_above_the_limit_makes_a_connection_heavy_and_time_makes_it_light_again() -> None:
    weight = Weight(0)
    weight.add(HEAVY_BYTES, 0)
    assert not weight.is_heavy
    weight.add(1, 0)
    assert weight.is_heavy
    weight.add(0, 1)
    assert not weight.is_heavy


def test_who_sends_a_little_for_days_is_never_heavy() -> None:
    weight = Weight(0)
    for now in range(0, 1_000_000, 1_000):
        weight.add(1_000 * LIGHT_BYTES_PER_MS, now)
        assert not weight.is_heavy
    weight.add(HEAVY_BYTES + 1, 2_000_000)
    assert weight.is_heavy


def test_a_clock_that_is_set_back_makes_nobody_heavy() -> None:
    weight = Weight(3_600_000)
    weight.add(1, 0)
    assert not weight.is_heavy
