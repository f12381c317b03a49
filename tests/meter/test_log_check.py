"""Which files of a log can be billed, and which of them may hold the same operations."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cost.made_logs import busy_hours, millis, operation, write_log
from twinbus.meter.log_check import Unusable, Usable, check, check_whole, list_log, repeating, usable_files
from twinbus.meter.operation import Cause

START = millis("2026-11-15 07:00")
FOLDER = "date=2026-11-15/hour=07"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_log(tmp_path, busy_hours(START, 1, seed=1), seed=1)
    write_log(tmp_path, busy_hours(START, 1, seed=2), seed=2)
    return tmp_path


def names(log: Path) -> list[str]:
    return [file.name for file in list_log(log)]


def test_files_in_the_making_and_strange_folders_are_not_listed(log: Path) -> None:
    (log / FOLDER / "_tmp-node.parquet").write_bytes(b"")
    (log / "date=today/hour=07").mkdir(parents=True)
    (log / "date=today/hour=07/a.parquet").write_bytes(b"")
    assert names(log) == [f"{FOLDER}/node-0001.parquet", f"{FOLDER}/node-0002.parquet"]


def test_a_folder_of_an_hour_that_there_is_not_makes_its_files_sick_even_empty_ones(log: Path) -> None:
    folder = log / "date=2026-02-30/hour=07"
    folder.mkdir(parents=True)
    rows = pq.read_table(log / names(log)[0], partitioning=None)
    pq.write_table(rows, folder / "a.parquet")
    pq.write_table(rows.slice(0, 0), folder / "empty.parquet")
    _, unusable = usable_files(log)
    assert unusable == dict.fromkeys(
        ["date=2026-02-30/hour=07/a.parquet", "date=2026-02-30/hour=07/empty.parquet"],
        Unusable("is in a folder whose name is not an hour of any day"),
    )


def test_files_of_different_runs_share_no_operation(log: Path) -> None:
    usable, unusable = usable_files(log)
    assert not unusable
    assert repeating(usable.items()) == set()


def test_a_copy_of_a_file_and_its_original_may_share_operations(log: Path) -> None:
    shutil.copy(log / FOLDER / "node-0001.parquet", log / FOLDER / "copy.parquet")
    usable, _ = usable_files(log)
    assert repeating(usable.items()) == {f"{FOLDER}/node-0001.parquet", f"{FOLDER}/copy.parquet"}


def test_a_file_merged_of_two_runs_may_share_operations_with_both(log: Path) -> None:
    both = pa.concat_tables([pq.read_table(log / name, partitioning=None) for name in names(log)])
    pq.write_table(both, log / FOLDER / "merged.parquet", row_group_size=200)
    usable, _ = usable_files(log)
    assert repeating(usable.items()) == set(usable)


def test_a_file_that_ends_too_early_is_sick(log: Path) -> None:
    file = log / FOLDER / "node-0001.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    found = check(log, f"{FOLDER}/node-0001.parquet")
    assert isinstance(found, Unusable)
    assert found.reason.startswith("is not a complete Parquet file")


def test_an_empty_file_is_sick(log: Path) -> None:
    (log / FOLDER / "node-0001.parquet").write_bytes(b"")
    assert isinstance(check(log, f"{FOLDER}/node-0001.parquet"), Unusable)


def test_damage_in_the_middle_is_found_by_reading_all_of_it(log: Path) -> None:
    file = log / FOLDER / "node-0001.parquet"
    content = bytearray(file.read_bytes())
    content[200:1200] = bytes(1000)
    file.write_bytes(content)
    name = f"{FOLDER}/node-0001.parquet"
    assert isinstance(check(log, name), Usable)
    found = check_whole(log, name)
    assert isinstance(found, Unusable)
    assert found.reason.startswith("is damaged inside")


def test_a_file_without_the_columns_is_sick(log: Path) -> None:
    pq.write_table(pa.table({"op_id": ["x"]}), log / FOLDER / "other.parquet")
    assert check(log, f"{FOLDER}/other.parquet") == Unusable("has no column 'at'")


def test_a_file_with_a_column_of_another_type_is_sick(log: Path) -> None:
    table = pq.read_table(log / FOLDER / "node-0001.parquet", partitioning=None)
    index = table.column_names.index("units")
    pq.write_table(table.set_column(index, "units", table["units"].cast(pa.float64())), log / FOLDER / "other.parquet")
    assert check(log, f"{FOLDER}/other.parquet") == Unusable("has a column 'units' of double instead of int64")


def test_a_file_of_a_newer_version_is_sick(log: Path) -> None:
    table = pq.read_table(log / FOLDER / "node-0001.parquet", partitioning=None)
    index = table.column_names.index("schema_version")
    newer = pa.array([9] * len(table), pa.int16())
    pq.write_table(table.set_column(index, "schema_version", newer), log / FOLDER / "newer.parquet")
    found = check(log, f"{FOLDER}/newer.parquet")
    assert isinstance(found, Unusable)
    assert "newer twinbus" in found.reason


def test_a_file_in_the_folder_of_another_hour_is_sick(tmp_path: Path) -> None:
    (written,) = write_log(tmp_path, [operation(START, Cause.SEND)])
    other = tmp_path / "date=2026-11-15/hour=08"
    other.mkdir()
    shutil.move(written, other / "moved.parquet")
    found = check(tmp_path, "date=2026-11-15/hour=08/moved.parquet")
    assert isinstance(found, Unusable)
    assert "not the hour of its folder" in found.reason


@pytest.mark.parametrize("at", [START, START + 3_599_999])
def test_the_first_and_the_last_millisecond_of_an_hour_are_in_it(tmp_path: Path, at: int) -> None:
    write_log(tmp_path, [operation(at, Cause.SEND)])
    assert isinstance(check(tmp_path, names(tmp_path)[0]), Usable)
