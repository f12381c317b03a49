"""What a commit promises."""

from collections.abc import Callable

import pytest

from tests.contract.rows import (
    ACTIVE,
    DEFERRED,
    ELSEWHERE,
    EVERY_STATE,
    HERE,
    NOON,
    SCHEDULED,
    THIRD_INDEX,
    UNLIMITED,
    everything,
    holding,
    numbers,
    row,
)
from twinbus.clock import NEVER
from twinbus.errors import ChangeRefused, StoreUnavailable
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.change_rules import COUNTER_BITS
from twinbus.store.changes import (
    Activated,
    ActivatedTogether,
    Altered,
    AlteredTogether,
    Change,
    Copied,
    DuplicatesForgotten,
    DuplicatesSeen,
    Enqueued,
    FragmentCreated,
    FragmentDeleted,
    Removed,
    SessionStateSet,
    SharedRows,
)
from twinbus.store.messaging_store import MessagingStore, RowFacts
from twinbus.store.room import RoomLeft


def test_an_enqueued_row_is_read_back_with_every_field(store: MessagingStore) -> None:
    full = row(
        7,
        b"\x00\xff" * 50,
        state=SCHEDULED,
        due_at=NOON + 5,
        expires_at=NOON + 9,
        delivery_count=3,
        session_id="ünïcode \U0001f600",
        enqueued_sequence_number=2**62,
    )
    holding(store, full)
    assert store.read(HERE, [7]) == [full]


def test_an_empty_content_and_an_empty_session_id_are_kept(store: MessagingStore) -> None:
    holding(store, row(1, b"", session_id=""), row(2, b""))
    assert everything(store) == [row(1, b"", session_id=""), row(2, b"")]


def test_a_store_keeps_no_object_it_was_given_and_hands_none_out_twice(store: MessagingStore) -> None:
    given = row(1)
    holding(store, given)
    given.delivery_count = 5
    first, second = store.read(HERE, [1, 1])
    first.state = DEFERRED
    assert second == row(1)
    assert everything(store) == [row(1)]


def test_changes_of_one_commit_apply_in_order(store: MessagingStore) -> None:
    holding(store)
    store.commit(
        [
            Enqueued(HERE, [row(1, state=SCHEDULED), row(2)]),
            Removed(HERE, [2]),
            Altered(HERE, 1, SCHEDULED, 4, NOON, NEVER, b"new"),
            Activated(HERE, 1, 3, NOON + 1, NEVER),
        ]
    )
    (only,) = everything(store)
    assert (only.sequence_number, only.content, only.delivery_count, only.state) == (3, b"new", 4, ACTIVE)


def test_a_commit_without_changes_changes_nothing(store: MessagingStore) -> None:
    holding(store, row(1))
    store.commit([])
    store.commit([Enqueued(HERE, []), Removed(HERE, []), DuplicatesSeen(HERE, [])])
    assert everything(store) == [row(1)]


def test_a_move_between_fragments_is_one_commit(store: MessagingStore) -> None:
    holding(store, row(1, b"letter"))
    store.commit([Removed(HERE, [1]), Enqueued(ELSEWHERE, [row(1, b"letter", enqueued_sequence_number=1)])])
    assert everything(store) == []
    assert store.read(ELSEWHERE, [1])[0].content == b"letter"


def test_the_same_rows_for_several_fragments_are_rows_of_each_with_numbers_of_its_own(store: MessagingStore) -> None:
    holding(store, row(1))
    shared = SharedRows([row(0, b"a", session_id="s"), row(0, b"b", expires_at=NOON, enqueued_sequence_number=7)])
    store.commit([Copied(HERE, 5, shared), Copied(ELSEWHERE, 1, shared)])
    assert everything(store)[1:] == shared.numbered(5)
    assert store.read(ELSEWHERE, [1, 2]) == shared.numbered(1)
    assert [(summary.active_count, summary.last_sequence_number) for summary in store.summaries()] == [(3, 6), (2, 2)]
    with pytest.raises(ChangeRefused):
        store.commit([Copied(HERE, 6, shared)])


def test_rows_that_become_active_together_are_as_if_each_did_by_itself(store: MessagingStore) -> None:
    holding(store, *[row(number, b"%d" % number, state=SCHEDULED, due_at=NOON) for number in (1, 2, 3)])
    assert store.facts(HERE, [3, 9, 1]) == RowFacts(
        (3, 1), (SCHEDULED, SCHEDULED), (NOON, NOON), (NEVER, NEVER), (0, 0), (None, None), (1, 1)
    )
    store.commit([ActivatedTogether(HERE, [3, 99, 1], 4, NOON + 1, [NEVER, 7, NOON + 5])])
    rows = {found.sequence_number: found for found in everything(store)}
    assert {number: (found.content, found.state, found.expires_at) for number, found in rows.items()} == {
        2: (b"2", SCHEDULED, NEVER),
        4: (b"3", ACTIVE, NEVER),
        6: (b"1", ACTIVE, NOON + 5),
    }
    assert store.summaries()[0].last_sequence_number == 6
    with pytest.raises(ChangeRefused):
        store.commit([ActivatedTogether(HERE, [2], 6, NOON, [NEVER])])


