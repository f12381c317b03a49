"""Things sorted by time, as layers keep them."""

from tests.contract.rows import HERE
from twinbus.store.changes import DuplicatesSeen
from twinbus.store.layers.overlay import FragmentOverlay
from twinbus.store.layers.time_index import TimeIndex


def filled() -> TimeIndex[str]:
    index: TimeIndex[str] = TimeIndex()
    for at, name in ((3, "c"), (1, "a"), (2, "b"), (1, "a")):
        index.add(at, name)
    return index


def test_what_was_taken_is_not_taken_again() -> None:
    index = filled()
    assert index.take_until(0) == []
    assert index.take_until(2) == ["a", "a", "b"]
    assert index.take_until(2) == []
    assert index.take_until(3) == ["c"]


def test_pairs_that_hold_come_in_order_and_once() -> None:
    assert list(filled().in_order(lambda _, name: name != "b")) == [(1, "a"), (3, "c")]


def test_pairs_at_the_front_that_hold_no_longer_are_not_asked_about_again() -> None:
    index, asked = filled(), list[str]()

    def holds(_: int, name: str) -> bool:
        asked.append(name)
        return name == "c"

    assert list(index.in_order(holds)) == [(3, "c")]
    asked.clear()
    assert list(index.in_order(holds)) == [(3, "c")]
    assert set(asked) == {"c"}


def test_a_key_that_was_seen_again_is_forgotten_at_its_later_end() -> None:
    overlay = FragmentOverlay(0, hides_below=False)
    for end in (10, 30):
        overlay.see(DuplicatesSeen(HERE, [("key", end)]))
    for until, found in ((20, 30), (29, 30), (30, None), (40, None)):
        overlay.forget(until)
        assert overlay.duplicates == {"key": found}
