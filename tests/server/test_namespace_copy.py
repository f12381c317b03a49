"""`twinbus copy` and `store restored`: a namespace moves between a folder and PostgreSQL with everything that is in it."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.rows import HERE, everything, row
from tests.server.served_on_postgres import Served
from tests.store.postgres_places import place, run_sql
from tests.store.test_transfer import Interrupted, fill
from twinbus.cli.app import run
from twinbus.errors import ArgumentError, StoreInUse
from twinbus.management.catalog import Catalog
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.server.data.copy_marks import UNFINISHED, CopyMark, require_whole
from twinbus.server.data.data_folder import DataFolder
from twinbus.server.data.holdings import root_rule_in
from twinbus.server.data.namespace_copy import FolderEnd, HeldNamespace, NamespaceEnd, PostgresEnd, copy_namespace
from twinbus.store import transfer as transfers
from twinbus.store.changes import Enqueued, Removed

STORES = 2
KEY = "c2VjcmV0"


@pytest.fixture(params=["to postgres", "to a folder"])
def ends(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_dsn: str, fresh_namespace: str
) -> tuple[NamespaceEnd, NamespaceEnd]:
    """Where a namespace is, with entities and messages, and where it is copied to."""
    folder, database = FolderEnd(tmp_path / fresh_namespace), PostgresEnd([postgres_dsn], fresh_namespace)
    source: NamespaceEnd = folder if request.param == "to postgres" else database
    if source is folder:
        with closing(DataFolder(folder.path)) as data:
            data.root_rule(KEY)
            Catalog.in_file(folder.path / "catalog.db", fresh_namespace, 0).close()
            data.store_paths(STORES)
    with source.hold(0) if source is folder else database.hold_new(0, STORES, "nowhere") as held:
        catalog = Catalog(held.catalog)
        catalog.set_namespace_rule(root_rule_in(catalog, KEY))
        catalog.add(catalog.new_id(), QueueDescription("orders"), 5)
        catalog.add(catalog.new_id(), TopicDescription("events"), 6)
        subscription = SubscriptionDescription("events", "audit")
        catalog.add(catalog.new_id(), subscription, 7, rules=(RuleDescription("b"), RuleDescription("a")))
        catalog.new_id()  # of an entity that is gone
        for number in range(STORES):
            with closing(held.open_store(number)) as store:
                fill(store)
            held.stored(number)
        held.set_mark(None)
    return source, database if source is folder else folder


def in_stores(held: HeldNamespace) -> list[list[object]]:
    found: list[list[object]] = []
    for number in range(held.store_count):
        with closing(held.open_store(number)) as store:
            found.append([everything(store), sorted(store.summaries(), key=str), store.duplicates(HERE)])
    return found


def in_catalog(held: HeldNamespace) -> list[object]:
    catalog = Catalog(held.catalog)
    kinds = (QueueDescription, TopicDescription, SubscriptionDescription)
    return [*(catalog.entries(kind) for kind in kinds), catalog.namespace_rules(), catalog.namespace.created_at]


def require_copied(source: NamespaceEnd, target: NamespaceEnd) -> None:
    with source.hold(0) as ours, target.hold(0) as theirs:
        assert in_stores(theirs) == in_stores(ours)
        assert in_catalog(theirs) == in_catalog(ours)
        assert theirs.root_key() == ours.root_key() == KEY
        assert theirs.mark() is None
        assert Catalog(theirs.catalog).new_id() == Catalog(ours.catalog).new_id()


def test_a_namespace_goes_over_with_everything_in_it(ends: tuple[NamespaceEnd, NamespaceEnd]) -> None:
    copied = copy_namespace(*ends, now=9)
    assert (copied.stores, copied.entities, copied.messages) == (STORES, 3, STORES * 56)
    require_copied(*ends)


def test_a_namespace_that_was_moved_is_not_served_where_it_was(ends: tuple[NamespaceEnd, NamespaceEnd]) -> None:
    source, target = ends
    copy_namespace(source, target, now=9)
    with source.hold(0) as ours, pytest.raises(ArgumentError, match=r"was moved to .*Serve it there"):
        require_whole(ours.mark(), ours.mark_place)
    with pytest.raises(ArgumentError, match="holds a namespace already"):
        copy_namespace(source, target, now=9)


def interrupted_after(commits: int) -> Callable[[int, int], None]:
    left = [commits]

    def told(_: int, __: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise Interrupted

    return told


@pytest.mark.parametrize("commits", [1, 4, 13])
def test_an_interrupted_copy_is_not_served_and_goes_on(
    commits: int, ends: tuple[NamespaceEnd, NamespaceEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "ROWS_MAX", 7)
    source, target = ends
    with pytest.raises(Interrupted):
        copy_namespace(source, target, 9, interrupted_after(commits))
    with target.hold(0) as theirs, pytest.raises(ArgumentError, match="is unfinished"):
        require_whole(theirs.mark(), theirs.mark_place)
    with source.hold(0) as ours:
        assert ours.mark() is None
    again: list[int] = []
    copy_namespace(source, target, 9, lambda _, rows: again.append(rows))
    assert sum(again) == STORES * 56 - 7 * commits
    require_copied(source, target)


def test_a_copy_that_ended_between_its_marks_is_finished(ends: tuple[NamespaceEnd, NamespaceEnd]) -> None:
    source, target = ends
    copy_namespace(source, target, now=9)
    with target.hold(0) as theirs:
        theirs.set_mark(CopyMark(UNFINISHED, str(source)))
    copy_namespace(source, target, now=9)
    require_copied(source, target)


def test_a_store_that_was_used_between_two_attempts_is_copied_again(
    ends: tuple[NamespaceEnd, NamespaceEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its counts are the same, and the messages are not."""
    monkeypatch.setattr(transfers, "ROWS_MAX", 7)
    source, target = ends
    with pytest.raises(Interrupted):
        copy_namespace(source, target, 9, interrupted_after(14))
    with source.hold(0) as ours, closing(ours.open_store(0)) as store:
        store.commit([Removed(HERE, [1]), Enqueued(HERE, [row(60, b"x")])])
    copy_namespace(source, target, now=9)
    require_copied(source, target)


