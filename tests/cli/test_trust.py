"""Commands over TLS: whom they trust, and how others are told to trust a generated certificate."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Served, serve
from twinbus.cli.app import run
from twinbus.cli.failures import FAILED
from twinbus.cli.namespaces.system_trust import SystemTrust, system_trust
from twinbus.client.connecting.trust import CA_FILE_VARIABLE, OPENSSL_VARIABLE, REQUESTS_VARIABLE

COMMANDS = (["queue", "list"], ["send", "orders", "hello"], ["purge", "orders", "--yes"])
"""By the official administration client, the official client and ours."""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    options = ("--tls-port", "0", "--tls-name", "contoso.servicebus.windows.net", "--queue", "orders")
    with serve(tmp_path_factory.mktemp("data"), "primary", *options) as served:
        yield served


@pytest.fixture(autouse=True)
def _no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CA_FILE_VARIABLE, OPENSSL_VARIABLE, REQUESTS_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def elsewhere(secure: Served, tmp_path: Path) -> list[str]:
    """The options of a command that knows nothing of the namespace but its connection string."""
    return ["--connection-string", secure.ready["tls_connection_string"], "--data", str(tmp_path)]


@pytest.mark.parametrize("words", COMMANDS)
def test_an_unknown_authority_is_refused_with_what_to_do(
    secure: Served, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, *elsewhere(secure, tmp_path)]) == FAILED
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert CA_FILE_VARIABLE in said


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("way", ["--ca-file", CA_FILE_VARIABLE, OPENSSL_VARIABLE, REQUESTS_VARIABLE])
def test_an_authority_that_is_named_is_trusted(
    secure: Served,
    words: list[str],
    way: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--ca-file", secure.ready["tls_authority"]] if way.startswith("--") else []
    if not options:
        monkeypatch.setenv(way, secure.ready["tls_authority"])
    assert run([*words, *elsewhere(secure, tmp_path), *options]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("words", COMMANDS)
def test_the_port_without_tls_takes_it_too(
    secure: Served, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_flag = secure.ready["connection_string"].replace("UseDevelopmentEmulator=true;", "")
    options = ["--ca-file", secure.ready["tls_authority"], "--data", str(tmp_path)]
    assert run([*words, "--connection-string", without_flag, *options]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("words", COMMANDS)
def test_that_of_a_namespace_on_this_machine_is_found(
    secure: Served, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, *elsewhere(secure, secure.data)]) == 0, capsys.readouterr().err


def test_a_file_that_cannot_be_trusted_is_named(
    secure: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.pem").touch()
    for name, complaint in (("missing.pem", "cannot be read: No such file"), ("empty.pem", "is not a PEM file")):
        options = ["--ca-file", str(tmp_path / name)]
        assert run(["queue", "list", *elsewhere(secure, tmp_path), *options]) == 2
        assert complaint in capsys.readouterr().err


def test_the_file_to_trust_is_printed_alone(secure: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certificate", "path", "--data", str(secure.data)]) == 0
    assert capsys.readouterr().out == secure.ready["tls_authority"] + "\n"
    assert run(["certificate", "path", "--data", str(secure.data), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["authority"] == secure.ready["tls_authority"]
    assert {"localhost", "contoso.servicebus.windows.net"} <= set(said["names"])
    assert said["valid_until"] > "2025"


def test_a_namespace_without_a_generated_certificate_has_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["certificate", "path", "--data", str(tmp_path)]) == FAILED
    assert "Start it first" in capsys.readouterr().err


def test_debian_gets_a_file_of_its_own_and_the_command_that_reads_it(tmp_path: Path) -> None:
    folders = [(tmp_path / "none", ".pem", ("other",)), (tmp_path, ".crt", ("update-ca-certificates",))]
    no_java = tmp_path / "no hook"
    found = system_trust(
        Path("/data/primary/tls/authority.pem"), "primary", "linux", folders, lambda name: name, no_java
    )
    assert found is not None
    assert found.copy is not None
    assert found.copy.parent == tmp_path
    assert found.copy.name.startswith("twinbus-primary-")
    assert found.lines_to_add(Path("/data/primary/tls/authority.pem")) == [
        f"sudo cp /data/primary/tls/authority.pem {found.copy}",
        "sudo update-ca-certificates",
    ]
    assert found.lines_to_remove() == [f"sudo rm -f {found.copy}", "sudo update-ca-certificates"]
    other = system_trust(Path("/more/primary/tls/authority.pem"), "primary", "linux", folders, lambda name: name)
    assert other is not None
    assert other.copy != found.copy


@pytest.fixture
def debian(tmp_path: Path) -> tuple[SystemTrust, Path]:
    """Its own command, on folders of the test, with a hook that keeps a list as Java's does; and that list."""
    command = shutil.which("update-ca-certificates")
    if command is None or "--hooksdir" not in Path(command).read_text(errors="replace"):
        pytest.skip("this is no Debian")
    folders = {name: tmp_path / name for name in ("local", "given", "links", "hooks")}
    for folder in folders.values():
        folder.mkdir()
    keystore, hook, configured = tmp_path / "keystore", folders["hooks"] / "jks-keystore", tmp_path / "configured"
    keystore.touch()
    configured.write_text("# none\n")
    hook.write_text(
        "#!/bin/sh\nwhile read -r line; do\n"
        f'name=$(basename "${{line#?}}")\n'
        f'grep -v "^$name " {keystore} > {keystore}.new\nmv {keystore}.new {keystore}\n'
        f'case $line in +*) echo "$name $(md5sum < {folders["links"]}/$name)" >> {keystore};; esac\ndone\n'
    )
    hook.chmod(0o755)
    places = {"certsconf": configured, "certsdir": folders["given"], "localcertsdir": folders["local"]}
    places |= {"etccertsdir": folders["links"], "hooksdir": folders["hooks"]}
    update = (command, *(word for name, place in places.items() for word in (f"--{name}", str(place))))
    return SystemTrust(folders["local"] / "twinbus-primary-1.crt", update, update, hook), keystore


