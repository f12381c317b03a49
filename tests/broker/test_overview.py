"""What lies in a queue, fragment by fragment or by destination, without its messages."""

import pytest

from twinbus.broker.commands import (
    Claim,
    CountShares,
    DeleteDeferred,
    FindTimes,
    FragmentHead,
    ListFragments,
    Purge,
    ranges_of,
)
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.operations import overview
from twinbus.errors import ArgumentError, FragmentUnavailable
from twinbus.model.descriptions import QueueDescription
from twinbus.model.message import Message
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.reads import BacklogShares, Rows, Scan, Share
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation


def ask(sim: Simulation, queue: MessageQueue, from_number: int = 0, count_max: int = 10_000) -> Answer[BacklogShares]:
    return sim.ask(queue, CountShares(from_number, count_max))


def counts(shares: BacklogShares) -> dict[str | None, int]:
    return {path: share.message_count for path, share in shares.by_destination.items()}


def bound_for(path: object, count: int) -> list[Message]:
    return [make_message(f"{path}-{each}", application_properties={"x-ms-path": path}) for each in range(count)]


def test_times_are_found_in_several_fragments_at_once() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    sent = {}
    for number in range(32):
        sim.send(queue, make_message(str(number)))
        sent[number] = sim.now
        sim.advance(7)
    heads = [head for head in sim.ask(queue.main, ListFragments()).value if head.active]
    numbers = [number for head in reversed(heads) for number in (head.last_number + 1, head.first_number)]
    found = sim.ask(queue.main, FindTimes(numbers)).value
    assert [each is None for each in found] == [True, False] * len(heads)
    assert {each.number for each in found if each is not None} == {head.first_number for head in heads}
    assert {each.enqueued_at for each in found if each is not None} <= set(sent.values())
    assert min(each.enqueued_at for each in found if each is not None) == sent[0]


def test_a_number_of_a_fragment_that_is_not_there_is_refused_and_a_lost_one_reports_it() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, make_message("m"))
    assert isinstance(sim.ask(queue.main, FindTimes([1 << SEQUENCE_BITS])).error, ArgumentError)
    sim.lose_store(0)
    assert isinstance(sim.ask(queue.main, FindTimes([1])).error, FragmentUnavailable)


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
    monkeypatch.setattr(overview, "_PAGE_COUNT_MAX", 4)
    sim = Simulation()
    queue = sim.queue(QueueDescription("p/x-servicebus-transfer/0"))
    sim.send(queue, *bound_for("orders", 9), *bound_for("bills", 9))
    assert counts(ask(sim, queue.main).value) == {"orders": 9, "bills": 9}


def test_a_fragment_that_is_unhealthy_is_left_out_and_with_all_of_them_unhealthy_the_request_fails() -> None:
    sim = Simulation(2)
    queue = sim.queue(QueueDescription("p/x-servicebus-transfer/0", enable_partitioning=True))
    for message in bound_for("orders", 16):
        sim.send(queue, message)
    sim.lose_store(1)
    assert counts(ask(sim, queue.main).value) == {"orders": 8}
    sim.lose_store(0)
    assert isinstance(ask(sim, queue.main).error, FragmentUnavailable)


def test_a_fragment_that_is_lost_while_it_is_counted_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_PAGE_COUNT_MAX", 1)
    sim = Simulation(2)
    queue = sim.queue(QueueDescription("p/x-servicebus-transfer/0", enable_partitioning=True))
    for message in bound_for("orders", 64):
        sim.send(queue, message)
    answer: Answer[BacklogShares] = Answer()
    queue.main.ask(CountShares(0, 100), sim.now, answer)
    sim.ports[0].step()  # one message of its first fragment
    sim.lose_store(0)
    sim.run()
    assert counts(answer.value) == {"orders": 33}


def test_an_empty_queue_has_no_shares() -> None:
    sim = Simulation()
    queue = sim.queue(QueueDescription("p/x-servicebus-transfer/0"))
    shares = ask(sim, queue.main).value
    assert shares == BacklogShares()
    shares.add("orders", 1, 10)
    assert shares.by_destination == {"orders": Share(1, 10)}


def test_heads_tell_where_every_fragment_begins_and_ends() -> None:
    sim = Simulation(4)
    queue = sim.queue(QueueDescription("q", enable_partitioning=True))
    for number in range(40):
        sim.send(queue, make_message(f"m{number}"))
    numbers = [number for index in range(4) for number in sim.ask(queue.main, Claim(10, fragment_index=index)).value]
    assert sorted(sim.ask(queue.main, DeleteDeferred(ranges_of(numbers))).value) == sorted(numbers)
    sim.lose_store(3)
    found = sim.ask(queue.main, ListFragments()).value
    assert [head.fragment for head in found] == list(range(16))
    lost = [head for head in found if not head.is_available]
    assert lost == [FragmentHead(index, False, 0, 0, 0, 0, 0, 0, 3) for index in (3, 7, 11, 15)]
    base = 8 << SEQUENCE_BITS
    count = found[8].active
    assert count in (2, 3)
    assert found[8] == FragmentHead(8, True, base + 1, base + count, count, 0, 0, found[8].size_bytes, 0)
    assert [head.store for head in found[:5]] == [0, 1, 2, 3, 0]
    empty = [head for head in found if head.is_available and not head.active]
    assert empty
    assert all(head.first_number == head.last_number + 1 for head in empty)


def test_where_a_fragment_begins_is_looked_for_behind_what_was_gone_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are gone lie in the tables until they are tidied up: a reader that polls must not pass over all of them each time."""
    sim = Simulation(1)
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(f"m{number}") for number in range(20)])
    asked: list[int] = []
    run = Scan.run

    def noted(scan: Scan, store: MessagingStore) -> Rows:
        asked.append(scan.after)
        return run(scan, store)

    monkeypatch.setattr(Scan, "run", noted)

    def first() -> int:
        asked.clear()
        return sim.ask(queue.main, ListFragments()).value[0].first_number

    assert (first(), asked) == (1, [0])
    sim.ask(queue.main, DeleteDeferred(ranges_of(sim.ask(queue.main, Claim(15)).value)))
    assert (first(), asked) == (16, [0])
    assert (first(), asked) == (16, [15])
    sim.ask(queue.main, Purge(5, sim.now))
    assert (first(), asked) == (21, [15])
    sim.send(queue, make_message("more"))
    assert (first(), asked) == (21, [20])
    sim.lose_store(0)
    sim.return_store(0)
    assert (first(), asked) == (21, [0])
