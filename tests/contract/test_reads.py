"""What the reading methods promise."""

import pytest

from tests.contract.rows import (
    ACTIVE,
    DEFERRED,
    ELSEWHERE,
    EVERY_STATE,
    HERE,
    NOON,
    SCHEDULED,
    UNLIMITED,
    holding,
    numbers,
    row,
)
from twinbus.clock import NEVER
from twinbus.errors import ChangeRefused
from twinbus.store.changes import (
    Activated,
    Altered,
    DuplicatesForgotten,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    Removed,
    SessionStateSet,
)
from twinbus.store.durable import DurableStore
from twinbus.store.messaging_store import FragmentSummary, MessagingStore, RowFacts, SessionSummary
from twinbus.store.reads import ReadTogether
from twinbus.store.row_ids import COUNTER_MASK


def test_a_new_store_has_no_fragments(store: MessagingStore) -> None:
    assert store.summaries() == []


def test_a_new_fragment_has_used_no_number(store: MessagingStore) -> None:
    store.commit([FragmentCreated(HERE)])
    assert store.summaries() == [FragmentSummary(HERE, 0, 0, 0, 0, 0)]


def test_a_summary_counts_rows_by_state_and_adds_up_their_content(store: MessagingStore) -> None:
    holding(
        store,
        row(1, b"1"),
        row(2, b"22", state=DEFERRED),
        row(3, b"333", state=SCHEDULED),
        row(4, b"4444"),
        row(5, b"55555"),
    )
    store.commit([Removed(HERE, [4]), Altered(HERE, 1, DEFERRED, 0, 0, NEVER, b"1 and more")])
    (summary,) = [summary for summary in store.summaries() if summary.fragment == HERE]
    assert summary == FragmentSummary(HERE, 5, 1, 2, 1, 10 + 2 + 3 + 5)


def test_the_last_number_that_a_fragment_has_is_one_like_any_other(store: MessagingStore) -> None:
    last = COUNTER_MASK
    holding(store, row(1), row(last))
    with pytest.raises(ChangeRefused):
        store.commit([Enqueued(HERE, [row(last + 1)])])
    for _ in range(2):
        assert numbers(store.read(HERE, [1, last, last + 1])) == [1, last]
        assert numbers(store.scan(HERE, last - 1, 9, UNLIMITED, EVERY_STATE)) == [last]
        store.rest()


def test_the_highest_number_outlives_its_row(store: MessagingStore) -> None:
    holding(store, row(1), row(9))
    store.commit([Removed(HERE, [1, 9])])
    assert store.summaries()[0].last_sequence_number == 9


def test_the_number_of_an_activation_counts_as_used_even_if_the_row_was_cancelled(store: MessagingStore) -> None:
    holding(store, row(1, state=SCHEDULED))
    store.commit([Removed(HERE, [1]), Activated(HERE, 1, 2, NOON, NEVER)])
    assert store.summaries()[0] == FragmentSummary(HERE, 2, 0, 0, 0, 0)


def test_a_scan_starts_above_the_given_number_lowest_first(store: MessagingStore) -> None:
    holding(store, *(row(number) for number in (1, 2, 5, 8)))
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, EVERY_STATE)) == [1, 2, 5, 8]
    assert numbers(store.scan(HERE, 2, 10, UNLIMITED, EVERY_STATE)) == [5, 8]
    assert numbers(store.scan(HERE, 3, 10, UNLIMITED, EVERY_STATE)) == [5, 8]
    assert numbers(store.scan(HERE, 8, 10, UNLIMITED, EVERY_STATE)) == []


def test_a_scan_ends_at_its_count(store: MessagingStore) -> None:
    holding(store, row(1), row(2), row(3))
    assert numbers(store.scan(HERE, 0, 2, UNLIMITED, EVERY_STATE)) == [1, 2]
    assert numbers(store.scan(HERE, 0, 3, UNLIMITED, EVERY_STATE)) == [1, 2, 3]


def test_a_scan_ends_before_its_bytes_are_passed(store: MessagingStore) -> None:
    holding(store, row(1, b"x" * 10), row(2, b"x" * 10), row(3, b"x"))
    assert numbers(store.scan(HERE, 0, 10, 19, EVERY_STATE)) == [1]
    assert numbers(store.scan(HERE, 0, 10, 20, EVERY_STATE)) == [1, 2]
    assert numbers(store.scan(HERE, 0, 10, 21, EVERY_STATE)) == [1, 2, 3]


