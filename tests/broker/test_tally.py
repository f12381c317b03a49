"""What a fragment counts, and the numbers that it gives out."""

import pytest

from tests.contract.rows import row
from twinbus.broker.fragment.duplicates import PRUNE_INTERVAL, DuplicateHistory
from twinbus.broker.fragment.tally import Tally
from twinbus.clock import NEVER
from twinbus.model.wire_names import SEQUENCE_BITS, MessageState
from twinbus.store.changes import StoredMessage
from twinbus.store.messaging_store import FragmentSummary

ACTIVE, DEFERRED, SCHEDULED = MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED


def counts(tally: Tally) -> tuple[int, int, int, int]:
    return tally.active_count, tally.deferred_count, tally.scheduled_count, tally.size_bytes


def rows(*states: MessageState) -> list[StoredMessage]:
    """Of 10 bytes each."""
    return [row(number, bytes(10), state=state) for number, state in enumerate(states, 1)]


def test_numbers_rise_from_the_first_of_the_fragment_or_the_last_that_its_store_knows() -> None:
    tally = Tally(3)
    first = (3 << SEQUENCE_BITS) + 1
    assert [tally.take_numbers(count) for count in (1, 5, 1)] == [first, first + 1, first + 6]
    assert tally.last_number == first + 6
    assert Tally(3, FragmentSummary(1, 0, 0, 0, 0, 0)).take_numbers(1) == first
    assert Tally(3, FragmentSummary(1, first + 9, 0, 0, 0, 0)).take_numbers(1) == first + 10


def test_counts_begin_with_those_of_the_store() -> None:
    assert counts(Tally(0)) == (0, 0, 0, 0)
    assert counts(Tally(0, FragmentSummary(1, 9, 2, 3, 4, 50))) == (2, 3, 4, 50)


def test_rows_that_come_change_and_go_are_counted_by_their_state_and_size() -> None:
    tally = Tally(0)
    assert tally.add_active(rows(ACTIVE, ACTIVE, ACTIVE)) == 30
    tally.add_scheduled(rows(SCHEDULED, SCHEDULED, SCHEDULED, SCHEDULED))
    assert counts(tally) == (3, 0, 4, 70)
    tally.change_state(ACTIVE, DEFERRED)
    assert counts(tally) == (2, 1, 4, 70)
    tally.change_state(DEFERRED, ACTIVE)
    tally.change_state(ACTIVE, SCHEDULED)
    assert counts(tally) == (2, 0, 5, 70)
    assert tally.activate(2) == 1
    assert (counts(tally), tally.last_number) == ((4, 0, 3, 70), 2)
    tally.resize(row(1, bytes(10)), bytes(25))
    assert counts(tally) == (4, 0, 3, 85)
    tally.resize(row(1, bytes(25)), bytes(10))
    tally.change_state(ACTIVE, DEFERRED)
    tally.remove(rows(ACTIVE, DEFERRED, SCHEDULED))
    assert counts(tally) == (2, 0, 2, 40)
    tally.remove_active(rows(ACTIVE, ACTIVE))
    assert counts(tally) == (0, 0, 2, 20)


def test_below_where_rows_begin_all_numbers_are_spent() -> None:
    tally = Tally(2)
    assert tally.spent_number == 2 << SEQUENCE_BITS
    tally.rows_begin_at(100)
    assert tally.spent_number == 99


# Duplicates


@pytest.mark.parametrize(("now", "expected"), [(9, True), (10, False), (11, False)])
def test_a_key_is_known_until_its_end(now: int, expected: bool) -> None:
    history = DuplicateHistory()
    history.add("key", 10)
    assert history.is_known("key", now) is expected
    assert not history.is_known("other", 0)


def test_ended_keys_are_dropped_together_a_while_after_the_first_end() -> None:
    history = DuplicateHistory()
    assert history.next_end == NEVER
    assert not history.forget(1_000)
    history.load([("c", 30), ("a", 10), ("b", 20)], are_pinned=False)
    assert (len(history), history.next_end) == (3, 10 + PRUNE_INTERVAL)
    assert not history.forget(9)
    assert history.forget(20)
    assert (len(history), history.next_end) == (1, 30 + PRUNE_INTERVAL)
    history.add("d", 40)
    assert history.next_end == 30 + PRUNE_INTERVAL
    assert history.forget(40)
    assert (len(history), history.next_end) == (0, NEVER)
    history.load([], are_pinned=True)
    assert history.next_end == NEVER
