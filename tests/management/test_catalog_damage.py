"""A catalog that the disk changed is refused with its file and the place, wherever the bit is; it never serves what was not written."""

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.management.conftest import NOON
from tests.management.test_catalog import ACCESS, RULES
from tests.measured import Measured
from twinbus.errors import InternalError
from twinbus.management.catalog import Catalog, Entry, NamespaceInfo
from twinbus.management.catalog_checks import MARK_SUFFIX
from twinbus.model.descriptions import AuthorizationRule, QueueDescription, SubscriptionDescription, TopicDescription

NAME = "catalog.db"


@dataclass(frozen=True)
class Observed:
    namespace: NamespaceInfo
    entries: list[Entry]
    rules: list[AuthorizationRule]
    next_id: int


def observe(file: Path) -> Observed:
    catalog = Catalog.in_file(file, "another", NOON)
    try:
        kinds = (QueueDescription, TopicDescription, SubscriptionDescription)
        entries = [entry for kind in kinds for entry in catalog.entries(kind)]
        return Observed(catalog.namespace, entries, catalog.namespace_rules(), catalog.new_id())
    finally:
        catalog.close()


def filled(folder: Path) -> Catalog:
    folder.mkdir()
    catalog = Catalog.in_file(folder / NAME, "contoso", NOON)
    catalog.add(catalog.new_id(), QueueDescription("orders", authorization_rules=(ACCESS,)), NOON, first_store=2)
    catalog.add(catalog.new_id(), TopicDescription("t"), NOON)
    catalog.add(catalog.new_id(), SubscriptionDescription("t", "s"), NOON, RULES)
    catalog.add(catalog.new_id(), QueueDescription("gone"), NOON)
    catalog.remove("gone")
    catalog.update(QueueDescription("orders", max_delivery_count=3), NOON + 1)
    catalog.remove_rule("t/subscriptions/s", RULES[0].name)
    catalog.set_namespace_rule(ACCESS)
    return catalog


def check_flips(tmp_path: Path, count: int, seed: int, *, is_closed: bool) -> Counter[str]:
    catalog = filled(tmp_path / "first")
    if is_closed:
        catalog.close()
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "first", whole)
    catalog.close()
    shutil.copytree(whole, tmp_path / "copy")
    expected = observe(tmp_path / "copy" / NAME)
    assert len(expected.entries) == 3
    random, outcomes = Random(seed), Counter[str]()
    files = [path for path in sorted(whole.iterdir()) if path.stat().st_size and not path.name.endswith("-shm")]
    for _ in range(count):
        work, file = tmp_path / "work", random.choice(files)
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(whole, work)
        data = bytearray(file.read_bytes())
        bit = random.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        (work / file.name).write_bytes(data)
        try:
            observed = observe(work / NAME)
        except InternalError as error:
            outcomes["refused" if NAME in str(error) else "refused without a place"] += 1
        else:
            assert observed == expected, f"bit {bit % 8} of byte {bit // 8} of {file.name}"
            outcomes["harmless"] += 1
    assert not outcomes["refused without a place"]
    return outcomes


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "crashed"])
def test_a_flipped_bit_in_the_catalog_is_harmless_or_refused(tmp_path: Path, is_closed: bool) -> None:
    outcomes = check_flips(tmp_path, 80, 1, is_closed=is_closed)
    assert outcomes["refused"] > 5, outcomes


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "crashed"])
def test_many_flipped_bits_in_the_catalog_are_harmless_or_refused(
    tmp_path: Path, is_closed: bool, measured: Measured
) -> None:
    measured("flipped bits, catalog", check_flips(tmp_path, 2_000, 2, is_closed=is_closed))


def test_a_schema_that_is_no_text_any_more_is_refused_with_the_file(tmp_path: Path) -> None:
    """Neither its checksum nor an error of the library that quotes it can be written as text then."""
    filled(tmp_path / "first").close()
    whole = (tmp_path / "first" / NAME).read_bytes()
    file, refused_count, unnamed_count = tmp_path / "work" / NAME, 0, 0
    expected = observe(tmp_path / "first" / NAME)
    begin, end = whole.index(b"CREATE TRIGGER"), whole.rindex(b"CREATE TABLE") + 50
    for place in range(min(begin, end), max(begin, end), 29):
        shutil.rmtree(file.parent, ignore_errors=True)
        shutil.copytree(tmp_path / "first", file.parent)
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        try:
            assert observe(file) == expected, "what the file does not use any more"
        except InternalError as error:
            refused_count += NAME in str(error)
            unnamed_count += NAME not in str(error)
    assert (refused_count > 10, unnamed_count) == (True, 0)


def test_changes_that_the_log_lost_are_noticed(tmp_path: Path) -> None:
    catalog = filled(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "crashed")
    catalog.close()
    log = tmp_path / "crashed" / f"{NAME}-wal"
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    with pytest.raises(InternalError, match=r"its last \d+ changes are missing") as refused:
        Catalog.in_file(tmp_path / "crashed" / NAME, "contoso", NOON)
    assert refused.value.__traceback__, "what it leads to is still there"
    assert not log.exists(), "nobody has the file open, so a copy can take its place"


@pytest.mark.parametrize("left", ["nothing", "an empty file", "a file without tables"])
def test_a_catalog_that_was_in_use_and_is_gone_is_refused_and_not_created(tmp_path: Path, left: str) -> None:
    """Also without its mark, which a power cut may have taken too."""
    file = tmp_path / NAME
    if left == "an empty file":
        file.touch()
    elif left == "a file without tables":
        with closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA journal_mode = WAL")
    for _ in ("first", "again"):
        with pytest.raises(InternalError, match=f"{file} is missing or empty, and the namespace has been in use"):
            Catalog.in_file(file, "contoso", NOON, was_in_use=True)
    assert file.exists() == (left != "nothing")
    Catalog.in_file(file, "contoso", NOON).close()
    Catalog.in_file(file, "contoso", NOON, was_in_use=True).close()


def test_an_older_copy_is_taken_once_its_mark_is_removed(tmp_path: Path) -> None:
    catalog = filled(tmp_path / "first")
    catalog.close()
    file = tmp_path / "first" / NAME
    shutil.copy(file, tmp_path / "backup")
    catalog = Catalog.in_file(file, "contoso", NOON)
    catalog.remove("orders")
    catalog.close()
    shutil.copy(tmp_path / "backup", file)
    with pytest.raises(InternalError, match="run 'twinbus store restored'"):
        Catalog.in_file(file, "contoso", NOON)
    file.with_name(f"{NAME}{MARK_SUFFIX}").unlink()
    catalog = Catalog.in_file(file, "contoso", NOON)
    assert catalog.find("orders") is not None
    catalog.close()
