from pathlib import Path

from twinbus.pipeline.stop_request import StopRequest


def test_a_job_stops_although_its_tasks_cannot_be_told(tmp_path: Path) -> None:
    """In a signal handler an error would end the job in the middle. The tasks end with the budget of the round."""
    stop = StopRequest(tmp_path / "no such folder" / "stop")
    stop.ask()
    assert stop.is_asked


def test_a_job_is_stopped_by_hand(tmp_path: Path) -> None:
    stop = StopRequest(tmp_path / "stop")
    assert not stop.is_asked
    (tmp_path / "stop").touch()
    assert stop.is_asked
