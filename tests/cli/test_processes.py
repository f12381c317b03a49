"""`twinbus serve --processes`: one namespace to every command, and nothing of it left when it ends."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.conftest import STOP_WAIT_S, Served, serve
from twinbus.cli.app import run
from twinbus.cli.failures import WRONG_USE
from twinbus.server.data.data_folder import DataFolder

WAIT_S = 60.0


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def family_of(served: Served) -> list[int]:
    """The supervisor's children and theirs."""
    children = children_of(served.process.pid)
    return children + [grandchild for child in children for grandchild in children_of(child)]


def wait_for_the_end_of(processes: list[int]) -> None:
    deadline = time.monotonic() + WAIT_S
    while any(Path(f"/proc/{pid}").exists() for pid in processes):
        assert time.monotonic() < deadline, "a process outlived its namespace"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--processes", "3", "--stores", "2"], "3 processes cannot share 2 messaging stores"),
        (["--processes", "2", "--store", "postgresql://localhost/bus"], "served by one process"),
        (["--processes", "0"], "'--processes'"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "shop", "--data", str(tmp_path), *options]) == WRONG_USE
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_commands_find_one_namespace_and_ctrl_c_ends_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(tmp_path, "shop", "--processes", "2", "--queue", "orders:partitioned") as served:
        place = ["--data", str(tmp_path), "--namespace", "shop"]
        assert run(["send", "orders", "hello", *place]) == 0
        assert run(["receive", "orders", *place]) == 0
        assert "hello" in capsys.readouterr().out
        assert run(["store", "down", "1", *place]) == 0
        assert run(["store", "up", "1", *place]) == 0
        processes = family_of(served)
        assert len(processes) >= 4
        assert served.stop() == 0
        wait_for_the_end_of(processes)
    DataFolder(tmp_path / "shop").close()  # it is free


def test_if_the_first_process_is_killed_the_others_end_and_the_folder_is_free(tmp_path: Path) -> None:
    with serve(tmp_path, "shop", "--processes", "2") as served:
        processes = family_of(served)
        os.kill(served.process.pid, signal.SIGKILL)
        served.process.wait(STOP_WAIT_S)
        wait_for_the_end_of(processes)
    DataFolder(tmp_path / "shop").close()
