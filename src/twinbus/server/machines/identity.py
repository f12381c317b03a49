"""Who may open a line to a node: the authority of a namespace in, TLS contexts out. Both ends show a certificate, or there is no line.

A namespace on several machines has an authority of its own, made by whichever node comes first and kept in the catalog's database: so
whoever may read that is a member, and nobody else is. At each start a node makes a key, and signs a certificate for its number with the
authority; the key is on the disk only while it is loaded. What the other end shows has to be signed by the same authority, and names its
number.
"""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from twinbus.clock import Millis
from twinbus.errors import StoreDamaged
from twinbus.server.certificates import builder, common_name, key_usage
from twinbus.server.tls import UNREADABLE

LIFETIME = timedelta(days=3_650)
"""A node shows the certificate of its start for as long as it runs."""
CLOCK_SKEW = timedelta(days=1)
DOMAIN = "node.twinbus.internal"


class Authority(NamedTuple):
    """PEM, both. The key is a secret."""

    key: str
    certificate: str


class LineContexts(NamedTuple):
    dialling: ssl.SSLContext
    listening: ssl.SSLContext


def new_authority(namespace: str, now: Millis) -> Authority:
    key, moment = ec.generate_private_key(ec.SECP256R1()), _moment(now)
    name = common_name(f"twinbus namespace {namespace}")
    certificate = (
        builder(name, name, key.public_key(), key.public_key(), moment, LIFETIME, CLOCK_SKEW)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(_private_pem(key), _pem(certificate))


def host_of(number: int) -> str:
    """The name in the certificate of a node."""
    return f"{number}.{DOMAIN}"


def number_in(certificate: "dict[str, object] | None") -> int | None:
    """The node whose certificate this is, as `ssl` shows it after it was checked."""
    names = (certificate or {}).get("subjectAltName", ())
    for kind, value in names if isinstance(names, tuple) else ():
        number, _, domain = str(value).partition(".")
        if kind == "DNS" and domain == DOMAIN and number.isascii() and number.isdigit():
            return int(number)
    return None


def line_contexts(authority: Authority, number: int, now: Millis) -> LineContexts:
    """For the node of this number. Raises StoreDamaged if the authority cannot be used."""
    try:
        return _line_contexts(authority, number, now)
    except (*UNREADABLE, TypeError, ssl.SSLError) as fault:
        raise StoreDamaged(f"The authority for lines between nodes is damaged in the catalog: {fault}") from None


def _line_contexts(authority: Authority, number: int, now: Millis) -> LineContexts:
    signing = serialization.load_pem_private_key(authority.key.encode(), password=None)
    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    if not isinstance(signing, ec.EllipticCurvePrivateKey) or signing.public_key() != signer.public_key():
        # No node would accept what it signs, and each would say that of all others.
        raise ValueError("its key is not that of its certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        builder(
            common_name(host_of(number)),
            signer.subject,
            key.public_key(),
            signing.public_key(),
            _moment(now),
            LIFETIME,
            CLOCK_SKEW,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host_of(number))]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    contexts = LineContexts(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    with tempfile.TemporaryDirectory(prefix="twinbus-line-") as folder:  # readable by its owner alone
        shown = Path(folder) / "node.pem"
        shown.write_text(_private_pem(key) + _pem(certificate))
        for context in contexts:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=authority.certificate)
            context.load_cert_chain(shown)
    return contexts


def _moment(now: Millis) -> datetime:
    return datetime.fromtimestamp(now / 1000, UTC)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
