"""Whom clients trust over TLS: what is named, beside what the system trusts."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.administration import administration_client
from twinbus.client.async_administration import async_administration_client
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.connecting.trust import (
    CA_FILE_VARIABLE,
    OPENSSL_VARIABLE,
    REQUESTS_VARIABLE,
    named_authorities,
    stock_client_options,
    tls_context,
)
from twinbus.client.namespace import Namespace
from twinbus.client.remote_errors import PeerNotTrusted
from twinbus.errors import ArgumentError

KEYS = "SharedAccessKeyName=n;SharedAccessKey=k"
VARIABLES = (CA_FILE_VARIABLE, OPENSSL_VARIABLE, REQUESTS_VARIABLE)


@pytest.fixture(autouse=True)
def _no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("data"), store_count=1, tls_port=0)
    yield running
    running.stop()


def authority(secure: RunningServer) -> Path:
    assert secure.server.tls_authority is not None
    return secure.server.tls_authority


def test_every_variable_names_a_file_and_an_empty_one_names_none() -> None:
    assert named_authorities({name: f"/{name}" for name in VARIABLES} | {"OTHER": "/x"}) == [
        Path(f"/{name}") for name in (CA_FILE_VARIABLE, REQUESTS_VARIABLE, OPENSSL_VARIABLE)
    ]
    assert named_authorities(dict.fromkeys(VARIABLES, "")) == []


def test_what_is_named_adds_to_what_the_system_trusts(secure: RunningServer) -> None:
    before, after = tls_context(), tls_context([authority(secure)])
    assert len(after.get_ca_certs()) == len(before.get_ca_certs()) + 1
    assert after.verify_mode is ssl.CERT_REQUIRED
    assert after.check_hostname


def test_a_folder_of_certificates_can_be_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUESTS_VARIABLE, str(tmp_path))
    tls_context()


@pytest.mark.parametrize("content", [None, b"", b"no PEM"])
def test_a_file_that_holds_no_certificate_is_named(
    tmp_path: Path, content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "authority.pem"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv(CA_FILE_VARIABLE, str(file))
    with pytest.raises(ArgumentError, match=str(file)):
        tls_context()


def test_the_stock_client_is_left_alone_where_it_needs_nothing() -> None:
    azure = parse_connection_string(f"Endpoint=sb://contoso.servicebus.windows.net;{KEYS}")
    plain = parse_connection_string(f"Endpoint=sb://localhost:7000;{KEYS};UseDevelopmentEmulator=true")
    assert stock_client_options(azure) == {}
    assert stock_client_options(plain, [Path("/never/read")]) == {}


def test_the_stock_client_is_shown_the_port_that_it_ignores_over_tls() -> None:
    given = parse_connection_string(f"Endpoint=sb://[::1]:7000;{KEYS}")
    assert stock_client_options(given) == {"custom_endpoint_address": "sb://[::1]:7000"}


@pytest.mark.parametrize("variable", VARIABLES)
async def test_all_clients_of_ours_trust_what_the_environment_names(
    secure: RunningServer, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = secure.server.tls_connection_string
    assert text is not None
    with pytest.raises(PeerNotTrusted, match=CA_FILE_VARIABLE):
        await Namespace.connect(text, clock=secure.clock)
    monkeypatch.setenv(variable, str(authority(secure)))
    async with await Namespace.connect(text, clock=secure.clock), async_administration_client(text) as client:
        assert (await client.get_namespace_properties()).name == "interop"
    with administration_client(text) as blocking:
        assert blocking.get_namespace_properties().name == "interop"


async def test_administration_trusts_the_files_that_its_caller_names(secure: RunningServer) -> None:
    text, files = secure.server.tls_connection_string, [authority(secure)]
    assert text is not None
    async with async_administration_client(text, authorities=files) as client:
        assert (await client.get_namespace_properties()).name == "interop"
    with administration_client(text, authorities=files) as blocking:
        assert blocking.get_namespace_properties().name == "interop"
