"""Stores that were taken back in time give out no number that clients may hold."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Commands, serve
from twinbus.cli.app import run
from twinbus.errors import InternalError, StoreDamaged
from twinbus.management.catalog import Catalog
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.server.data.data_folder import known_store_paths, open_store
from twinbus.server.data.restored_stores import fragments_by_store
from twinbus.store.changes import FragmentDeleted, FragmentKey, fragment_index
from twinbus.store.transfer import NUMBERS_SKIPPED

ENTITIES = """
[[queue]]
name = "ordinary"
[[queue]]
name = "wide"
enable_partitioning = true
[[topic]]
name = "events"
[[topic.subscription]]
name = "audit"
[[topic]]
name = "wide-events"
enable_partitioning = true
[[topic.subscription]]
name = "audit"
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a namespace with entities of every kind, which was served."""
    data = tmp_path_factory.mktemp("data")
    (data / "entities.toml").write_text(ENTITIES)
    with serve(data, "shop", "--entities", str(data / "entities.toml")) as served:
        served.stop()
    return data


def numbers_used(data: Path) -> list[dict[FragmentKey, int]]:
    found = []
    for folder in known_store_paths(data / "shop"):
        store = open_store(folder)
        found.append({each.fragment: each.last_sequence_number for each in store.summaries()})
        store.close()
    return found


def test_the_catalog_tells_every_fragment_that_a_namespace_has_and_its_store(data: Path) -> None:
    catalog = Catalog.in_file(data / "shop/catalog.db", "shop", 0)
    assert [set(each) for each in fragments_by_store(catalog, 2)] == [set(each) for each in numbers_used(data)]
    catalog.close()


def test_a_store_that_is_older_than_it_was_is_served_once_it_is_said_to_be_restored(data: Path) -> None:
    folder = data / "shop/stores/00"
    shutil.copytree(folder, data / "yesterday")
    before = numbers_used(data)
    with closing(open_store(folder)) as store:
        store.commit([FragmentDeleted(min(before[0]))])
    shutil.rmtree(folder)
    shutil.move(data / "yesterday", folder)
    with pytest.raises(StoreDamaged, match="older than it was"):
        open_store(folder)
    assert run(["store", "restored", "0", "--data", str(data), "-n", "shop"]) == 0
    assert numbers_used(data)[0] == {
        each: (fragment_index(each) << SEQUENCE_BITS) + NUMBERS_SKIPPED for each in before[0]
    }


def test_an_older_catalog_is_served_once_it_is_said_to_be_restored(data: Path) -> None:
    file = data / "shop/catalog.db"
    yesterday = file.read_bytes()
    with closing(Catalog.in_file(file, "shop", 0)) as catalog:
        highest = catalog.new_id()
    file.write_bytes(yesterday)
    with pytest.raises(InternalError, match="run 'twinbus store restored'"):
        Catalog.in_file(file, "shop", 0)
    assert run(["store", "restored", "--data", str(data), "-n", "shop"]) == 0
    with closing(Catalog.in_file(file, "shop", 0)) as catalog:
        assert catalog.new_id() > highest


def test_what_a_restoration_could_not_get_to_is_still_refused(data: Path) -> None:
    """It ends at the first store that cannot be opened. The others gave out numbers since, and the catalog ids."""
    file, store = data / "shop/catalog.db", data / "shop/stores/01"
    yesterday = file.read_bytes()
    with closing(Catalog.in_file(file, "shop", 0)) as catalog:
        catalog.new_id()
    file.write_bytes(yesterday)
    shutil.copytree(store, data / "older")
    with closing(open_store(store)) as opened:
        opened.commit([FragmentDeleted(min(each.fragment for each in opened.summaries()))])
    shutil.rmtree(store)
    shutil.move(data / "older", store)
    tables = data / "shop/stores/00/tables.sqlite"
    tables.rename(data / "tables")
    assert run(["store", "restored", "--data", str(data), "-n", "shop"]) != 0
    (data / "tables").rename(tables)
    with pytest.raises(StoreDamaged, match="older than it was"):
        open_store(store)
    with pytest.raises(InternalError, match="run 'twinbus store restored'"):
        Catalog.in_file(file, "shop", 0)
    assert run(["store", "restored", "--data", str(data), "-n", "shop"]) == 0
    open_store(store).close()
    Catalog.in_file(file, "shop", 0).close()


def test_an_entity_that_is_younger_than_a_restored_store_leaves_out_numbers_too(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had fragments there, and gave out numbers, after the moment to which the store was taken back."""
    before = numbers_used(data)
    store = open_store(data / "shop/stores/01")
    store.commit([FragmentDeleted(each) for each in before[1]])
    store.close()
    assert run(["store", "restored", "1", "--data", str(data), "-n", "shop"]) == 0
    after = numbers_used(data)
    assert after[0] == before[0]
    assert after[1] == {each: (fragment_index(each) << SEQUENCE_BITS) + NUMBERS_SKIPPED for each in before[1]}
    with serve(data, "shop") as served:
        commands = Commands(served, capsys)
        for name in ("ordinary", "events"):
            commands.text("send", name, "hello", "-n", "shop")
        served.stop()
