"""Very many messages whose time has come at once: in pieces, one after the other, without waiting for the next tick."""

import pytest

from tests.broker.test_schedule import schedule
from twinbus.broker.fragment.upkeep import DUE_COUNT_MAX, SWEEP_COUNT_MAX
from twinbus.broker.wakeups import OneByOne
from twinbus.model.descriptions import QueueDescription
from twinbus.store.reads import DueRows
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Simulation


def once(sim: Simulation) -> None:
    """A single tick, and everything that stores answer after it."""
    for broker in sim.brokers:
        broker.tick(sim.now)
    sim.run()


def test_all_that_is_due_becomes_active_after_one_tick() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    count = 3 * DUE_COUNT_MAX + 1
    schedule(sim, queue, *[str(number) for number in range(count)])
    sim.clock.advance(10_000)
    once(sim)
    assert queue.main.counts().active == count


def test_all_that_has_expired_is_gone_after_one_tick() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number), time_to_live=5_000) for number in range(3 * SWEEP_COUNT_MAX + 1)])
    sim.clock.advance(6_000)
    once(sim)
    assert queue.main.counts().active == 0


def test_fragments_of_a_store_take_turns() -> None:
    sim = Simulation()
    queues = [sim.queue(QueueDescription(name)) for name in ("a", "b")]
    for queue in queues:
        schedule(sim, queue, *[str(number) for number in range(2 * DUE_COUNT_MAX)])
    sim.clock.advance(10_000)
    asked = list[object]()
    (broker,) = sim.brokers
    query = broker.query

    def noticed(read: object, done: object) -> None:
        if isinstance(read, DueRows):
            asked.append(read.fragment)
        query(read, done)  # type: ignore[arg-type]

    broker.query = noticed  # type: ignore[method-assign]
    once(sim)
    keys = [queue.main.fragments[0].key for queue in queues]
    assert asked[:4] == [*keys, *keys]


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_store_that_is_lost_in_between_does_not_end_the_upkeep(is_asked: bool) -> None:
    sim = Simulation()
    queues = [sim.queue(QueueDescription(f"q{number}")) for number in range(1_500)]
    for queue in queues:
        schedule(sim, queue, "m")
    sim.clock.advance(10_000)
    if is_asked:
        for broker in sim.brokers:
            broker.tick(sim.now)
    sim.lose_store(0)
    sim.return_store(0)
    once(sim)
    assert [queue.main.counts().active for queue in queues] == [1] * len(queues)


def test_one_piece_at_a_time_in_the_order_asked_for() -> None:
    line, begun = OneByOne(), list[str]()
    for name in ("first", "second", "third"):
        line.add(lambda name=name: begun.append(name))  # type: ignore[misc]
    assert begun == ["first"]
    line.done()
    assert begun == ["first", "second"]
    line.done()
    line.done()
    line.add(lambda: begun.append("fourth"))
    assert begun == ["first", "second", "third", "fourth"]


def test_a_piece_that_breaks_does_not_stop_the_line(caplog: pytest.LogCaptureFixture) -> None:
    line, begun = OneByOne(), list[str]()

    def broken() -> None:
        raise ValueError("broken")

    line.add(broken)
    line.add(lambda: begun.append("next"))
    assert begun == ["next"]
    caplog.clear()
