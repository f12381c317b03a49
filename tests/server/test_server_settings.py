from pathlib import Path
from typing import Any

import pytest

from twinbus.errors import ArgumentError
from twinbus.server.server_settings import ExtraPort, ServerSettings, read_extra_ports


def settings(**values: Any) -> ServerSettings:
    return ServerSettings("test", Path("data"), **values)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "bus.test"])
def test_plain_listeners_stay_on_loopback_unless_asked_for(host: str) -> None:
    with pytest.raises(ArgumentError, match=r"--tls.*--allow-plain"):
        settings(host=host)
    assert settings(host=host, tls_port=0).plain_host == "127.0.0.1"
    assert settings(host=host, tls_port=0, allow_plain=True).plain_host == host
    assert settings(host=host, allow_plain=True).plain_host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_a_loopback_address_needs_no_tls(host: str) -> None:
    assert settings(host=host).plain_host == host


def test_a_certificate_needs_its_key_and_a_port() -> None:
    with pytest.raises(ArgumentError, match="both"):
        settings(tls_port=0, tls_certificate=Path("certificate.pem"))
    with pytest.raises(ArgumentError, match="TLS port"):
        settings(tls_certificate=Path("certificate.pem"), tls_key=Path("key.pem"))


def test_of_further_ports_443_and_5671_have_tls_unless_told_otherwise() -> None:
    assert read_extra_ports("80, 443,5671,8080") == (
        ExtraPort(80, uses_tls=False),
        ExtraPort(443, uses_tls=True),
        ExtraPort(5671, uses_tls=True),
        ExtraPort(8080, uses_tls=False),
    )
    assert read_extra_ports("8443/tls,443/PLAIN") == (ExtraPort(8443, uses_tls=True), ExtraPort(443, uses_tls=False))
    assert read_extra_ports("") == ()


@pytest.mark.parametrize("text", ["http", "80/udp", "-1", "80 443", "٣", "/tls"])
def test_what_is_not_a_port_is_named(text: str) -> None:
    with pytest.raises(ArgumentError, match="is not a port"):
        read_extra_ports(text)


def test_a_port_is_given_once_and_exists() -> None:
    with pytest.raises(ArgumentError, match="Port 5672 is given twice"):
        settings(also_listen=read_extra_ports("5672"))
    with pytest.raises(ArgumentError, match="Port 443 is given twice"):
        settings(also_listen=read_extra_ports("443,443/plain"))
    with pytest.raises(ArgumentError, match="Port 70000 is not between"):
        settings(also_listen=read_extra_ports("70000"))
    settings(amqp_port=0, http_port=0, tls_port=0)


def test_a_further_port_with_tls_is_enough_to_listen_on_other_addresses() -> None:
    assert settings(host="0.0.0.0", also_listen=read_extra_ports("443")).plain_host == "127.0.0.1"
    with pytest.raises(ArgumentError, match="--tls"):
        settings(host="0.0.0.0", also_listen=read_extra_ports("80"))


@pytest.mark.parametrize("name", ["https://bus.test", "bus.test:5671", "bus test", "-x", "a..b", "bücher.test", ""])
def test_what_is_not_a_host_name_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="is not a host name"):
        settings(advertised_host=name)
    with pytest.raises(ArgumentError, match="is not a host name"):
        settings(tls_names=(name,))


def test_a_certificate_may_have_names_that_nobody_dials() -> None:
    settings(tls_names=("*.servicebus.windows.net", "10.0.0.7", "::1", "bus_1.test"))
    with pytest.raises(ArgumentError, match="is not a host name"):
        settings(advertised_host="*.servicebus.windows.net")
    with pytest.raises(ArgumentError, match="--tls-name"):
        settings(tls_port=0, tls_certificate=Path("a"), tls_key=Path("b"), tls_names=("x",))
