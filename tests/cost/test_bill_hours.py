"""Which hours are counted anew, decided from names, sizes and times of files alone."""

from pathlib import Path

import pytest

from twinbus.meter.log_check import LogFile, Unusable, Usable
from twinbus.pipeline.bill.counts import FILES_A_STEP_MAX, log_name, steps
from twinbus.pipeline.bill.hours import Hour, Work, plan_work
from twinbus.pipeline.bill.manifest import (
    Manifest,
    ManifestDamaged,
    billed_elsewhere,
    read_manifest,
    write_manifest,
)

SEVEN, EIGHT = "date=2026-11-15/hour=07", "date=2026-11-15/hour=08"


def file(name: str, size: int = 1, modified_ns: int = 1) -> LogFile:
    return LogFile(name, size, modified_ns)


def plan(listing: list[LogFile], billed: list[LogFile], unusable: tuple[str, ...] = ()) -> Work:
    def check(name: str) -> Usable | Unusable:
        return Unusable("is broken") if name in unusable else Usable(1, name, name, name)

    return plan_work(listing, Manifest({each.name: each for each in billed}), check)


def counted(work: Work) -> dict[str, list[str]]:
    return {hour.name: [each.name for each in hour.files] for hour in work.hours}


A, B, C = file(f"{SEVEN}/a.parquet"), file(f"{SEVEN}/b.parquet"), file(f"{EIGHT}/c.parquet")


def test_hours_without_anything_new_are_left_alone() -> None:
    assert counted(plan([A, B, C], billed=[A, B, C])) == {}


def test_a_late_file_has_its_whole_hour_counted_anew_and_no_other() -> None:
    assert counted(plan([A, B, C], billed=[A, C])) == {SEVEN: [A.name, B.name]}


def test_a_file_that_was_replaced_has_its_hour_counted_anew() -> None:
    assert counted(plan([file(A.name, size=2), C], billed=[A, C])) == {SEVEN: [A.name]}


def test_a_sick_file_is_named_and_the_rest_of_its_hour_is_counted() -> None:
    work = plan([A, B], billed=[], unusable=(B.name,))
    assert counted(work) == {SEVEN: [A.name]}
    assert work.unusable == {B.name: "is broken"}


def test_a_sick_file_alone_changes_nothing_but_is_named_in_every_run() -> None:
    work = plan([A, B], billed=[A], unusable=(B.name,))
    assert counted(work) == {}
    assert work.unusable == {B.name: "is broken"}


def test_an_hour_of_which_a_billed_file_is_gone_keeps_its_counts() -> None:
    work = plan([B, C], billed=[A, C])
    assert counted(work) == {}
    assert list(work.held_back) == [B.name]
    assert A.name in work.held_back[B.name]


def test_an_hour_of_which_a_billed_file_broke_keeps_its_counts() -> None:
    work = plan([file(A.name, size=2), B], billed=[A], unusable=(A.name,))
    assert counted(work) == {}
    assert work.unusable == {A.name: "is broken"}
    assert list(work.held_back) == [B.name]


def test_a_log_that_was_cleared_away_keeps_its_bill() -> None:
    assert counted(plan([], billed=[A, B, C])) == {}


def test_only_files_of_touched_hours_are_looked_at() -> None:
    asked = []

    def check(name: str) -> Usable | Unusable:
        asked.append(name)
        return Usable(1, name, name, name)

    plan_work([A, B, C], Manifest({A.name: A, C.name: C}), check)
    assert asked == [A.name, B.name]


def test_hours_go_to_spark_in_portions_that_it_can_list() -> None:
    hours = [Hour(f"{number}", [A] * 1_500, []) for number in range(5)]
    portions = list(steps(hours))
    assert [len(portion) for portion in portions] == [2, 2, 1]
    assert all(sum(len(hour.files) for hour in portion) <= FILES_A_STEP_MAX for portion in portions)


def test_what_was_billed_is_read_again_as_it_was_written(tmp_path: Path) -> None:
    manifest = Manifest({A.name: A}, {B.name: "is broken"})
    write_manifest(tmp_path / "state" / "log.json", manifest, tmp_path)
    assert read_manifest(tmp_path / "state" / "log.json") == manifest
    assert read_manifest(tmp_path / "none.json") == Manifest()


def test_notes_that_cannot_be_read_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text("{")
    with pytest.raises(ManifestDamaged, match="bill the whole log again"):
        read_manifest(tmp_path / "log.json")


def test_a_log_that_was_moved_is_known_by_its_files(tmp_path: Path) -> None:
    write_manifest(tmp_path / "old.json", Manifest({A.name: A}), Path("/data/old"))
    assert billed_elsewhere(tmp_path / "new.json", [A, C]) == Path("/data/old")
    assert billed_elsewhere(tmp_path / "new.json", [C, file(A.name, size=7)]) is None
    assert billed_elsewhere(tmp_path / "old.json", [A]) is None


def test_logs_of_two_folders_have_two_names() -> None:
    one, other = log_name(Path("/data/contoso/operations")), log_name(Path("/other/contoso/operations"))
    assert one != other
    assert one.startswith("contoso-operations-")


@pytest.mark.parametrize("left", ['{"version": 1, "log": ', None])
def test_a_draft_that_a_full_disk_or_a_crash_left_says_nothing_of_what_was_billed(
    tmp_path: Path, left: str | None
) -> None:
    notes, billed = tmp_path / "state" / "log.json", file("a.parquet")
    manifest = Manifest()
    manifest.bill([billed])
    write_manifest(notes, manifest, tmp_path / "log")
    draft = notes.rename(notes.with_name(f"_tmp-{notes.name}"))
    if left is not None:
        draft.write_text(left)
    assert billed_elsewhere(notes, [billed]) is None