def test_a_copy_of_something_else_is_left_alone(ends: tuple[NamespaceEnd, NamespaceEnd]) -> None:
    source, target = ends
    with target.hold_new(0, STORES, "another namespace"):
        pass
    with pytest.raises(ArgumentError, match="another namespace is unfinished"):
        copy_namespace(source, target, now=9)


def test_a_namespace_that_is_served_is_not_copied(ends: tuple[NamespaceEnd, NamespaceEnd]) -> None:
    source, target = ends
    with source.hold(0), pytest.raises(StoreInUse):
        copy_namespace(_other(source), target, now=9)


def _other(end: NamespaceEnd) -> NamespaceEnd:
    """As another process names it."""
    if isinstance(end, FolderEnd):
        return FolderEnd(end.path)
    assert isinstance(end, PostgresEnd)
    return PostgresEnd(end.dsns, end.place.namespace)


def test_copied_to_postgresql_a_namespace_serves_what_it_had(
    tmp_path: Path, postgres_dsn: str, fresh_namespace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / fresh_namespace
    with closing(DataFolder(folder)) as data:
        data.root_rule(KEY)
        Catalog.in_file(folder / "catalog.db", fresh_namespace, 0).close()
        data.store_paths(STORES)
    assert run(["copy", str(folder), postgres_dsn]) == 0
    assert "counted on both sides" in capfd.readouterr().out
    served = Served(tmp_path, postgres_dsn, fresh_namespace, stores=STORES)
    try:
        assert f"SharedAccessKey={KEY};" in served.wait_ready()["connection_string"]
    finally:
        served.stop()
    assert run(["serve", fresh_namespace, "--data", str(tmp_path), "--stores", str(STORES)]) == 2
    assert "was moved to postgresql://" in capfd.readouterr().err


def test_wrong_places_are_one_line_and_exit_code_2(
    tmp_path: Path, postgres_dsn: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for arguments, advice in (
        ([str(tmp_path / "none"), postgres_dsn], "No namespace has its data in"),
        ([postgres_dsn, str(tmp_path / "none")], "There is no namespace in"),
        ([postgres_dsn, postgres_dsn], "--name"),
        ([postgres_dsn, "mysql://host/bus"], "neither a folder nor a PostgreSQL"),
        (["postgresql:///?host=/nowhere-at-all&user=bus&dbname=bus", str(tmp_path / "b")], "Check that it is up"),
    ):
        assert run(["copy", *arguments]) == 2
        complaint = capfd.readouterr().err
        assert advice in complaint
        assert len(complaint.splitlines()) == 1


def test_a_restored_store_uses_no_number_that_was_seen(
    ends: tuple[NamespaceEnd, NamespaceEnd], postgres_dsn: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source, _ = ends
    if isinstance(source, FolderEnd):
        name, where = source.path.name, ["--data", str(source.path.parent)]
        with closing(DataFolder(source.path)):
            assert run(["store", "restored", "1", "-n", name, *where]) == 1
        assert "in use" in capfd.readouterr().err
    else:
        assert isinstance(source, PostgresEnd)
        name, where = source.place.namespace, ["--store", postgres_dsn]
    with source.hold(0) as held:
        before, last_id = in_stores(held), Catalog(held.catalog).new_id()
    assert run(["store", "restored", "1", "-n", name, *where]) == 0
    assert run(["store", "restored", "2", "-n", name, *where]) == 2
    with source.hold(0) as held:
        after = in_stores(held)
        assert after[0] == before[0]
        assert after[1][0] == before[1][0]
        with closing(held.open_store(1)) as store:
            assert min(each.last_sequence_number for each in store.summaries()) >= 1_000_000
        assert Catalog(held.catalog).new_id() == last_id + 1_001


def test_a_restored_store_has_an_epoch_of_its_own(postgres_dsn: str, fresh_namespace: str) -> None:
    """Whoever served it before it was restored cannot write to it."""
    with PostgresEnd([postgres_dsn], fresh_namespace).hold_new(0, 1, "nowhere") as held:
        held.open_store(0).close()
        held.stored(0)
        Catalog(held.catalog).set_namespace_rule(root_rule_in(Catalog(held.catalog), KEY))
        held.set_mark(None)
    where = place(postgres_dsn, fresh_namespace)
    before = run_sql(where, "SELECT epoch FROM epoch")[0][0]
    assert run(["store", "restored", "-n", fresh_namespace, "--store", postgres_dsn]) == 0
    assert run_sql(where, "SELECT epoch FROM epoch")[0][0] == before + 1  # type: ignore[operator]


def test_a_namespace_is_not_copied_onto_itself(ends: tuple[NamespaceEnd, NamespaceEnd]) -> None:
    source, _ = ends
    with pytest.raises(ArgumentError, match="is the source and the target"):
        copy_namespace(source, source, now=9)
    with source.hold(0) as held:
        assert held.mark() is None
