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
