"""Operations outlive the process that counted them."""

from pathlib import Path

import pytest

from tests.meter.operation_rows import NOON, operation, read_log
from twinbus.meter.log_format import ulid
from twinbus.meter.rotation import rotate
from twinbus.meter.spool import End, Spool, SpoolFacts, SpoolHeld, SpoolReader, spool_files

FACTS = SpoolFacts("contoso", "node", NOON, 5)


def filled(folder: Path, *batches: int) -> Path:
    """A spool of so many rows in each frame, closed."""
    spool = Spool(folder, FACTS)
    number = 0
    for count in batches:
        spool.append([operation(NOON + number + step, f"m-{number + step}") for step in range(count)])
        number += count
    spool.close()
    return spool.path


def read(path: Path) -> tuple[list[str | None], End]:
    reader = SpoolReader(path)
    ids = [row.message_id for row in reader.rows()]
    reader.close()
    return ids, reader.end


def test_rows_come_back_as_they_were_appended(tmp_path: Path) -> None:
    spool = Spool(tmp_path, FACTS)
    rows = [operation(), operation(message_id=None, sequence_number=None, fragment=-1)]
    spool.append(rows)
    spool.close()
    reader = SpoolReader(spool.path)
    assert list(reader.rows()) == rows
    assert (reader.facts, reader.end) == (FACTS, End.WHOLE)
    reader.close()


def test_a_tail_that_was_torn_anywhere_is_cut_and_all_before_it_counts(tmp_path: Path) -> None:
    path = filled(tmp_path, 3, 2)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        ids, end = read(path)
        assert ids in ([], ["m-0", "m-1", "m-2"])
        assert end is not End.DAMAGED
    path.write_bytes(whole)
    assert read(path) == ([f"m-{number}" for number in range(5)], End.WHOLE)


def test_a_spool_that_somebody_appends_to_is_left_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path, FACTS)
    spool.append([operation()])
    with pytest.raises(SpoolHeld):
        SpoolReader(spool.path)
    assert rotate(tmp_path) == []
    spool.close()
    assert len(rotate(tmp_path)) == 1


@pytest.mark.rule("D1")
def test_a_torn_spool_becomes_parquet_without_its_tail(tmp_path: Path) -> None:
    path = filled(tmp_path, 3, 2)
    path.write_bytes(path.read_bytes()[:-1])
    rotate(tmp_path)
    assert [row["message_id"] for row in read_log(tmp_path)] == ["m-0", "m-1", "m-2"]
    assert not spool_files(tmp_path)


def test_damage_that_no_crash_explains_is_kept_aside(tmp_path: Path) -> None:
    path = filled(tmp_path, 3, 2)
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    rotate(tmp_path)
    assert len(read_log(tmp_path)) == 3
    assert path.with_name(path.name + ".damaged").exists()


def test_a_spool_that_is_rotated_twice_makes_the_same_files(tmp_path: Path) -> None:
    """As after a crash between the files and the removal of the spool."""
    path = filled(tmp_path, 4)
    content = path.read_bytes()
    first = rotate(tmp_path)
    before = read_log(tmp_path)
    path.write_bytes(content)
    assert rotate(tmp_path) == first
    assert read_log(tmp_path) == before


def test_rows_go_into_the_hour_of_their_own_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path, FACTS)
    spool.append([operation(NOON - 1, "before"), operation(NOON, "after")])
    spool.close()
    assert [str(path.parent.relative_to(tmp_path)) for path in rotate(tmp_path)] == [
        "date=2023-11-15/hour=11",
        "date=2023-11-15/hour=12",
    ]
    assert [row["message_id"] for row in read_log(tmp_path)] == ["before", "after"]


def test_half_a_file_is_no_part_of_the_log(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    (made,) = rotate(tmp_path)
    made.with_name(f"_tmp-{made.name}").write_bytes(made.read_bytes()[:100])
    assert len(read_log(tmp_path)) == 2


def test_ids_are_unique_and_sort_by_time(tmp_path: Path) -> None:
    filled(tmp_path, 50, 50)
    rotate(tmp_path)
    rows = read_log(tmp_path)
    assert len({row["op_id"] for row in rows}) == 100
    assert [row["message_id"] for row in rows] == [f"m-{number}" for number in range(100)]


def test_an_ulid_is_time_and_tail_in_26_characters() -> None:
    assert ulid(0, 0) == "0" * 26
    assert ulid(2**48 - 1, 2**48 - 1, 2**32 - 1) == "7" + "Z" * 25
    assert ulid(1_469_918_176_385, 0)[:10] == "01ARYZ6S41"