def test_a_scan_never_ends_before_the_first_row(store: MessagingStore) -> None:
    holding(store, row(1, b"x" * 100), row(2, b""))
    assert numbers(store.scan(HERE, 0, 10, 1, EVERY_STATE)) == [1]


def test_a_scan_finds_only_the_states_asked_for(store: MessagingStore) -> None:
    holding(store, row(1), row(2, state=DEFERRED), row(3, state=SCHEDULED), row(4))
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, {ACTIVE})) == [1, 4]
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, [DEFERRED, SCHEDULED])) == [2, 3]
    assert store.scan(HERE, 0, 10, UNLIMITED, ()) == []


def test_a_scan_follows_a_row_into_its_new_state(store: MessagingStore) -> None:
    holding(store, row(1), row(2), row(3))
    store.commit([Altered(HERE, 2, DEFERRED, 0, 0, NEVER)])
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, {ACTIVE})) == [1, 3]
    store.commit([Altered(HERE, 2, ACTIVE, 0, 0, NEVER)])
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, {ACTIVE})) == [1, 2, 3]


def test_a_scan_of_a_message_session_finds_its_rows_alone(store: MessagingStore) -> None:
    holding(store, row(1, session_id="a"), row(2, session_id="b"), row(3), row(4, session_id="a"))
    store.commit([Removed(HERE, [1]), Enqueued(HERE, [row(5, session_id="a"), row(6, session_id="A")])])
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, EVERY_STATE, "a")) == [4, 5, 6]
    assert numbers(store.scan(HERE, 4, 10, UNLIMITED, EVERY_STATE, "a")) == [5, 6]
    assert numbers(store.scan(HERE, 0, 1, UNLIMITED, EVERY_STATE, "a")) == [4]


def test_a_scan_of_a_session_finds_a_row_that_was_activated_last(store: MessagingStore) -> None:
    holding(store, row(1, state=SCHEDULED, session_id="a"), row(2, session_id="a"))
    store.commit([Activated(HERE, 1, 3, NOON, NEVER)])
    assert numbers(store.scan(HERE, 0, 10, UNLIMITED, EVERY_STATE, "a")) == [2, 3]


def test_rows_are_read_in_the_order_asked_for_and_missing_ones_left_out(store: MessagingStore) -> None:
    holding(store, row(1), row(2), row(3))
    store.commit([Removed(HERE, [2])])
    assert numbers(store.read(HERE, [3, 2, 99, 1])) == [3, 1]
    assert store.read(HERE, []) == []


def test_rows_that_are_read_end_before_they_pass_a_size_but_not_before_the_first(store: MessagingStore) -> None:
    holding(store, *[row(number, bytes(100)) for number in (1, 2, 3)])
    for bytes_max, count in ((1, 1), (100, 1), (199, 1), (200, 2), (300, 3)):
        assert numbers(store.read(HERE, [3, 99, 2, 1], bytes_max)) == [3, 2, 1][:count]
    assert store.read(HERE, [99], 1) == []


def test_rows_that_are_read_together_are_all_or_none(store: MessagingStore) -> None:
    holding(store, *[row(number, bytes(100)) for number in (1, 2, 3)])

    def together(bytes_max: int, *wanted: int) -> list[int] | None:
        rows = ReadTogether(HERE, wanted, bytes_max).run(store)
        return None if rows is None else numbers(rows)

    assert together(300, 3, 1, 99, 2) == [3, 1, 2]
    assert together(299, 3, 1, 99, 2) is None
    assert together(99, 3, 1) is None
    assert together(1, 3) == [3]
    assert together(1, 99, 98) == []


def test_a_fragment_that_does_not_exist_reads_as_empty(store: MessagingStore) -> None:
    assert store.scan(HERE, 0, 10, UNLIMITED, EVERY_STATE) == []
    assert store.read(HERE, [1]) == []
    assert store.due(HERE, NOON, 10) == ([], NEVER)
    assert store.expired(HERE, NOON, 10) == ([], NEVER)
    assert store.sessions(HERE) == []
    assert store.session_state(HERE, "s") is None
    assert store.duplicates(HERE) == []


def test_due_rows_come_by_due_time_with_the_time_of_the_next(store: MessagingStore) -> None:
    holding(
        store,
        row(1, state=SCHEDULED, due_at=NOON + 30),
        row(2, state=SCHEDULED, due_at=NOON + 10),
        row(3, state=SCHEDULED, due_at=NOON + 20),
        row(4, state=SCHEDULED, due_at=NOON + 10),
        row(5, due_at=NOON),
    )
    assert store.due(HERE, NOON, 10) == ([], NOON + 10)
    assert store.due(HERE, NOON + 10, 10) == ([2, 4], NOON + 20)
    assert store.due(HERE, NOON + 30, 3) == ([2, 4, 3], NOON + 30)
    assert store.due(HERE, NOON + 30, 4) == ([2, 4, 3, 1], NEVER)
    assert store.due(ELSEWHERE, NOON + 30, 4) == ([], NEVER)


