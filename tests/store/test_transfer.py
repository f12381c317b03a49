"""A store into another, on every medium: what was in the one is in the other, also if it took several attempts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rows import HERE, THIRD_INDEX, everything, holding, row
from tests.store.postgres_places import opened, place
from twinbus.clock import NEVER
from twinbus.errors import StoreDamaged
from twinbus.model.wire_names import MessageState
from twinbus.store import transfer as transfers
from twinbus.store.changes import DuplicatesSeen, Enqueued, FragmentCreated, Removed, SessionStateSet
from twinbus.store.durable import DurableStore
from twinbus.store.folder.store import FolderStore
from twinbus.store.transfer import NUMBERS_SKIPPED, clear, require_same, skip_numbers, transfer


@pytest.fixture(params=["folder to postgres", "postgres to folder"])
def two_stores(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_dsn: str, fresh_namespace: str
) -> Iterator[list[DurableStore]]:
    stores = [FolderStore(tmp_path / "store"), opened(place(postgres_dsn, fresh_namespace))]
    yield stores if request.param.startswith("folder") else stores[::-1]
    for store in stores:
        store.close()


def fill(store: DurableStore) -> None:
    """Rows in every state, in two fragments; numbers that are used and gone; a session with a state; duplicates."""
    rows = [row(number, b"x" * number) for number in range(1, 60)]
    rows[3].state, rows[3].delivery_count = MessageState.DEFERRED, 4
    rows[4].state, rows[4].due_at = MessageState.SCHEDULED, 1_000
    rows[5].session_id, rows[5].enqueued_sequence_number = "Anna", 77
    rows[6].expires_at = 5_000
    holding(store, *rows)
    store.commit([FragmentCreated(THIRD_INDEX), Removed(HERE, [7, 58, 59])])
    store.commit([SessionStateSet(HERE, "Anna", b"half", 12), SessionStateSet(HERE, "empty", b"", 13)])
    store.commit([DuplicatesSeen(HERE, [("a", 100), ("b", NEVER)])])


def test_everything_arrives(two_stores: list[DurableStore]) -> None:
    source, target = two_stores
    fill(source)
    transfer(source, target)
    require_same(source, target, "it")
    assert everything(target) == everything(source)
    assert target.session_state(HERE, "Anna") == b"half"
    assert target.duplicates(HERE) == source.duplicates(HERE)
    assert [each.last_sequence_number for each in target.summaries() if each.fragment == HERE] == [59]


class Interrupted(Exception): ...


@pytest.mark.parametrize("commits", [1, 2, 5])
def test_a_transfer_goes_on_where_it_was_interrupted(
    commits: int, two_stores: list[DurableStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "ROWS_MAX", 7)
    source, target = two_stores
    fill(source)
    told: list[int] = []

    def interrupt(count: int) -> None:
        told.append(count)
        if len(told) == commits:
            raise Interrupted

    with pytest.raises(Interrupted):
        transfer(source, target, interrupt)
    transfer(source, target, told.append)
    assert sum(told) == len(everything(source))
    require_same(source, target, "it")
    assert everything(target) == everything(source)


def test_a_difference_is_noticed(two_stores: list[DurableStore]) -> None:
    source, target = two_stores
    fill(source)
    transfer(source, target)
    target.commit([Removed(HERE, [1])])
    with pytest.raises(StoreDamaged, match="has to be"):
        require_same(source, target, "it")
    clear(target)
    transfer(source, target)
    target.commit([DuplicatesSeen(HERE, [("c", 100)])])
    with pytest.raises(StoreDamaged, match="duplicate history"):
        require_same(source, target, "it")
    clear(target)
    transfer(source, target)
    target.commit([SessionStateSet(HERE, "other", b"", 13)])
    with pytest.raises(StoreDamaged, match="sessions of fragment"):
        require_same(source, target, "it")
    clear(target)
    transfer(source, target)
    require_same(source, target, "it")


def test_skipped_numbers_are_refused_to_new_rows(two_stores: list[DurableStore]) -> None:
    source, _ = two_stores
    fill(source)
    before = everything(source)
    assert skip_numbers(source) == 3
    assert everything(source) == before
    assert {each.last_sequence_number for each in source.summaries() if each.fragment == HERE} == {59 + NUMBERS_SKIPPED}
    source.commit([Enqueued(HERE, [row(60 + NUMBERS_SKIPPED)])])
