"""Goal: a bit that the disk changed anywhere in the folder of a namespace is harmless or reported; nothing wrong is served.

Method: the folder of a namespace with everything in it, as a stop or a crash leaves it: root key, number of stores, catalog,
identities, journals, tables, operations log, certificates. One bit of one file is flipped, and everything is read as a server and
a bill read it. Either nothing that can be observed differs, or an error says so, or what is left out is listed.
"""

import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.management.test_catalog_damage import NAME as CATALOG
from tests.management.test_catalog_damage import filled
from tests.management.test_catalog_damage import observe as observe_catalog
from tests.measured import Measured
from tests.meter.operation_rows import NOON, operation
from tests.store.held_tasks import HeldTasks
from tests.store.test_bit_flips import SOME_ENTRIES, make_folder
from tests.store.test_bit_flips import observe as observe_store
from twinbus.errors import MessagingError
from twinbus.meter.log_reader import open_logs
from twinbus.meter.log_writer import SCHEMA, write_operations
from twinbus.server.data.data_folder import OPERATIONS_FOLDER, DataFolder, witness_of
from twinbus.server.tls import development_certificate, server_context, tls_folder
from twinbus.store.folder.identity import StoreIdentity
from twinbus.store.folder.store import FolderStore

STORE_COUNT = 2
NO_DATA = ("lock", "spare")
"""Files whose content means nothing."""


class Observed(NamedTuple):
    key: str
    catalog: Any
    stores: list[Any]
    operations: list[Any]
    certificate: bytes


def make_namespace(folder: Path, *, is_closed: bool) -> None:
    data = DataFolder(folder)
    data.root_rule(None)
    for path in data.store_paths(STORE_COUNT):
        made = make_folder(folder.with_name("made"), is_closed=is_closed)
        made.rename(path)
        StoreIdentity(path, witness_of(path)).keep()
    data.close()
    catalog = filled(folder.with_name("catalog"))
    if is_closed:
        catalog.close()
    for file in folder.with_name("catalog").iterdir():
        shutil.copy(file, folder)
    catalog.close()
    shutil.rmtree(folder.with_name("catalog"))
    rows = [operation(NOON + number, f"m{number}", size=number * 37) for number in range(300)]
    write_operations(folder / OPERATIONS_FOLDER, "contoso", "node-a", 1, rows)
    development_certificate(tls_folder(folder), [], NOON)


def read_namespace(folder: Path) -> tuple[Observed, list[str]]:
    """Everything, and what is reported as damaged or was created anew."""
    reported = list[str]()
    data = DataFolder(folder)
    stores = list[FolderStore]()
    try:
        key = data.root_rule(None).primary_key
        observed = []
        for path in data.store_paths(STORE_COUNT):
            stores.append(FolderStore(path, SOME_ENTRIES, HeldTasks(), witness_of(path)))
            observed.append(observe_store(stores[-1]))
            reported += [str(each) for each in stores[-1].damage()]
        catalog = observe_catalog(folder / CATALOG)
    finally:
        for store in stores:
            store.close()
        data.close()
    log = open_logs([folder / OPERATIONS_FOLDER])
    reported += log.unusable
    operations = log.rows(SCHEMA.names).sort_by("op_id").to_pylist()
    before = {file.name: file.read_bytes() for file in tls_folder(folder).iterdir()}
    files = development_certificate(tls_folder(folder), [], NOON)
    server_context(files.certificate, files.key)
    if before != {file.name: file.read_bytes() for file in tls_folder(folder).iterdir()}:
        reported.append("certificates were created again")
    return Observed(key, catalog, observed, operations, files.certificate.read_bytes()), reported


def outcome_of_flip(work: Path, expected: Observed) -> str:
    try:
        observed, reported = read_namespace(work)
    except MessagingError:
        return "refused"
    for got, wanted in zip(observed.stores, expected.stores, strict=True):
        assert all(wanted.rows[key] == row for key, row in got.rows.items()), "a wrong message is served"
    assert all(row in expected.operations for row in observed.operations), "a wrong operation is billed"
    assert observed.key == expected.key
    assert observed.catalog == expected.catalog
    if reported:
        return "reported"
    assert observed == expected, "something differs, and nobody says so"
    return "harmless"


def check_flips(tmp_path: Path, count: int, seed: int, *, is_closed: bool) -> dict[str, Counter[str]]:
    whole, work = tmp_path / "whole", tmp_path / "work"
    make_namespace(whole, is_closed=is_closed)
    shutil.copytree(whole, work)
    expected, reported = read_namespace(work)
    assert reported == []
    assert len(expected.operations) == 300
    random = Random(seed)
    found = [path for path in sorted(whole.rglob("*")) if path.is_file() and path.name not in NO_DATA]
    used = {path: len(path.read_bytes().rstrip(b"\0")) for path in found if not path.name.endswith("-shm")}
    files = [path for path, size in used.items() if size]
    outcomes: dict[str, Counter[str]] = {}
    for _ in range(count):
        file = random.choice(files)
        bit = random.randrange(8 * used[file])
        shutil.rmtree(work)
        shutil.copytree(whole, work)
        name = file.relative_to(whole).as_posix()
        data = bytearray(file.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        (work / name).write_bytes(data)
        try:
            outcome = outcome_of_flip(work, expected)
        except BaseException as error:
            error.add_note(f"seed {seed}: bit {bit % 8} of byte {bit // 8} of {name}")
            raise
        outcomes.setdefault(name, Counter())[outcome] += 1
    return outcomes


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "crashed"])
def test_a_flipped_bit_in_any_file_is_harmless_or_reported(tmp_path: Path, is_closed: bool) -> None:
    outcomes = check_flips(tmp_path, 10, 1, is_closed=is_closed)
    assert sum(count for counts in outcomes.values() for name, count in counts.items() if name != "harmless") > 0


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "crashed"])
@pytest.mark.parametrize("seed", range(2, 5))
def test_many_flipped_bits_in_any_file_are_harmless_or_reported(
    tmp_path: Path, is_closed: bool, seed: int, measured: Measured
) -> None:
    outcomes = check_flips(tmp_path, 500, seed, is_closed=is_closed)
    for counts in outcomes.values():
        measured("flipped bits, data folder", counts)
