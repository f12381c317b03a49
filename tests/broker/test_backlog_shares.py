"""What waits in a backlog queue for which destination, counted by reading it."""

import pytest

from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.operations import backlog_shares
from twinbus.broker.operations.backlog_shares import count_shares
from twinbus.errors import FragmentUnavailable
from twinbus.model.descriptions import QueueDescription
from twinbus.model.message import Message
from twinbus.store.reads import BacklogShares, Share
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation


def ask(sim: Simulation, queue: MessageQueue, from_number: int = 0, count_max: int = 10_000) -> Answer[BacklogShares]:
    answer: Answer[BacklogShares] = Answer()
    count_shares(queue, from_number, count_max, sim.now, answer)
    sim.run()
    return answer


def counts(shares: BacklogShares) -> dict[str | None, int]:
    return {path: share.message_count for path, share in shares.by_destination.items()}


def bound_for(path: object, count: int) -> list[Message]:
    return [make_message(f"{path}-{each}", application_properties={"x-ms-path": path}) for each in range(count)]


def test_messages_are_counted_by_destination_locked_ones_too() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("p/x-servicebus-transfer/0"))
    sim.send(queue, *bound_for("orders", 3), *bound_for("bills", 2), make_message("stray"), *bound_for(7, 1))
    assert len(sim.receiver(queue.main, credit=2).take()) == 2
    shares = ask(sim, queue.main).value
    assert counts(shares) == {"orders": 3, "bills": 2, None: 2}
    assert shares.next_number is None
    assert shares.by_destination["orders"].size_bytes > shares.by_destination["bills"].size_bytes > 0


def test_a_request_looks_at_a_limited_number_and_says_where_to_go_on() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("p/x-servicebus-transfer/0"))
    sim.send(queue, *bound_for("orders", 5))
    first = ask(sim, queue.main, count_max=3).value
    assert counts(first) == {"orders": 3}
    assert first.next_number is not None
    rest = ask(sim, queue.main, first.next_number).value
    assert (counts(rest), rest.next_number) == ({"orders": 2}, None)


def test_a_long_backlog_is_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_shares, "_PAGE_COUNT_MAX", 4)
    sim = Simulation()
    queue = sim.queue(QueueDescription("p/x-servicebus-transfer/0"))
    sim.send(queue, *bound_for("orders", 9), *bound_for("bills", 9))
    assert counts(ask(sim, queue.main).value) == {"orders": 9, "bills": 9}


def test_a_fragment_that_is_ill_is_left_out_and_with_all_of_them_ill_the_request_fails() -> None:
    sim = Simulation(2)
    queue = sim.queue(QueueDescription("p/x-servicebus-transfer/0", enable_partitioning=True))
    for message in bound_for("orders", 16):
        sim.send(queue, message)
    sim.lose_store(1)
    assert counts(ask(sim, queue.main).value) == {"orders": 8}
    sim.lose_store(0)
    assert isinstance(ask(sim, queue.main).error, FragmentUnavailable)


def test_an_empty_queue_has_no_shares() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("p/x-servicebus-transfer/0"))
    shares = ask(sim, queue.main).value
    assert shares == BacklogShares()
    shares.add("orders", 1, 10)
    assert shares.by_destination == {"orders": Share(1, 10)}
