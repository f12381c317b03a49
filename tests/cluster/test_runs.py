"""What a sender is told when no node takes its messages (contract A4.6)."""

from itertools import permutations

import pytest

from twinbus.cluster.fronts.runs import weightier
from twinbus.cluster.fronts.search import is_lost_twice
from twinbus.errors import FragmentUnavailable, MessagingError, OutcomeUnknown, QuotaExceeded, ServerBusy

FULL, BUSY, LOST, UNKNOWN = QuotaExceeded("full"), ServerBusy("busy"), FragmentUnavailable("lost"), OutcomeUnknown("?")


@pytest.mark.parametrize("order", [*permutations([FULL, BUSY, UNKNOWN])])
def test_that_a_message_may_have_been_stored_counts_more_than_any_other_reason(order: list[MessagingError]) -> None:
    told: MessagingError | None = None
    for error in order:
        told = weightier(told, error)
    assert told is UNKNOWN


@pytest.mark.parametrize("order", [*permutations([FULL, LOST])])
def test_that_a_store_is_lost_counts_more_than_that_one_is_full(order: list[MessagingError]) -> None:
    """Nobody should remove messages because of it."""
    assert weightier(weightier(None, order[0]), order[1]) is LOST


def test_of_reasons_that_count_alike_the_last_one_is_told() -> None:
    assert weightier(BUSY, LOST) is LOST
    assert weightier(LOST, BUSY) is BUSY


@pytest.mark.parametrize("other", [None, FULL, LOST])
def test_a_message_is_lost_twice_only_if_both_nodes_may_have_it(other: MessagingError | None) -> None:
    assert not is_lost_twice(other, UNKNOWN)
    assert not is_lost_twice(UNKNOWN, LOST)
    assert is_lost_twice(UNKNOWN, OutcomeUnknown("again"))
