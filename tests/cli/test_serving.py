"""Namespaces as processes: ready, stopped, refused, and two at once."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import STOP_WAIT_S, Served, serve
from twinbus.cli.app import run
from twinbus.cli.namespaces.next_steps import shown_command
from twinbus.cli.namespaces.running import find_running, read_running

ENTITIES = """
[[queue]]
name = "from-file"
sessions = true
lock_duration = "30s"

[[topic]]
name = "events"
[[topic.subscription]]
name = "all"
"""

TWO = """
import sys
from pathlib import Path
from twinbus.cli.app import run
from twinbus.cli.namespaces import two_namespaces as two
seats = tuple(two.Seat(seat.name, 0, 0) for seat in two.SEATS)
two.run_two.__defaults__ = (seats,)
sys.exit(run(["up", "--data", sys.argv[1], "--stores", "1", "--json", *sys.argv[2:]]))
"""

TWO_IN_WORDS = TWO.replace('"--json", ', "")


def test_entities_are_made_at_start_and_those_that_exist_stay(tmp_path: Path) -> None:
    from twinbus.client.administration import administration_client

    file = tmp_path / "entities.toml"
    file.write_text(ENTITIES)
    options = ["--queue", "plain", "--queue", "split:partitioned", "--entities", str(file)]
    for _ in range(2):
        with serve(tmp_path / "data", "contoso", *options) as served:
            running = find_running(tmp_path / "data", "contoso")
            with administration_client(running.connection_string, running.endpoint) as client:
                names = {queue.name: queue for queue in client.list_queues()}
                assert [each.name for each in client.list_subscriptions("events")] == ["all"]
            assert served.stop() == 0
        assert list(names) == ["from-file", "plain", "split"]
        assert names["split"].enable_partitioning
        assert names["from-file"].requires_session
    assert read_running(tmp_path / "data" / "contoso") is None


def test_a_second_process_is_refused_and_the_first_goes_on(served: Served) -> None:
    command = [sys.executable, "-m", "twinbus", "serve", "primary", "--data", str(served.data), "--stores", "2"]
    second = subprocess.run(
        [*command, "--amqp-port", "0", "--http-port", "0"], capture_output=True, text=True, timeout=STOP_WAIT_S
    )
    assert second.returncode == 1
    lines = [line for line in second.stderr.splitlines() if line.startswith("twinbus: ")]
    assert len(lines) == 1
    assert "in use" in lines[0]
    assert "Traceback" not in second.stderr
    assert find_running(served.data, "primary").pid == served.process.pid


def test_keys_and_messages_are_for_the_owner_alone(served: Served) -> None:
    folder = served.data / "primary"
    names = {"running.json", "key", *(path.name for path in folder.glob("catalog.db*"))}
    assert names >= {"catalog.db", "catalog.db-wal"}
    for file in (*(folder / name for name in names), *(path for path in folder.glob("stores/*/*") if path.is_file())):
        assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_two_namespaces_start_and_stop_together(tmp_path: Path, ending: signal.Signals) -> None:
    command = [sys.executable, "-c", TWO, str(tmp_path), "--tls", "--no-meter"]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert up.stdout is not None
    both = json.loads(up.stdout.readline())
    assert [each["name"] for each in both] == ["primary", "secondary"]
    assert all(f":{each['tls_port']};" in each["tls_connection_string"] for each in both)
    assert all(Path(each["tls_authority"]).is_file() for each in both)
    assert all(read_running(tmp_path / each["name"]) is not None for each in both)
    up.send_signal(ending)
    assert up.wait(STOP_WAIT_S) == 0
    assert all(read_running(tmp_path / each["name"]) is None for each in both)


def test_the_python_that_is_printed_works_as_it_stands_and_again(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", TWO_IN_WORDS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        printed = ""
        while "Ctrl-C stops both" not in printed:
            line = up.stdout.readline()
            assert line, printed
            printed += line
        try:
            assert printed.count("Endpoint=sb://") == 3  # both namespaces, and the one in the snippet
            assert "twinbus rehearse" in printed
            assert f"send orders hello --data {tmp_path} " in printed
            snippet = printed[printed.index("from contextlib") : printed.index("Try next")]
            for _ in range(2):
                with contextlib.redirect_stdout(io.StringIO()) as said:
                    exec(snippet, {})
                assert said.getvalue() == "hello\n"
            # Nothing was done in the secondary so far, and that is no reason to show nothing of the primary.
            assert run(["cost", "what-if", "--poll", "5m", "--data", str(tmp_path)]) == 0
        finally:
            up.send_signal(signal.SIGINT)
    assert up.returncode == 0


@pytest.mark.parametrize(
    ("started", "on_path", "shown"),
    [
        ("/opt/bin/twinbus", "/opt/bin/twinbus", "twinbus"),
        ("/work-folder/.venv/bin/twinbus", None, ".venv/bin/twinbus"),
        (".venv/bin/twinbus", "/opt/bin/twinbus", ".venv/bin/twinbus"),
        ("/elsewhere/twinbus", "/opt/bin/twinbus", "/elsewhere/twinbus"),
        ("/work-folder/src/twinbus/__main__.py", None, f"{sys.executable} -m twinbus"),
    ],
)
def test_the_command_is_shown_as_it_can_be_typed(started: str, on_path: str | None, shown: str) -> None:
    assert shown_command(Path(started), on_path, Path("/work-folder")) == shown


def test_when_one_namespace_ends_the_other_is_stopped_and_the_reason_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TWO, str(tmp_path), "--no-meter"]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert up.stdout is not None
    both = json.loads(up.stdout.readline())
    os.kill(both[1]["pid"], signal.SIGKILL)
    _, errors = up.communicate(timeout=STOP_WAIT_S)
    assert up.returncode == 1
    assert "The namespace 'secondary' stopped" in errors
    assert read_running(tmp_path / "primary") is None


def test_what_keeps_a_namespace_from_starting_is_told(tmp_path: Path) -> None:
    for name in ("primary", "secondary"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "store-count").write_text("3\n")
    up = subprocess.run([sys.executable, "-c", TWO, str(tmp_path)], capture_output=True, text=True, timeout=STOP_WAIT_S)
    assert up.returncode == 1
    assert "3 messaging stores" in up.stderr