def test_a_row_that_is_no_longer_scheduled_is_not_due(store: MessagingStore) -> None:
    holding(store, *(row(number, state=SCHEDULED, due_at=NOON) for number in (1, 2, 3, 4)))
    store.commit([Removed(HERE, [1]), Activated(HERE, 2, 5, NOON, NEVER), Altered(HERE, 3, DEFERRED, 0, NOON, NEVER)])
    store.commit([Altered(HERE, 4, SCHEDULED, 0, NOON + 7, NEVER)])
    assert store.due(HERE, NOON + 5, 10) == ([], NOON + 7)


def test_a_row_can_be_scheduled_again(store: MessagingStore) -> None:
    holding(store, row(1, state=SCHEDULED, due_at=NOON))
    store.commit([Altered(HERE, 1, ACTIVE, 0, 0, NEVER)])
    store.commit([Altered(HERE, 1, SCHEDULED, 0, NOON, NEVER)])
    assert store.due(HERE, NOON, 10) == ([1], NEVER)


def test_active_rows_expire_by_expiry_with_the_time_of_the_next(store: MessagingStore) -> None:
    holding(store, row(1, expires_at=NOON + 20), row(2, expires_at=NOON + 10), row(3), row(4, expires_at=NOON + 30))
    assert store.expired(HERE, NOON, 10) == ([], NOON + 10)
    assert store.expired(HERE, NOON + 20, 10) == ([2, 1], NOON + 30)
    assert store.expired(HERE, NOON + 20, 1) == ([2], NOON + 20)
    assert store.expired(HERE, NEVER, 10) == ([2, 1, 4], NEVER)


def test_scheduled_and_deferred_rows_do_not_expire(store: MessagingStore) -> None:
    holding(
        store,
        row(1, expires_at=NOON, state=SCHEDULED),
        row(2, expires_at=NOON, state=DEFERRED),
        row(3, expires_at=NOON),
        row(4, expires_at=NOON),
    )
    store.commit([Altered(HERE, 3, DEFERRED, 0, 0, NOON), Removed(HERE, [4])])
    assert store.expired(HERE, NOON, 10) == ([], NEVER)
    store.commit([Altered(HERE, 2, ACTIVE, 0, 0, NOON)])
    assert store.expired(HERE, NOON, 10) == ([2], NEVER)


def test_message_sessions_come_by_their_first_active_message_then_by_name(store: MessagingStore) -> None:
    holding(
        store,
        row(1, session_id="late", state=DEFERRED),
        row(2, session_id="early"),
        row(3, session_id="late"),
        row(4, session_id="early"),
        row(5, session_id="deferred alone", state=DEFERRED),
        row(6),
    )
    store.commit(
        [
            SessionStateSet(HERE, "z", b"", NOON),
            SessionStateSet(HERE, "y", b"y", NOON + 1),
            SessionStateSet(HERE, "late", b"l", NOON + 2),
        ]
    )
    assert store.sessions(HERE) == [
        SessionSummary("early", 2, 2, None),
        SessionSummary("late", 1, 3, NOON + 2),
        SessionSummary("y", 0, 0, NOON + 1),
        SessionSummary("z", 0, 0, NOON),
    ]


def test_a_message_session_ends_with_its_last_active_message(store: MessagingStore) -> None:
    holding(store, row(1, session_id="s"), row(2, session_id="s"))
    store.commit([Removed(HERE, [1])])
    assert store.sessions(HERE) == [SessionSummary("s", 1, 2, None)]
    store.commit([Removed(HERE, [2])])
    assert store.sessions(HERE) == []


def test_an_empty_session_state_is_a_state_and_none_forgets_it(store: MessagingStore) -> None:
    holding(store)
    assert store.session_state(HERE, "s") is None
    store.commit([SessionStateSet(HERE, "s", b"", NOON)])
    assert store.session_state(HERE, "s") == b""
    store.commit([SessionStateSet(HERE, "s", b"state", NOON)])
    assert store.session_state(HERE, "s") == b"state"
    assert store.session_state(ELSEWHERE, "s") is None
    store.commit([SessionStateSet(HERE, "s", None, NOON)])
    assert store.session_state(HERE, "s") is None
    assert store.sessions(HERE) == []


