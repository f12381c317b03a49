"""How many processes serve a namespace if nobody says."""

from pathlib import Path

import pytest

from twinbus.server.nodes.process_count import best_process_count, cores_here


@pytest.mark.parametrize(
    ("cores", "stores", "count"), [(1, 16, 1), (2, 16, 1), (3, 16, 1), (4, 16, 2), (8, 16, 4), (64, 16, 4), (8, 2, 2)]
)
def test_there_is_one_for_every_two_cores_and_never_more_than_stores(cores: int, stores: int, count: int) -> None:
    assert best_process_count(cores, stores) == count


def test_a_container_has_the_cores_of_its_quota(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    all_of_them = cores_here(quota)
    quota.write_text("max 100000\n")
    assert cores_here(quota) == all_of_them
    quota.write_text("150000 100000\n")
    assert cores_here(quota) == 1
    quota.write_text("50000 100000\n")
    assert cores_here(quota) == 1
