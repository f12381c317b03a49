from datetime import timedelta
from pathlib import Path
from ssl import SSLContext, create_default_context

import pytest
from cryptography import x509

from twinbus.clock import Millis
from twinbus.server.tls import LIFETIME, RENEWAL_LEAD, development_certificate, server_context

NOON: Millis = 1_800_000_000_000


def millis(span: timedelta) -> Millis:
    return span // timedelta(milliseconds=1)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_the_server_shows_it_and_a_client_trusts_its_authority(tmp_path: Path) -> None:
    made = development_certificate(tmp_path, [], NOON)
    assert isinstance(server_context(made.certificate, made.key), SSLContext)
    create_default_context(cafile=made.authority)
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    x509.load_pem_x509_certificate(made.certificate.read_bytes()).verify_directly_issued_by(authority)


def test_only_the_owner_can_read_the_key_and_the_authority_keeps_none(tmp_path: Path) -> None:
    made = development_certificate(tmp_path, [], NOON)
    assert made.key.stat().st_mode & 0o777 == 0o600
    assert sorted(contents(tmp_path)) == ["authority.pem", "certificate.pem", "key.pem"]
    assert b"PRIVATE" not in made.authority.read_bytes() + made.certificate.read_bytes()


def test_it_is_for_localhost_and_for_the_names_asked_for(tmp_path: Path) -> None:
    made = development_certificate(tmp_path, ["bus.test", "10.0.0.7"], NOON)
    certificate = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["localhost", "127.0.0.1", "::1", "bus.test", "10.0.0.7"]


def test_it_is_used_again_until_shortly_before_its_end(tmp_path: Path) -> None:
    development_certificate(tmp_path, [], NOON)
    first = contents(tmp_path)
    development_certificate(tmp_path, [], NOON + millis(LIFETIME - RENEWAL_LEAD) - 1)
    assert contents(tmp_path) == first
    development_certificate(tmp_path, [], NOON + millis(LIFETIME - RENEWAL_LEAD))
    assert not contents(tmp_path).items() & first.items()


@pytest.mark.parametrize("name", ["fe80::1%eth0", "*.Bus.test", "10.0.0.7"])
def test_it_is_used_again_whatever_name_it_has(tmp_path: Path, name: str) -> None:
    """A new one would have to be trusted anew."""
    first = development_certificate(tmp_path, [name], NOON).authority.read_bytes()
    assert development_certificate(tmp_path, [name], NOON).authority.read_bytes() == first


def test_another_name_needs_another_certificate(tmp_path: Path) -> None:
    development_certificate(tmp_path, [], NOON)
    first = contents(tmp_path)
    development_certificate(tmp_path, ["localhost"], NOON)
    assert contents(tmp_path) == first
    development_certificate(tmp_path, ["bus.test"], NOON)
    assert contents(tmp_path) != first


@pytest.mark.parametrize("name", ["authority.pem", "certificate.pem", "key.pem"])
@pytest.mark.parametrize("fault", ["missing", "damaged", "of another"])
def test_files_that_do_not_belong_together_are_replaced(tmp_path: Path, name: str, fault: str) -> None:
    """As a crash between the writing of two of them leaves them."""
    made, other = tmp_path / "tls", tmp_path / "other"
    development_certificate(made, [], NOON)
    development_certificate(other, [], NOON)
    file = made / name
    if fault == "missing":
        file.unlink()
    else:
        file.write_bytes(b"no PEM" if fault == "damaged" else (other / name).read_bytes())
    before = (made / name).read_bytes() if file.exists() else b""
    again = development_certificate(made, [], NOON)
    assert (made / name).read_bytes() != before
    assert isinstance(server_context(again.certificate, again.key), SSLContext)


def test_a_key_of_a_curve_that_does_not_exist_is_created_again(tmp_path: Path) -> None:
    """One flipped bit makes another curve of the one in its name."""
    files = development_certificate(tmp_path, [], NOON)
    for bit in range(8 * 53, 8 * 57):
        data = bytearray(files.key.read_bytes())
        data[bit // 8] ^= 1 << bit % 8
        files.key.write_bytes(data)
        again = development_certificate(tmp_path, [], NOON)
        server_context(again.certificate, again.key)
