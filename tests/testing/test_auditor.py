"""The auditor of pairs: what it lets pass and what not."""

import pytest

from twinbus.testing.auditor import Auditor, Ledger


def auditor_of(*accepted: str, refused: tuple[str, ...] = (), detects_duplicates: bool = False) -> Auditor:
    auditor = Auditor(detects_duplicates=detects_duplicates)
    for name in (*accepted, *refused):
        auditor.sent(name, None, is_pinned=False)
    for name in accepted:
        auditor.accepted(name)
    for name in refused:
        auditor.refused(name)
    return auditor


def test_what_was_accepted_is_delivered_waiting_or_dead_lettered() -> None:
    auditor_of("a", "b", "c").check_ledger(Ledger(["a"], ["b"], ["c"]))
    with pytest.raises(AssertionError, match=r"lost: \['c'\]"):
        auditor_of("a", "b", "c").check_ledger(Ledger(["a"], ["b"]))


def test_what_was_refused_may_be_there_or_not() -> None:
    auditor_of("a", refused=("b",)).check_ledger(Ledger(["a"]))
    auditor_of("a", refused=("b",)).check_ledger(Ledger(["a", "b"]))


def test_what_was_never_sent_is_nowhere() -> None:
    with pytest.raises(AssertionError, match="never sent"):
        auditor_of("a").check_ledger(Ledger(["a", "stray"]))


def test_an_extra_copy_needs_a_lost_answer() -> None:
    auditor, twice = auditor_of("a"), Ledger(["a"], ["a"])
    with pytest.raises(AssertionError, match="repeated"):
        auditor.check_ledger(twice)
    auditor.check_ledger(twice, may_repeat=True)
    auditor.answer_lost("a")
    auditor.check_ledger(twice)


def test_where_duplicates_are_detected_none_is_delivered_twice_whatever_was_lost() -> None:
    auditor = auditor_of("a", detects_duplicates=True)
    auditor.answer_lost("a")
    auditor.check_ledger(Ledger(["a"], ["a"]))
    with pytest.raises(AssertionError, match="repeated"):
        auditor.check_ledger(Ledger(["a", "a"]), may_repeat=True)


def committed() -> Auditor:
    """A transaction that completed message 7 and sent two others."""
    auditor = Auditor()
    auditor.sent("in", None, is_pinned=True)
    auditor.delivered("in", 7)
    for name in ("out 1", "out 2"):
        auditor.sent(name, None, is_pinned=False)
    auditor.committed_together(["out 1", "out 2"], [7])
    return auditor


@pytest.mark.parametrize(("seen", "left"), [({"out 1", "out 2"}, set()), (set(), {7})])
def test_a_transaction_has_happened_or_not(seen: set[str], left: set[int]) -> None:
    committed().check_together(seen, left)


@pytest.mark.parametrize(("seen", "left"), [({"out 1"}, set()), ({"out 1", "out 2"}, {7})])
def test_a_part_of_a_transaction_is_reported(seen: set[str], left: set[int]) -> None:
    with pytest.raises(AssertionError, match="out 1"):
        committed().check_together(seen, left)


def test_what_a_transaction_completed_must_not_come_again_even_if_somebody_else_takes_it() -> None:
    auditor = committed()
    auditor.delivered("in", 7)
    auditor.check_together(set(), set())
    with pytest.raises(AssertionError, match="not completed"):
        auditor.check_together({"out 1", "out 2"}, set())


def test_a_deletion_in_one_session_may_take_its_messages_and_no_others() -> None:
    auditor = Auditor()
    for name, session_id in (("a", "one"), ("b", "two")):
        auditor.sent(name, session_id, is_pinned=True)
        auditor.accepted(name)
    auditor.deletes_in_session("one")
    auditor.check_rest(["b"])
    auditor.check_rest(["a", "b"])
    with pytest.raises(AssertionError, match="lost"):
        auditor.check_rest(["a"])


def test_a_message_without_a_key_is_there_twice_only_after_an_unknown_outcome_and_never_three_times() -> None:
    auditor = Auditor(limits_copies=True)
    auditor.sent("a", None, is_pinned=False)
    auditor.accepted("a")
    auditor.check_rest(["a"])
    with pytest.raises(AssertionError, match="2 copies of a"):
        auditor.check_rest(["a", "a"])
    auditor.answer_lost("a")
    auditor.check_rest(["a", "a"])
    with pytest.raises(AssertionError, match="3 copies of a"):
        auditor.check_rest(["a", "a", "a"])
    auditor.delivered("a", 1)
    auditor.completed("a", 1)
    auditor.check_rest(["a"])
    with pytest.raises(AssertionError, match="3 copies of a"):
        auditor.check_rest(["a", "a"])


def test_a_message_with_a_key_is_there_once_whatever_was_lost() -> None:
    auditor = Auditor(limits_copies=True)
    auditor.sent("a", None, is_pinned=True)
    auditor.answer_lost("a")
    with pytest.raises(AssertionError, match="2 copies of a"):
        auditor.check_rest(["a", "a"])


def test_nothing_is_held_at_two_nodes() -> None:
    auditor = Auditor()
    auditor.held({0: {b"a"}, 1: {b"b"}})
    auditor.held({0: {b"b"}, 1: {b"a"}})  # at another moment
    with pytest.raises(AssertionError, match="is held at 0 and 2"):
        auditor.held({0: {b"a", "session"}, 2: {"session"}})


def test_no_store_takes_a_commit_of_who_has_lost_it() -> None:
    auditor = Auditor()
    auditor.wrote(3, 0)
    auditor.fenced(3, 1)
    auditor.wrote(3, 1)
    auditor.wrote(4, 0)
    with pytest.raises(AssertionError, match="store 3 took a commit of epoch 0 in epoch 1"):
        auditor.wrote(3, 0)


def test_only_what_is_pinned_may_be_refused_while_a_fragment_has_room() -> None:
    auditor = Auditor()
    auditor.sent("pinned", None, is_pinned=True)
    auditor.sent("free", None, is_pinned=False)
    auditor.refused_as_full(["pinned"], has_room=True)
    auditor.refused_as_full(["free"], has_room=False)
    with pytest.raises(AssertionError, match="free was refused though a fragment has room"):
        auditor.refused_as_full(["free"], has_room=True)
