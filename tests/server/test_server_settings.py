from pathlib import Path
from typing import Any

import pytest

from twinbus.errors import ArgumentError
from twinbus.server.server_settings import ServerSettings


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
