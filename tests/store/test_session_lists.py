"""Pages of one list of message sessions: made once, in steps, and fresh as long as that is cheap."""

import gc
import time
from pathlib import Path

import pytest

from tests.contract.rows import HERE, holding, row
from tests.store.held_tasks import HeldTasks
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Enqueued, FragmentKey, Removed, SessionStateSet, fragment_key
from twinbus.store.folder.store import FolderStore
from twinbus.store.layers import session_lists
from twinbus.store.layers.session_lists import MANY, SERVES_TIMES, STEP_S, Making, SessionLists
from twinbus.store.messaging_store import SessionList, SessionSummary
from twinbus.store.store_limits import StoreLimits

TOOK_S = 0.5
OTHER, THIRD = fragment_key(8, 0), fragment_key(9, 0)


class World:
    """`begun`: how often a list was begun; the last two of its four steps take TOOK_S in all."""

    def __init__(self) -> None:
        self.now = 0.0
        self.begun = 0
        self.ended = 0
        self.lists = SessionLists(lambda: self.now)

    def making(self, count: int) -> Making[list[SessionSummary]]:
        self.begun += 1
        number = self.begun
        try:
            for took in (0.0, 0.0, TOOK_S / 2, TOOK_S / 2):
                self.now += took
                yield
        finally:
            self.ended += 1
        return [SessionSummary(f"{number}-{place:06}", 1, place, None) for place in reversed(range(count))]

    def get(self, count: int, sequence: int, fragment: FragmentKey = HERE) -> list[str]:
        found = self.lists.get(fragment, sequence, lambda: self.making(count))
        return [each.session_id for each in found.by_name]

    def prepare(self, count: int, sequence: int, fragment: FragmentKey = HERE) -> bool:
        return self.lists.prepare(fragment, sequence, lambda: self.making(count))


@pytest.fixture
def world() -> World:
    return World()


def test_a_list_is_by_name_and_made_once_while_nothing_changes(world: World) -> None:
    assert world.get(3, sequence=1) == ["1-000000", "1-000001", "1-000002"]
    world.now += 3_600.0
    assert world.get(3, sequence=1)[0] == "1-000000"
    assert world.get(3, sequence=2)[0] == "2-000000"


def test_a_list_of_very_many_serves_for_a_while_though_something_changed(world: World) -> None:
    assert world.get(MANY + 1, sequence=1)[0] == "1-000000"
    world.now += SERVES_TIMES * TOOK_S - 0.001
    assert world.get(MANY + 1, sequence=2)[0] == "1-000000"
    world.now += 0.001
    assert world.get(MANY, sequence=2)[0] == "2-000000"
    assert world.get(MANY, sequence=3)[0] == "3-000000"


def test_lists_that_were_made_first_go_when_there_are_too_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_lists, "KEPT_MAX", 10)
    for fragment in (HERE, OTHER, THIRD):
        world.get(5, 1, fragment)
    assert world.get(5, 1, OTHER)[0] == "2-000000"
    assert world.get(5, 1, HERE)[0] == "4-000000"
    assert len(world.get(100, 2, HERE)) == 100
    world.lists.forget_all()
    assert world.get(1, 2, HERE) == ["6-000000"]


def test_a_list_is_prepared_in_steps_by_whoever_asks(world: World) -> None:
    assert not world.prepare(MANY + 1, sequence=1)
    assert world.now == TOOK_S / 2, "as long as a step may take, and not longer"
    assert not world.prepare(MANY + 1, sequence=2), "the next one goes on with it"
    assert world.begun == 1
    assert world.prepare(MANY + 1, sequence=3)
    assert world.get(0, sequence=4)[0] == "1-000000"
    world.now += SERVES_TIMES * TOOK_S
    assert not world.prepare(MANY + 1, sequence=4)
    assert world.begun == 2


def test_a_list_that_was_begun_before_a_change_serves_nobody_if_it_is_short(world: World) -> None:
    assert not world.prepare(1, sequence=1)
    assert not world.prepare(1, sequence=1)
    assert world.prepare(1, sequence=2)
    assert world.get(1, sequence=2) == ["2-000000"]