def test_duplicate_history_comes_oldest_end_first(store: MessagingStore) -> None:
    holding(store)
    store.commit([DuplicatesSeen(HERE, [("b", NOON + 2), ("c", NOON + 3), ("a", NOON + 2)])])
    store.commit([DuplicatesSeen(HERE, [("d", NOON + 1)])])
    assert store.duplicates(HERE) == [("d", NOON + 1), ("a", NOON + 2), ("b", NOON + 2), ("c", NOON + 3)]
    assert store.duplicates(ELSEWHERE) == []


def test_a_duplicate_seen_again_counts_until_its_new_end(store: MessagingStore) -> None:
    holding(store)
    store.commit([DuplicatesSeen(HERE, [("a", NOON + 1), ("b", NOON + 2)])])
    store.commit([DuplicatesSeen(HERE, [("a", NOON + 3)])])
    assert store.duplicates(HERE) == [("b", NOON + 2), ("a", NOON + 3)]


def test_duplicates_are_forgotten_up_to_and_including_the_given_time(store: MessagingStore) -> None:
    holding(store)
    store.commit([DuplicatesSeen(HERE, [("a", NOON + 1), ("b", NOON + 2), ("c", NOON + 3)])])
    store.commit([DuplicatesForgotten(HERE, NOON + 2), DuplicatesForgotten(ELSEWHERE, NEVER)])
    assert store.duplicates(HERE) == [("c", NOON + 3)]
    store.commit([DuplicatesSeen(HERE, [("a", NOON + 4)])])
    assert store.duplicates(HERE) == [("c", NOON + 3), ("a", NOON + 4)]


def checkpointed(store: MessagingStore) -> None:
    if isinstance(store, DurableStore):
        store.checkpoint()


def test_a_duplicate_seen_again_with_an_earlier_end_is_forgotten_at_that(store: MessagingStore) -> None:
    """The window of an entity may have been shortened."""
    holding(store)
    store.commit([DuplicatesSeen(HERE, [("a", NOON + 9), ("b", NOON + 9)])])
    checkpointed(store)
    store.commit([DuplicatesSeen(HERE, [("a", NOON + 1)]), DuplicatesForgotten(HERE, NOON + 2)])
    assert store.duplicates(HERE) == [("b", NOON + 9)]
    checkpointed(store)
    assert store.duplicates(HERE) == [("b", NOON + 9)]


def test_a_scan_may_end_at_a_number(store: MessagingStore) -> None:
    holding(store, row(1), row(2, state=DEFERRED), row(3), row(4))
    store.commit([Altered(HERE, 3, DEFERRED, 0, 0, NEVER), Enqueued(HERE, [row(5), row(6, state=DEFERRED)])])
    for last, found in ((0, []), (1, [1]), (3, [1, 2, 3]), (5, [1, 2, 3, 4, 5]), (UNLIMITED, [1, 2, 3, 4, 5, 6])):
        assert numbers(store.scan(HERE, 0, 10, UNLIMITED, EVERY_STATE, last=last)) == found
        assert list(store.facts_after(HERE, 0, 10, EVERY_STATE, last).numbers) == found
    assert numbers(store.scan(HERE, 1, 10, UNLIMITED, {DEFERRED}, last=5)) == [2, 3]


def test_facts_after_a_number_are_those_of_the_rows_that_a_scan_finds(store: MessagingStore) -> None:
    holding(
        store, row(1), row(2, b"22", session_id="a", delivery_count=3), row(3, state=SCHEDULED, due_at=NOON), row(4)
    )
    store.commit([Removed(HERE, [1]), Altered(HERE, 4, DEFERRED, 1, 0, NEVER, b"four!")])
    assert store.facts_after(HERE, 0, 2, EVERY_STATE) == RowFacts(
        (2, 3), (ACTIVE, SCHEDULED), (0, NOON), (NEVER, NEVER), (3, 0), ("a", None), (2, 7)
    )
    assert store.facts_after(HERE, 0, 9, {DEFERRED}) == RowFacts((4,), (DEFERRED,), (0,), (NEVER,), (1,), (None,), (5,))
    assert store.facts(HERE, [4, 1, 3]) == RowFacts(
        (4, 3), (DEFERRED, SCHEDULED), (0, NOON), (NEVER, NEVER), (1, 0), (None, None), (5, 7)
    )
    assert store.facts_after(HERE, 4, 9, EVERY_STATE) == store.facts(HERE, [1, 9]) == RowFacts()
