"""What an operator meets when something has gone wrong names the file, the reason and what to do."""

import errno
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from rich.progress import Progress

from tests.cli.conftest import Commands, serve
from tests.cli.test_advice import complaint
from tests.cli.test_doctor import findings
from twinbus.__main__ import INTERRUPTED
from twinbus.cli import command
from twinbus.cli.app import run
from twinbus.cli.failures import FAILED, WRONG_USE, report_failure
from twinbus.cli.namespaces.running import FILE_NAME
from twinbus.client import namespace_http
from twinbus.management.catalog import Catalog
from twinbus.server.data.data_folder import DataFolder, open_store


def certificate_files(folder: Path, valid_for: timedelta) -> tuple[str, str]:
    """A certificate and its key, for localhost, from last year on."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bus")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=365))
        .not_valid_after(now + valid_for)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(files[0]), str(files[1])


@pytest.mark.parametrize(
    ("valid_for", "is_good", "found"),
    [
        (timedelta(days=-1), False, "it expired on "),
        (timedelta(days=3), False, "it expires on "),
        (timedelta(days=90), True, "valid until "),
    ],
)
def test_the_doctor_knows_when_clients_refuse_the_certificate(
    valid_for: timedelta, is_good: bool, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = certificate_files(tmp_path, valid_for)
    options = ["--tls-cert", certificate, "--tls-key", key, "--tls-port", "0"]
    with serve(tmp_path / "data", "shop", *options):
        finding = findings(capsys, tmp_path / "data")["certificate of shop"]
    assert finding["is_good"] is is_good
    assert str(finding["found"]).startswith(found)
    assert is_good or "--tls-cert" in str(finding["advice"])


def test_a_portal_without_its_certificate_names_the_file_before_any_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, _ = certificate_files(tmp_path, timedelta(days=90))
    missing = str(tmp_path / "nowhere.pem")
    assert run(["portal", "--port", "0", "--tls-cert", certificate, "--tls-key", missing]) == WRONG_USE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"twinbus: The TLS file {missing} does not exist.\n"


def test_a_damaged_announcement_of_one_namespace_is_not_in_the_way_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(tmp_path, "primary") as served:
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / FILE_NAME).write_text("{")
        commands = Commands(served, capsys)
        commands.text("queue", "list")
        commands.text("queue", "list", "--namespace", "broken", code=FAILED)
        assert f"{tmp_path / 'broken' / FILE_NAME} is damaged. Restart the namespace" in commands.errors
        found = findings(capsys, tmp_path)
        assert found["namespace primary"]["is_good"]
        assert found["namespace broken"]["advice"] == "start it again: twinbus serve broken"


def test_what_a_damaged_announcement_hides_is_said_when_the_namespace_starts(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / FILE_NAME).write_text("{")
    (tmp_path / "shop" / "key").touch()
    said = complaint("serve", "shop", "--data", str(tmp_path), "--amqp-port", "0", "--http-port", "0")
    assert said.startswith(f"twinbus: {tmp_path / 'shop' / 'key'} is damaged: it is empty. Restore it, ")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TWINBUS_AMQP_PORT", "99999", "The variable TWINBUS_AMQP_PORT must be at most 65535."),
        ("TWINBUS_STORES", "0", "The variable TWINBUS_STORES must be at least 1."),
        ("TWINBUS_STORES", "many", "The variable TWINBUS_STORES must be a whole number."),
        ("TWINBUS_TLS", "maybe", "The variable TWINBUS_TLS must be true or false."),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_has_to_be(
    variable: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, value)
    assert run(["serve", "shop"]) == WRONG_USE
    assert capsys.readouterr().err == f"twinbus: {said}\n"


def test_a_wrong_option_and_a_wrong_line_of_a_file_are_named_with_what_they_have_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "shop", "--stores", "0"]) == WRONG_USE
    assert capsys.readouterr().err == "twinbus: '--stores' must be at least 1.\n"
    file = tmp_path / "twinbus.toml"
    file.write_text("amqp_port = 99999\n")
    assert run(["serve", "shop", "--config", str(file)]) == WRONG_USE
    assert capsys.readouterr().err == f"twinbus: {file}: 'amqp_port' must be at most 65535.\n"


def test_a_file_of_entities_that_is_missing_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "shop", "--entities", "nowhere.toml"]) == WRONG_USE
    assert capsys.readouterr().err == "twinbus: nowhere.toml cannot be read: No such file or directory.\n"


def test_send_names_the_option_for_sessions_too(commands: Commands) -> None:
    commands.text("queue", "create", "night-sessions", "--sessions")
    commands.text("send", "night-sessions", "x", code=FAILED)
    assert commands.errors == "twinbus: The entity requires message sessions. Name one with --session.\n"


def test_a_rule_shows_what_its_parameters_are(commands: Commands, tmp_path: Path) -> None:
    file = tmp_path / "entities.toml"
    file.write_text(
        '[[topic]]\nname = "night"\n[[topic.subscription]]\nname = "audit"\n[[topic.subscription.rule]]\nname = "red"\n'
        'sql = "colour = @colour"\nparameters = { "@colour" = "red" }\n'
    )
    commands.text("namespace", "import", str(file))
    assert commands.json("rule", "show", "night", "audit", "red")["parameters"] == "@colour = 'red'"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_import_that_is_interrupted_says_what_is_done_and_what_is_not(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    file, names = tmp_path / "queues.toml", [f"night-{each}" for each in range(6)]
    file.write_text("".join(f'[[queue]]\nname = "{name}"\n' for name in names))
    create = ServiceBusAdministrationClient.create_queue

    def interrupted(client: ServiceBusAdministrationClient, name: str, **properties: Any) -> Any:
        if name == names[2]:
            signal.raise_signal(number)
        return create(client, name, **properties)

    with monkeypatch.context() as at_night:
        at_night.setattr(ServiceBusAdministrationClient, "create_queue", interrupted)
        assert commands.text("namespace", "import", str(file), code=INTERRUPTED) == ""
    assert commands.errors == (
        f"twinbus: interrupted. {file} is imported in part (2 created; not finished: night-2, night-3, night-4 and 1 more). "
        "Import it again to finish it.\n"
    )
    assert commands.json("namespace", "import", str(file))["created"] == 4
    for name in names:
        commands.text("queue", "delete", name, "--yes")


def test_an_import_that_is_interrupted_before_the_first_change_says_so(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: ServiceBusAdministrationClient) -> None:
        signal.raise_signal(signal.SIGINT)

    file = tmp_path / "queues.toml"
    file.write_text('[[queue]]\nname = "night"\n')
    monkeypatch.setattr(ServiceBusAdministrationClient, "list_queues", interrupted)
    commands.text("namespace", "import", str(file), code=INTERRUPTED)
    said = f"{file} is imported in part (no changes yet; not finished: night). Import it again to finish it.\n"
    assert commands.errors == f"twinbus: interrupted. {said}"


def at_full_disk(*words: str) -> tuple[int, str]:
    """The exit code and what is said by a command whose output goes to a disk that is full."""
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "twinbus", *words],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
        )
    return ended.returncode, ended.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no file that is always full")
def test_output_that_finds_no_room_is_one_line(commands: Commands) -> None:
    for words in (["--version"], ["queue", "list", "--json", "--data", str(commands.served.data)]):
        said = "The output cannot be written: No space left on device. What the command changed stays changed."
        assert at_full_disk(*words) == (FAILED, f"twinbus: {said}\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no file that is always full")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_message_that_was_received_into_a_file_without_room_is_shown_elsewhere(
    commands: Commands, options: list[str]
) -> None:
    """It is completed, and so it is nowhere else any more."""
    commands.text("queue", "create", "night-room")
    commands.text("send", "night-room", "the only one")
    code, said = at_full_disk("receive", "night-room", "--data", str(commands.served.data), *options)
    shown, complaint = said.splitlines()
    assert code == FAILED
    assert [each["body"] for each in json.loads(shown)] == ["the only one"]
    assert complaint.startswith("twinbus: The output cannot be written: ")
    commands.text("queue", "delete", "night-room", "--yes")


def test_a_question_that_nobody_can_answer_ends_its_line(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.text("queue", "create", "night-asked")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    commands.text("queue", "delete", "night-asked", code=WRONG_USE)
    assert commands.errors.splitlines()[-1] == "twinbus: There is no terminal to confirm this at. Add --yes."
    commands.text("queue", "delete", "night-asked", "--yes")


def test_a_question_that_is_answered_by_ctrl_c_ends_its_line(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    commands.text("purge", "night-unasked", code=INTERRUPTED)
    assert commands.errors.startswith("Remove all messages from 'night-unasked'?")
    assert commands.errors.endswith("\n")


def test_an_access_rule_without_a_name_is_refused_by_name(commands: Commands) -> None:
    commands.text("access", "create", "", "--right", "send", code=WRONG_USE)
    assert (
        commands.errors
        == "twinbus: '' is not a name for an access rule. Use 1 to 256 printable characters without '/'.\n"
    )


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device."),
        (OSError(errno.EIO, "Input/output error", "key"), "key: Input/output error."),
        (OSError("the volume is gone"), "the volume is gone"),
        (
            PermissionError(errno.EACCES, "Permission denied", "key"),
            "key: Permission denied. Run the command as a user who may, such as the owner.",
        ),
    ],
)
def test_what_the_system_refuses_is_told_without_its_number(
    failure: OSError, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_failure(failure) == FAILED
    assert capsys.readouterr().err == f"twinbus: {said}\n"


def interrupting(place: Callable[..., Any], number: signal.Signals, turn: int = 1) -> Callable[..., Any]:
    """The same, but at that call somebody interrupts the command."""
    calls = count(1)

    def called(*arguments: Any, **named: Any) -> Any:
        if next(calls) == turn:
            signal.raise_signal(number)
        return place(*arguments, **named)

    return called


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The data of a namespace `shop` with two messaging stores, which is not served."""
    folder = DataFolder(tmp_path / "data" / "shop")
    folder.root_rule(None)
    for store in folder.store_paths(2):
        open_store(store).close()
    Catalog.in_file(folder.path / "catalog.db", "shop", 0).close()
    folder.close()
    return tmp_path / "data"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_work_on_files_that_is_interrupted_leaves_nothing_or_says_how_to_go_on(
    stopped: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    shop = ["--data", str(stopped), "-n", "shop"]
    backup, other, moved = tmp_path / "backup", tmp_path / "other", tmp_path / "moved"
    works = [
        (["backup", str(backup), *shop], f"There is no backup in {backup}."),
        (["restore", str(backup), "--data", str(other)], f"Nothing is restored to {other / 'shop'}."),
        (["store", "restored", *shop], "Run it again before you serve 'shop'."),
        (["copy", str(stopped / "shop"), str(moved)], "Run it again: it continues where it ended."),
    ]
    for words, said in works:
        with monkeypatch.context() as at_night:
            for call in ("fsync", "fdatasync"):
                at_night.setattr(os, call, interrupting(getattr(os, call), number, turn=3))
            assert run(words) == INTERRUPTED
        assert capsys.readouterr().err == f"twinbus: interrupted. {said}\n"
        assert not backup.exists() or words[0] != "backup"
        assert [each for folder in (other,) if folder.exists() for each in folder.iterdir()] == []
        assert run(words) == 0
        capsys.readouterr()
        shutil.rmtree(other, ignore_errors=True)


def test_a_purge_that_is_interrupted_says_how_many_it_has_done(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.text("queue", "create", "night-many")
    commands.text("send", "night-many", "hello", "--count", "5")
    with monkeypatch.context() as at_night:
        at_night.setattr(Progress, "update", interrupting(Progress.update, signal.SIGTERM, turn=1))
        commands.text("purge", "night-many", "--yes", code=INTERRUPTED)
    assert commands.errors == "twinbus: interrupted. 5 messages are done so far; run it again for the rest.\n"
    commands.text("queue", "delete", "night-many", "--yes")


def test_a_store_that_is_off_while_its_loss_is_accepted_is_named(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as at_night:
        at_night.setattr(namespace_http, "urlopen", interrupting(urlopen, signal.SIGTERM, turn=2))
        commands.text("store", "accept-loss", "1", "--yes", code=INTERRUPTED)
    said = "Messaging store 1 of 'primary' may be off: switch it on with 'twinbus store up 1'."
    assert commands.errors == f"twinbus: interrupted. {said}\n"
    with monkeypatch.context() as at_night:
        at_night.setattr(namespace_http, "urlopen", interrupting(urlopen, signal.SIGINT, turn=3))
        commands.text("store", "down", "--all", code=INTERRUPTED)
    assert commands.errors == "twinbus: interrupted. See which stores are switched down with 'twinbus store list'.\n"
    commands.text("store", "up")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["queue", "list"], "The namespace took the request and does not answer. What was asked may still happen."),
        (["send", "orders", "hello"], "No answer within 0.5 s. Check host and port, or try again."),
        (["receive", "orders"], "No answer within 0.5 s. Check host and port, or try again."),
    ],
)
def test_a_namespace_that_is_suspended_is_not_waited_for_forever(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its system accepts connections, and nobody reads from them."""
    monkeypatch.setattr(command, "ANSWER_WAIT_S", 0.5)
    monkeypatch.setattr(command, "OPEN_WAIT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as suspended:
        place = f"Endpoint=sb://127.0.0.1:{suspended.getsockname()[1]}"
        key = "SharedAccessKeyName=root;SharedAccessKey=a2V5;UseDevelopmentEmulator=true"
        assert run([*words, "--connection-string", f"{place};{key}"]) == FAILED
    assert capsys.readouterr().err == f"twinbus: {said}\n"


def test_the_next_free_session_is_waited_for_as_long_as_a_message(commands: Commands) -> None:
    commands.text("queue", "create", "night-free", "--sessions")
    commands.text("receive", "night-free", "--session", "next", "--wait", "200ms", code=FAILED)
    assert commands.errors == "twinbus: No message session is free. Each one is empty, or another receiver has it.\n"
    commands.text("queue", "delete", "night-free", "--yes")