def test_java_on_debian_trusts_the_authority_as_long_as_the_system_does(
    debian: tuple[SystemTrust, Path], secure: Served, tmp_path: Path
) -> None:
    place, keystore = debian
    authority = Path(secure.ready["tls_authority"])
    place.install(authority)
    assert keystore.read_text().startswith("twinbus-primary-1.pem ")
    place.uninstall()
    assert keystore.read_text() == ""
    place.uninstall()
    assert keystore.read_text() == "", "also if it was removed before"


def test_java_on_debian_gets_a_renewed_authority_in_place_of_the_old_one(
    debian: tuple[SystemTrust, Path], secure: Served, tmp_path: Path
) -> None:
    place, keystore = debian
    renewed = tmp_path / "renewed.pem"
    renewed.write_text(Path(secure.ready["tls_authority"]).read_text() + "\n")
    place.install(Path(secure.ready["tls_authority"]))
    old = keystore.read_text()
    place.install(renewed)
    assert keystore.read_text().count("\n") == 1
    assert keystore.read_text() != old


def test_the_commands_for_debian_include_its_java(tmp_path: Path) -> None:
    hook = tmp_path / "jks-keystore"
    hook.touch()
    folders = [(tmp_path, ".crt", ("update-ca-certificates",))]
    authority = Path("/data/primary/tls/authority.pem")
    found = system_trust(authority, "primary", "linux", folders, lambda name: name, hook)
    assert found is not None
    assert found.copy is not None
    pem = f"/etc/ssl/certs/{found.copy.stem}.pem"
    assert found.lines_to_remove()[-1] == f"echo -{pem} | sudo {hook}"
    assert found.lines_to_add(authority)[-1] == "sudo update-ca-certificates", "which tells Java of a new file"
    found.copy.touch()
    assert found.lines_to_add(authority)[-1] == f"echo +{pem} | sudo {hook}"


def test_macos_trusts_by_its_keychain() -> None:
    found = system_trust(Path("/data/a b/authority.pem"), "primary", "darwin")
    assert found is not None
    (line,) = found.lines_to_add(Path("/data/a b/authority.pem"))
    assert line.startswith("sudo security add-trusted-cert -d -r trustRoot")
    assert line.endswith("'/data/a b/authority.pem'")


def test_a_system_without_a_known_way_has_none(tmp_path: Path) -> None:
    assert system_trust(tmp_path, "primary", "linux", [], lambda name: name) is None
    assert system_trust(tmp_path, "primary", "linux", [(tmp_path, ".crt", ("x",))], lambda _: None) is None


def test_an_authority_is_installed_and_removed(tmp_path: Path, secure: Served) -> None:
    listing = tmp_path / "list"
    command = ("sh", "-c", f"cat {tmp_path}/*.crt > {listing} || true")
    place = SystemTrust(tmp_path / "twinbus.crt", command, command)
    authority = Path(secure.ready["tls_authority"])
    place.install(authority)
    assert listing.read_bytes() == authority.read_bytes()
    assert (tmp_path / "twinbus.crt").stat().st_mode & 0o777 == 0o644
    place.uninstall()
    assert listing.read_bytes() == b""


def test_the_commands_can_be_seen_first(
    secure: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_trust, "__defaults__", ("darwin", *(system_trust.__defaults__ or ())[1:]))
    assert run(["certificate", "trust", "--print", "--data", str(secure.data)]) == 0
    assert capsys.readouterr().out.startswith("sudo security add-trusted-cert")
    assert run(["certificate", "untrust", "--print", "--data", str(secure.data)]) == 0
    assert capsys.readouterr().out.startswith("sudo security remove-trusted-cert")
