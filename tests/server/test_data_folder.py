from pathlib import Path

import pytest

from twinbus.errors import ArgumentError, StoreInUse
from twinbus.server.data_folder import DataFolder


def test_a_folder_in_use_is_refused_with_the_process_that_has_it(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "data")
    with pytest.raises(StoreInUse, match=r"in use by process \d+"):
        DataFolder(tmp_path / "data")
    first.close()
    DataFolder(tmp_path / "data").close()


def test_the_key_is_drawn_once_and_readable_by_the_owner_alone(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    key = folder.root_rule(None).primary_key
    assert len(key) == 44
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    folder.close()
    again = DataFolder(tmp_path)
    assert again.root_rule(None).primary_key == key
    with pytest.raises(ArgumentError, match="another key"):
        again.root_rule("SAS_KEY_VALUE")
    again.close()


def test_the_number_of_stores_is_fixed_at_the_first_start(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    assert [path.name for path in folder.store_paths(3)] == ["00", "01", "02"]
    with pytest.raises(ArgumentError, match="--stores 3"):
        folder.store_paths(16)
    folder.close()
