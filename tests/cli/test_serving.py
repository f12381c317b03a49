"""Namespaces as processes: ready, stopped, refused, and two at once."""

import contextlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import STOP_WAIT_S, Served, serve
from tests.gateway.web_token_keys import jwk, key_set
from twinbus.cli.app import run
from twinbus.cli.failures import WRONG_USE
from twinbus.cli.namespaces.next_steps import shown_command
from twinbus.cli.namespaces.running import RunningNamespace, announce, find_known, find_running, read_running
from twinbus.errors import ArgumentError
from twinbus.management.catalog import Catalog
from twinbus.server import serving
from twinbus.server.data.data_folder import DataFolder
from twinbus.server.data.holdings import CATALOG_NAME
from twinbus.server.listening.sockets import bind

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

TWO = [sys.executable, "-m", "twinbus", "up", "--amqp-port", "0", "--http-port", "0", "--stores", "1", "--no-portal"]


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


def test_a_process_that_is_refused_does_not_withdraw_the_one_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In containers every namespace is process 1, and two containers may have the same volume."""
    monkeypatch.setattr(serving, "set_up_process", lambda *_: None)  # this process is not one of its own
    folder = DataFolder(tmp_path / "shop")
    running = RunningNamespace("shop", os.getpid(), "127.0.0.1", 1, 2, "Endpoint=sb://127.0.0.1:1")
    announce(folder.path, running)
    assert run(["serve", "shop", "--data", str(tmp_path), "--amqp-port", "0", "--http-port", "0"]) == 1
    assert read_running(folder.path) == replace(running, also_listens=[])
    folder.close()


def test_a_namespace_that_was_killed_does_not_run_because_another_process_has_its_number(tmp_path: Path) -> None:
    with contextlib.closing(DataFolder(tmp_path / "shop")) as folder:
        announce(folder.path, RunningNamespace("shop", os.getpid(), "127.0.0.1", 1, 2, "Endpoint=sb://127.0.0.1:1"))
        assert read_running(folder.path) is not None
    assert read_running(folder.path) is None
    assert find_known(tmp_path, "shop").pid == os.getpid(), "where it is to come back"


def test_a_namespace_does_not_run_because_another_command_holds_its_folder(tmp_path: Path) -> None:
    with contextlib.closing(DataFolder(tmp_path / "shop")) as folder:
        announce(folder.path, RunningNamespace("shop", os.getppid(), "127.0.0.1", 1, 2, "Endpoint=sb://127.0.0.1:1"))
        assert read_running(folder.path) is None


def test_keys_and_messages_are_for_the_owner_alone(served: Served) -> None:
    folder = served.data / "primary"
    names = {"running.json", "key", *(path.name for path in folder.glob("catalog.db*"))}
    assert names >= {"catalog.db", "catalog.db-wal"}
    for file in (*(folder / name for name in names), *(path for path in folder.glob("stores/*/*") if path.is_file())):
        assert file.stat().st_mode & 0o077 == 0, file


def free_ports(count: int) -> int:
    """The first of some that are free one after another."""
    for first in random.sample(range(10_000, 20_000), 50):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(bind("127.0.0.1", port))
            except ArgumentError:
                continue
            return first
    raise AssertionError("no ports are free")


def test_the_printed_connection_string_is_enough_for_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even where nothing is known of the namespace but that."""
    with serve(tmp_path / "data", "contoso", "--queue", "orders") as served:
        place = ["--connection-string", served.ready["connection_string"], "--data", str(tmp_path / "nothing")]
        assert run(["queue", "list", *place, "--json"]) == 0
        assert [queue["name"] for queue in json.loads(capsys.readouterr().out)] == ["orders"]
        assert run(["send", "orders", "hello", *place]) == 0
        assert run(["purge", "orders", "--yes", *place]) == 0
        assert served.stop() == 0


