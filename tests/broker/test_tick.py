"""When a message broker wants to be woken again."""

from twinbus.broker.message_broker import TICK_INTERVAL_MAX
from twinbus.testing.simulation import Simulation


def test_a_message_broker_with_nothing_to_do_sleeps_for_the_longest_interval() -> None:
    sim = Simulation(1)
    assert sim.brokers[0].tick(sim.now) == sim.now + TICK_INTERVAL_MAX