def test_removal_is_idempotent(store: MessagingStore) -> None:
    holding(store, row(1), row(2), row(3))
    store.commit([Removed(HERE, [2, 2, 99])])
    store.commit([Removed(HERE, [2])])
    assert numbers(everything(store)) == [1, 3]


def test_a_removed_row_stays_removed_when_it_is_altered_or_activated(store: MessagingStore) -> None:
    holding(store, row(1))
    store.commit([Removed(HERE, [1])])
    store.commit([Altered(HERE, 1, DEFERRED, 1, 0, NEVER), Activated(HERE, 1, 2, NOON, NEVER)])
    assert everything(store) == []


def test_an_altered_row_keeps_its_number_and_the_content_it_is_not_given(store: MessagingStore) -> None:
    holding(store, row(1, b"first", session_id="s"), row(2))
    store.commit([Altered(HERE, 1, DEFERRED, 2, NOON + 1, NOON + 2)])
    altered = row(1, b"first", state=DEFERRED, due_at=NOON + 1, expires_at=NOON + 2, delivery_count=2, session_id="s")
    assert everything(store) == [altered, row(2)]


def test_an_altered_row_takes_the_content_it_is_given(store: MessagingStore) -> None:
    holding(store, row(1, b"first"))
    store.commit([Altered(HERE, 1, ACTIVE, 1, 0, NEVER, b"second, longer")])
    assert everything(store)[0].content == b"second, longer"
    store.commit([Altered(HERE, 1, ACTIVE, 2, 0, NEVER, b"")])
    assert everything(store)[0].content == b""


def test_an_activated_row_has_a_new_number_and_no_due_time_and_keeps_the_rest(store: MessagingStore) -> None:
    scheduled = row(1, b"later", state=SCHEDULED, due_at=NOON + 9, session_id="s", enqueued_sequence_number=44)
    holding(store, scheduled, row(2))
    store.commit([Activated(HERE, 1, 3, NOON + 10, NOON + 20)])
    kept = everything(store)
    assert numbers(kept) == [2, 3]
    active = row(3, b"later", expires_at=NOON + 20, session_id="s", enqueued_sequence_number=44)
    active.enqueued_at = NOON + 10
    assert kept[1] == active


def test_an_activated_row_can_be_altered_and_removed_under_its_new_number(store: MessagingStore) -> None:
    holding(store, row(1, b"later", state=SCHEDULED, due_at=NOON))
    store.commit([Activated(HERE, 1, 2, NOON, NEVER)])
    store.commit([Altered(HERE, 2, DEFERRED, 1, 0, NEVER)])
    assert store.read(HERE, [1, 2]) == [row(2, b"later", state=DEFERRED, delivery_count=1)]
    store.commit([Removed(HERE, [2])])
    assert everything(store) == []


def test_a_deleted_fragment_takes_everything_with_it(store: MessagingStore) -> None:
    holding(store, row(1, session_id="s"))
    store.commit([SessionStateSet(HERE, "s", b"x", NOON), DuplicatesSeen(HERE, [("k", NOON)])])
    store.commit([Enqueued(ELSEWHERE, [row(1)]), FragmentDeleted(HERE)])
    assert [summary.fragment for summary in store.summaries()] == [ELSEWHERE]
    assert everything(store) == []
    assert store.sessions(HERE) == []
    assert store.session_state(HERE, "s") is None
    assert store.duplicates(HERE) == []
    assert store.read(ELSEWHERE, [1]) == [row(1)]


def test_a_fragment_created_after_its_deletion_starts_empty_at_the_first_number(store: MessagingStore) -> None:
    holding(store, row(1), row(2))
    store.commit([SessionStateSet(HERE, "s", b"x", NOON), DuplicatesSeen(HERE, [("k", NOON)])])
    store.commit([FragmentDeleted(HERE), FragmentCreated(HERE), Enqueued(HERE, [row(1, b"again")])])
    assert everything(store) == [row(1, b"again")]
    assert store.sessions(HERE) == []
    assert store.duplicates(HERE) == []


def test_creating_a_fragment_twice_keeps_what_is_in_it(store: MessagingStore) -> None:
    holding(store, row(1))
    store.commit([FragmentCreated(HERE)])
    assert everything(store) == [row(1)]
    assert store.summaries()[0].last_sequence_number == 1


def test_deleting_a_fragment_that_is_not_there_is_no_error(store: MessagingStore) -> None:
    store.commit([FragmentDeleted(HERE), Removed(HERE, [1]), Altered(HERE, 1, ACTIVE, 0, 0, NEVER)])
    store.commit([Activated(HERE, 1, 2, NOON, NEVER), DuplicatesForgotten(HERE, NOON)])
    assert store.summaries() == []


@pytest.mark.parametrize(
    "change",
    [Enqueued(THIRD_INDEX, [row(1)]), SessionStateSet(THIRD_INDEX, "s", b"", NOON), DuplicatesSeen(THIRD_INDEX, [])],
    ids=lambda change: type(change).__name__,
)
def test_what_adds_to_a_fragment_that_does_not_exist_is_refused_whole(store: MessagingStore, change: Change) -> None:
    holding(store, row(1))
    with pytest.raises(ChangeRefused):
        store.commit([Removed(HERE, [1]), change])
    assert everything(store) == [row(1)]


