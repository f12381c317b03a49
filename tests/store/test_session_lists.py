"""Pages of one list of message sessions: made once, and fresh as long as that is cheap."""

from pathlib import Path

import pytest

from tests.contract.rows import HERE, holding, row
from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Enqueued, FragmentKey, SessionStateSet, fragment_key
from twinbus.store.folder.store import FolderStore
from twinbus.store.layers import session_lists
from twinbus.store.layers.session_lists import MANY, SERVES_TIMES, SessionLists
from twinbus.store.messaging_store import SessionSummary

TOOK_S = 0.5
OTHER, THIRD = fragment_key(8, 0), fragment_key(9, 0)


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.reads = 0
        self.lists = SessionLists(lambda: self.now)

    def get(self, count: int, sequence: int, fragment: FragmentKey = HERE) -> list[str]:
        def read() -> list[SessionSummary]:
            self.now += TOOK_S
            self.reads += 1
            return [SessionSummary(f"{self.reads}-{number:06}", 1, number, None) for number in reversed(range(count))]

        return [each.session_id for each in self.lists.get(fragment, sequence, read)]


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
    world.lists.forget()
    assert world.get(1, 2, HERE) == ["6-000000"]


def test_what_a_store_lists_is_what_was_committed(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    holding(store)
    assert list(store.sessions_by_name(HERE)) == []
    store.commit([Enqueued(HERE, [row(1, b"x", session_id="b")]), SessionStateSet(HERE, "a", b"state", 1)])
    assert [each.session_id for each in store.sessions_by_name(HERE)] == ["a", "b"]
    store.checkpoint()
    assert [each.session_id for each in store.sessions_by_name(HERE)] == ["a", "b"]
    store.close()
    with pytest.raises(StoreUnavailable):
        store.sessions_by_name(HERE)
