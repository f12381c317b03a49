"""Names for listeners: what connection strings say, and what the certificate for development is for."""

import socket
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.model.descriptions import AuthorizationRule, Right
from twinbus.server.listening.host_names import authority, names_of_listener, reachable_host
from twinbus.server.listening.ports import PortNumbers, plain_connection_string, tls_connection_string
from twinbus.server.namespace import NamespaceServer
from twinbus.server.server_settings import ServerSettings


@pytest.fixture(params=["::1", "127.0.0.1"])
def localhost(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the system says that the name localhost means."""
    address: str = request.param
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 0))])
    return address


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_all_addresses_are_reached_by_localhost(host: str) -> None:
    assert reachable_host(host) == "localhost"


def test_an_ipv6_address_is_written_as_localhost_where_that_means_it(localhost: str) -> None:
    """The Python SDK cannot read an address with colons."""
    assert reachable_host("::1") == ("localhost" if localhost == "::1" else "::1")
    assert reachable_host("127.0.0.1") == "127.0.0.1"
    assert reachable_host("bus.test") == "bus.test"


def test_an_ipv6_address_has_brackets_before_a_port() -> None:
    assert authority("::1", 5672) == "[::1]:5672"
    assert authority("localhost", 5672) == "localhost:5672"


def test_a_listener_on_all_addresses_has_the_name_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "build-7.test")
    assert names_of_listener("0.0.0.0") == ["build-7.test"]
    assert set(names_of_listener("10.0.0.7")) == {"10.0.0.7"}
    monkeypatch.setattr(socket, "gethostname", lambda: "not a name")
    assert names_of_listener("::") == []


async def started(tmp_path: Path, **values: Any) -> tuple[str, str, set[str]]:
    """The hosts of both connection strings, and the names in the certificate."""
    settings = ServerSettings("test", tmp_path, amqp_port=0, http_port=0, tls_port=0, store_count=1, **values)
    server = NamespaceServer(settings)
    await server.start()
    plain, secure = server.connection_string, server.tls_connection_string
    await server.stop()
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls" / "certificate.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert secure is not None
    return (
        parse_connection_string(plain).host,
        parse_connection_string(secure).host,
        {str(name.value) for name in names},
    )


async def test_the_advertised_name_is_in_connection_strings_and_certificate(tmp_path: Path) -> None:
    name = "contoso.servicebus.windows.net"
    plain, secure, names = await started(tmp_path, advertised_host=name, tls_names=("*.test", "10.1.2.3"))
    assert (plain, secure) == (name, name)
    assert names >= {name, "localhost", "127.0.0.1", "::1", "*.test", "10.1.2.3"}


def test_plain_ports_on_loopback_alone_are_not_advertised_by_that_name(tmp_path: Path) -> None:
    settings = ServerSettings("test", tmp_path, host="0.0.0.0", tls_port=5671, advertised_host="bus.test")
    numbers, rule = PortNumbers(5672, 8080, 5671), AuthorizationRule("root", "key", "", frozenset(Right))
    assert plain_connection_string(settings, numbers, rule).startswith("Endpoint=sb://127.0.0.1:5672;")
    assert (tls_connection_string(settings, numbers, rule) or "").startswith("Endpoint=sb://bus.test:5671;")


async def test_a_new_name_makes_a_new_certificate_and_a_known_one_does_not(tmp_path: Path) -> None:
    certificate = tmp_path / "tls" / "certificate.pem"
    await started(tmp_path, tls_names=("bus.test",))
    first = certificate.read_bytes()
    await started(tmp_path)
    assert certificate.read_bytes() == first
    await started(tmp_path, advertised_host="other.test")
    assert certificate.read_bytes() != first
