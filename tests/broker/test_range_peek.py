"""Ranges of one fragment, read in pages."""

from collections.abc import Collection

import pytest

from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.operations import bulk, range_peek
from twinbus.broker.operations.bulk_pages import Numbers
from twinbus.broker.operations.range_peek import RangePage, peek_range
from twinbus.errors import ArgumentError, FragmentUnavailable
from twinbus.model.descriptions import QueueDescription
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation

ALL = tuple(MessageState)


@pytest.fixture
def sim() -> Simulation:
    return Simulation(4)


@pytest.fixture
def queue(sim: Simulation) -> QueueEntity:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number)) for number in range(10)])
    return queue


def asked(
    sim: Simulation,
    queue: QueueEntity,
    first: int,
    last: int,
    count_max: int = 1_000,
    states: Collection[MessageState] = ALL,
) -> Answer[RangePage]:
    answer: Answer[RangePage] = Answer()
    peek_range(queue.main, first, last, count_max, states, sim.now, answer)
    sim.run()
    return answer


def numbers(page: RangePage) -> list[int]:
    return [row.sequence_number for row in page.rows]


def test_a_range_holds_its_ends_and_nothing_beyond(sim: Simulation, queue: QueueEntity) -> None:
    page = asked(sim, queue, 3, 6).value
    assert (numbers(page), page.next_number) == ([3, 4, 5, 6], None)


def test_a_page_says_where_to_go_on_until_the_range_ends(sim: Simulation, queue: QueueEntity) -> None:
    found: list[list[int]] = []
    following: int | None = 1
    while following is not None:
        page = asked(sim, queue, following, 9, count_max=4).value
        found.append(numbers(page))
        following = page.next_number
    assert found == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]


def test_a_page_is_bounded_by_bytes(sim: Simulation, queue: QueueEntity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_peek, "RANGE_BYTES_MAX", 1)
    page = asked(sim, queue, 1, 10).value
    assert (numbers(page), page.next_number) == ([1], 2)


def test_only_the_states_asked_for_are_shown(sim: Simulation, queue: QueueEntity) -> None:
    claimed: Answer[Numbers] = Answer()
    bulk.claim(queue.main, 2, None, None, sim.now, claimed)
    sim.run()
    assert numbers(asked(sim, queue, 1, 10, states=(MessageState.DEFERRED,)).value) == [1, 2]
    assert numbers(asked(sim, queue, 1, 4, states=(MessageState.ACTIVE,)).value) == [3, 4]


def test_expired_messages_are_passed_over(sim: Simulation) -> None:
    queue = sim.queue(QueueDescription("q"))
    sim.send(queue, *[make_message(str(number), time_to_live=1_000) for number in range(4)], make_message("stays"))
    now = sim.now + 2_000
    answer: Answer[RangePage] = Answer()
    peek_range(queue.main, 1, 5, 2, ALL, now, answer)
    sim.run()
    assert numbers(answer.value) == [5]


def test_nothing_in_the_range_is_an_empty_page(sim: Simulation, queue: QueueEntity) -> None:
    assert asked(sim, queue, 50, 60).value == RangePage([], None)


@pytest.mark.parametrize(("first", "last"), [(5, 4), (1, 1 << SEQUENCE_BITS), (1 << SEQUENCE_BITS, 2 << SEQUENCE_BITS)])
def test_a_range_that_leaves_its_fragment_is_refused(
    sim: Simulation, queue: QueueEntity, first: int, last: int
) -> None:
    assert isinstance(asked(sim, queue, first, last).error, ArgumentError)


def test_a_fragment_that_is_ill_says_so(sim: Simulation, queue: QueueEntity) -> None:
    sim.lose_store(queue.main.fragments[0].broker.index)
    assert isinstance(asked(sim, queue, 1, 10).error, FragmentUnavailable)
