"""Locks of captures, and places that have none."""

import fcntl
from pathlib import Path

import pytest

from twinbus.pipeline.capture_lock import CaptureLock, CaptureRuns


def test_a_capture_is_refused_until_the_one_before_it_has_ended(tmp_path: Path) -> None:
    place = tmp_path / "lake" / "_locks" / "orders"
    first = CaptureLock.take(place)
    assert first is not None
    with pytest.raises(CaptureRuns, match=str(place)):
        CaptureLock.take(place)
    assert CaptureLock.take(place.with_name("returns")) is not None
    first.release()
    assert CaptureLock.take(place) is not None


def test_a_file_system_without_locks_keeps_nobody_from_capturing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert CaptureLock.take(tmp_path / "orders") is None
    assert CaptureLock.take(tmp_path / "orders") is None
