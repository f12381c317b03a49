"""Small files that are written whole: private, and an error says which one it was."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from twinbus.store.folder.private_file import write_private


@contextmanager
def no_room_for_bytes() -> Iterator[None]:
    """As on a full disk: files can be created, and nothing can be written to them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_is_written_whole_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "key.draft").write_text("left by a crash")
    for text in ("one\n", "another one\n"):
        write_private(tmp_path / "key", text)
        assert (tmp_path / "key").read_text() == text
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_file_that_finds_no_room_is_named_and_stays_what_it_was(tmp_path: Path) -> None:
    write_private(tmp_path / "key", "before")
    with no_room_for_bytes(), pytest.raises(OSError, match="File too large") as raised:
        write_private(tmp_path / "key", "after")
    assert str(tmp_path / "key") in str(raised.value)
    assert (tmp_path / "key").read_text() == "before"


def test_what_the_system_names_itself_is_kept(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write_private(tmp_path / "missing" / "key", "text")
    assert raised.value.filename == str(tmp_path / "missing" / "key.draft")