def test_the_secondary_has_the_next_ports_and_the_primary_the_further_ones(tmp_path: Path) -> None:
    first = free_ports(9)
    extra = str(first + 8)
    ports = ["--amqp-port", str(first), "--http-port", str(first + 2), "--tls-port", str(first + 4)]
    command = [
        *TWO[:4],
        "--no-portal",
        *ports,
        "--stores",
        "1",
        "--also-listen",
        extra,
        "--no-meter",
        "--json",
        "--data",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        both = json.loads(up.stdout.readline())
        up.send_signal(signal.SIGINT)
    assert [(each["amqp_port"], each["http_port"], each["tls_port"]) for each in both] == [
        (first, first + 2, first + 4),
        (first + 1, first + 3, first + 7),
    ]
    assert [each["also_listens"] for each in both] == [[f"{extra}/plain"], []]


def test_what_is_advertised_is_printed_and_commands_on_this_machine_do_not_need_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(tmp_path, "contoso", "--advertise", "contoso.invalid", "--queue", "orders") as served:
        port = served.ready["amqp_port"]
        assert served.ready["connection_string"].startswith(f"Endpoint=sb://contoso.invalid:{port};")
        for words in (["queue", "list"], ["send", "orders", "hello"], ["store", "list", "-n", "contoso"]):
            by_name = [] if words[0] == "store" else ["--namespace", "contoso"]
            assert run([*words, *by_name, "--data", str(tmp_path)]) == 0, capsys.readouterr().err
        assert served.stop() == 0


@pytest.mark.parametrize("command", [["serve", "x"], ["up"]])
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--also-listen", "80;443"], "is not a port"),
        (["--amqp-port", "5000", "--also-listen", "5000"], "given twice"),
        (["--advertise", "http://x"], "is not a host name"),
    ],
)
def test_wrong_ports_and_names_are_one_line_and_exit_code_2(
    command: list[str], options: list[str], complaint: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--data", str(tmp_path), *options]) == WRONG_USE
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert complaint in said


TRUST = """
[[issuer]]
issuer = "https://issuer.test"
keys = "keys.json"
[[issuer.grant]]
claim = "roles"
value = "owner"
rights = ["Manage"]
"""


def test_a_trusted_issuer_needs_its_keys_when_the_namespace_starts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, keys = tmp_path / "trust.toml", tmp_path / "keys.json"
    file.write_text("issuer = 5")
    options = [
        "serve",
        "contoso",
        "--data",
        str(tmp_path),
        "--amqp-port",
        "0",
        "--http-port",
        "0",
        "--trust",
        str(file),
    ]
    assert run(options) == WRONG_USE
    assert "'issuer' must be a list of tables" in capfd.readouterr().err
    file.write_text(TRUST)
    assert run(options) == WRONG_USE
    said = capfd.readouterr().err
    assert (said.count("\n"), "keys.json cannot be read" in said) == (1, True)
    keys.write_bytes(key_set(jwk("one")))
    with serve(tmp_path / "data", "contoso", "--trust", str(file)) as served:
        assert served.stop() == 0


def test_a_port_that_the_primary_cannot_have_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [*TWO, "--data", str(tmp_path), "--also-listen", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=STOP_WAIT_S)
    assert (done.returncode, done.stderr.count("\n")) == (WRONG_USE, 1)
    assert f"Port {port} on 127.0.0.1 is in use" in done.stderr


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
def test_two_namespaces_start_and_stop_together(tmp_path: Path, ending: signal.Signals) -> None:
    signal.signal(ending, signal.SIG_DFL)  # under `nohup` a hang-up is ignored, and by what is started here as well
    command = [*TWO, "--data", str(tmp_path), "--tls-port", "0", "--no-meter", "--json"]
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
    with subprocess.Popen([*TWO, "--data", str(tmp_path)], stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        printed = ""
        while "Ctrl-C stops both" not in printed:
            line = up.stdout.readline()
            assert line, printed
            printed += line
        try:
            assert printed.count("Endpoint=sb://") == 3  # both namespaces, and the one in the snippet
            assert "twinbus rehearse" in printed
            assert f"send jobs hello --data {tmp_path} " in printed
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


def test_when_one_namespace_ends_the_other_is_stopped_and_the_reason_reported(tmp_path: Path) -> None:
    command = [*TWO, "--data", str(tmp_path), "--no-meter", "--json"]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert up.stdout is not None
    both = json.loads(up.stdout.readline())
    os.kill(both[1]["pid"], signal.SIGKILL)
    _, errors = up.communicate(timeout=STOP_WAIT_S)
    assert up.returncode == 1
    assert "The namespace 'secondary' stopped" in errors
    assert read_running(tmp_path / "primary") is None


def test_what_keeps_a_namespace_from_starting_is_reported(tmp_path: Path) -> None:
    for name in ("primary", "secondary"):
        with contextlib.closing(DataFolder(tmp_path / name)) as folder:
            Catalog.in_file(folder.path / CATALOG_NAME, name, 0).close()
            folder.store_paths(3)
    up = subprocess.run([*TWO, "--data", str(tmp_path)], capture_output=True, text=True, timeout=STOP_WAIT_S)
    assert up.returncode == 2
    assert "3 messaging stores" in up.stderr


def test_the_portal_of_both_is_reached_at_once_and_ends_with_them(tmp_path: Path) -> None:
    command = [*TWO, "--portal", "--portal-port", "0", "--no-meter", "--json", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        address = json.loads(up.stdout.readline())[0]["portal"]
        # Its socket listens before its process is there: the first page waits, and is not refused.
        page = httpx.get(address, timeout=60).text
        up.send_signal(signal.SIGINT)
    assert up.returncode == 0
    assert "primary" in page
    assert "secondary" in page
    with pytest.raises(httpx.ConnectError):
        httpx.get(address, timeout=5)