@pytest.mark.parametrize("wrong", [[3], [2], [5, 4], [4, 4], [0], [-1], [1 << SEQUENCE_BITS], [1 << COUNTER_BITS]])
def test_numbers_that_do_not_rise_inside_their_fragment_are_refused_whole(
    store: MessagingStore, wrong: list[int]
) -> None:
    holding(store, row(1), row(3))
    with pytest.raises(ChangeRefused):
        store.commit([Removed(HERE, [1]), Enqueued(HERE, [row(number) for number in wrong])])
    assert numbers(everything(store)) == [1, 3]


def test_a_number_that_was_removed_is_not_taken_again(store: MessagingStore) -> None:
    holding(store, row(1), row(2))
    store.commit([Removed(HERE, [1, 2])])
    with pytest.raises(ChangeRefused):
        store.commit([Enqueued(HERE, [row(2)])])


def test_numbers_carry_the_index_of_their_fragment(store: MessagingStore) -> None:
    first = (3 << SEQUENCE_BITS) + 1
    last = (3 << SEQUENCE_BITS) + (1 << COUNTER_BITS) - 1
    store.commit([FragmentCreated(THIRD_INDEX), Enqueued(THIRD_INDEX, [row(first), row(last)])])
    assert numbers(store.scan(THIRD_INDEX, 0, 10, UNLIMITED, EVERY_STATE)) == [first, last]
    with pytest.raises(ChangeRefused):
        store.commit([Enqueued(THIRD_INDEX, [row(last + 1)])])


def test_fragments_with_the_same_numbers_do_not_meet(store: MessagingStore) -> None:
    holding(store, row(1, b"here"), row(2, b"here"))
    store.commit([Enqueued(ELSEWHERE, [row(1, b"there")])])
    store.commit([Removed(ELSEWHERE, [2]), Altered(ELSEWHERE, 1, DEFERRED, 0, 0, NEVER)])
    assert everything(store) == [row(1, b"here"), row(2, b"here")]


def test_a_closed_store_is_unavailable_and_closing_twice_is_fine(store: MessagingStore) -> None:
    holding(store, row(1))
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.commit([Removed(HERE, [1])])
    with pytest.raises(StoreUnavailable):
        store.summaries()
    with pytest.raises(StoreUnavailable):
        everything(store)


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.scan(HERE, 0, 1, UNLIMITED, EVERY_STATE),
        lambda store: store.read(HERE, [1]),
        lambda store: store.due(HERE, NOON, 1),
        lambda store: store.expired(HERE, NOON, 1),
        lambda store: store.sessions(HERE),
        lambda store: store.session_state(HERE, "s"),
        lambda store: store.duplicates(HERE),
    ],
    ids=["scan", "read", "due", "expired", "sessions", "session_state", "duplicates"],
)
@pytest.mark.parametrize("is_there", [True, False], ids=["fragment", "no fragment"])
def test_nothing_can_be_read_from_a_closed_store(
    store: MessagingStore, read: Callable[[MessagingStore], object], is_there: bool
) -> None:
    if is_there:
        holding(store, row(1))
    store.close()
    with pytest.raises(StoreUnavailable):
        read(store)


def test_rows_altered_together_get_a_state_and_a_due_time_and_keep_the_rest(store: MessagingStore) -> None:
    rows = [row(number, b"%d" % number, expires_at=NOON + number, delivery_count=number) for number in range(1, 6)]
    holding(store, *rows)
    store.commit([AlteredTogether(HERE, [4, 2, 9], DEFERRED, -(2**63))])
    store.commit([AlteredTogether(HERE, [3], DEFERRED, 2**63 - 1), AlteredTogether(ELSEWHERE, [1], DEFERRED, 1)])
    claims = {2: -(2**63), 3: 2**63 - 1, 4: -(2**63)}
    for each in rows:
        if each.sequence_number in claims:
            each.state, each.due_at = DEFERRED, claims[each.sequence_number]
    assert everything(store) == rows
    assert store.scan(HERE, 0, 10, UNLIMITED, {DEFERRED}) == rows[1:4]
    assert (store.summaries()[0].active_count, store.summaries()[0].deferred_count) == (2, 3)
    assert store.due(HERE, NEVER, 10) == ([], NEVER)
    store.commit([AlteredTogether(HERE, [2], SCHEDULED, NOON + 7), AlteredTogether(HERE, [3], ACTIVE, 0)])
    assert store.due(HERE, NOON + 7, 10) == ([2], NEVER)
    assert store.expired(HERE, NOON + 3, 10) == ([1, 3], NOON + 5)


def test_a_store_with_little_in_it_is_not_pressed_has_room_and_comes_to_rest(store: MessagingStore) -> None:
    holding(store, row(1))
    while store.catch_up():
        pass
    store.rest()
    assert not store.is_pressed()
    assert store.room_left() is RoomLeft.ENOUGH
    assert store.kept_in()
    assert numbers(everything(store)) == [1]