def test_what_was_begun_is_ended_when_lists_are_forgotten_or_wanted_at_once(world: World) -> None:
    assert not world.prepare(1, sequence=1)
    world.lists.forget_all()
    assert world.ended == 1
    assert not world.prepare(1, sequence=1)
    assert world.get(1, sequence=1) == ["3-000000"]
    assert world.ended == 3


def test_a_list_that_cannot_be_made_is_begun_anew(world: World) -> None:
    def broken() -> Making[list[SessionSummary]]:
        yield
        raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        world.lists.prepare(HERE, 1, broken)
    assert world.get(1, sequence=1) == ["1-000000"]


def prepared(store: FolderStore) -> SessionList:
    while not store.prepare_session_list(HERE):
        pass
    return store.session_list(HERE)


def names(found: SessionList) -> list[str]:
    return [each.session_id for each in found.by_name]


def test_what_a_store_lists_is_what_was_committed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    holding(store)
    assert names(store.session_list(HERE)) == []
    store.commit([Enqueued(HERE, [row(1, b"x", session_id="b")]), SessionStateSet(HERE, "a", b"state", 1)])
    assert names(store.session_list(HERE)) == names(prepared(store)) == ["a", "b"]
    store.checkpoint()
    assert names(store.session_list(HERE)) == names(prepared(store)) == ["a", "b"]
    assert store.session_list(HERE) == SessionList.of(store.sessions(HERE))
    store.close()
    for ask in (store.session_list, store.prepare_session_list):
        with pytest.raises(StoreUnavailable):
            ask(HERE)


def test_a_list_shows_the_store_as_it_was_when_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is committed and written to the tables between its steps."""
    clock = iter(range(1_000_000))
    tasks = HeldTasks()
    store = FolderStore(tmp_path, StoreLimits(segment_entries_max=1_000), tasks)
    store._session_lists = SessionLists(lambda: float(next(clock)))
    monkeypatch.setattr(session_lists, "STEP_S", 2.0)
    monkeypatch.setattr(session_lists, "MANY", 0)
    holding(store, *[row(number, b"x", session_id=f"{number % 10}") for number in range(1, 31)])
    store.commit([SessionStateSet(HERE, "with a state", b"s", 1)])
    store.checkpoint()
    store.commit([Removed(HERE, [1, 11, 21, 2]), Enqueued(HERE, [row(31, b"x", session_id="in the journal")])])
    expected = SessionList.of(store.sessions(HERE))
    assert names(expected) == ["0", *"23456789", "in the journal", "with a state"]
    number, step_count = 32, 0
    while not store.prepare_session_list(HERE):
        step_count += 1
        store.commit(
            [
                Removed(HERE, [number - 29, number - 1]),
                Enqueued(HERE, [row(number, b"x", session_id=f"new {number}")]),
                SessionStateSet(HERE, "with a state", None if number % 2 else b"t", number),
            ]
        )
        number += 1
        if step_count == 3:
            store.checkpoint()
    assert step_count > 6
    assert store.session_list(HERE) == expected
    assert SessionList.of(store.sessions(HERE)) != expected
    store.close()


def test_a_step_of_a_list_of_very_many_is_short(tmp_path: Path) -> None:
    """Half of them are in the tables, and some of those are gone since."""
    store, count = FolderStore(tmp_path), 20_000
    holding(store)
    for start in range(1, count, 1_000):
        store.commit(
            [Enqueued(HERE, [row(start + place, b"x", session_id=f"s{start + place}") for place in range(1_000)])]
        )
        if start == count // 2 + 1:
            store.checkpoint()
            store.commit([Removed(HERE, list(range(1, 2_001)))])
    store.catch_up()
    longest, steps = 0.0, 0
    is_done = False
    gc.disable()  # It would walk what all tests of the process have left, in whatever step it likes.
    try:
        while not is_done:
            since = time.thread_time()
            is_done = store.prepare_session_list(HERE)
            longest, steps = max(longest, time.thread_time() - since), steps + 1
    finally:
        gc.enable()
    assert len(store.session_list(HERE).by_name) == count - 2_000
    assert steps > 10
    assert longest < 10 * STEP_S
    store.close()
