"""TLS of the server: PEM files in, an SSL context out; and a certificate for development where no files are given.

A certificate for development is created in a folder of the namespace, for the names the server answers to:

authority.pem     what clients have to trust
certificate.pem   what the server shows, signed by that authority
key.pem           its private key, mode 600

The authority's own key is never written: it signs one certificate and is forgotten. So a client that trusts the authority
trusts this server and nothing else, and a renewal replaces the authority too, at the same place.
"""

import ipaddress
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.server.certificates import builder, common_name, key_usage
from twinbus.store.folder.private_file import write_private

UNREADABLE = (
    *(ValueError, UnsupportedAlgorithm, x509.ExtensionNotFound, x509.DuplicateExtension, x509.InvalidVersion),
    x509.UnsupportedGeneralNameType,
)
"""What a certificate or key with a wrong bit raises."""

log = logging.getLogger(__name__)

LIFETIME = timedelta(days=397)
RENEWAL_LEAD = timedelta(days=30)
EXPIRY_LEAD = timedelta(days=14)  # enough to get another one
# Clients' clocks are not exactly ours.
CLOCK_SKEW = timedelta(hours=1)
NAMES_ALWAYS = ("localhost", "127.0.0.1", "::1")


def problem_with(certificate: Path, now: Millis) -> str | None:
    """Why clients refuse a certificate that somebody gave us, or soon will: they say it to users and not to operators."""
    try:
        facts = read_certificate(certificate)
    except (OSError, ValueError):
        return None  # a certificate without names, which only clients judge
    return facts.problem_at(datetime.fromtimestamp(now / 1000, UTC))


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Raises ArgumentError that names the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except FileNotFoundError:
        missing = certificate if not certificate.exists() else key
        raise ArgumentError(f"The TLS file {missing} does not exist.") from None
    except ssl.SSLError as fault:
        why = f": {fault.reason}" if fault.reason else ""
        raise ArgumentError(f"{certificate} and {key} are not a PEM certificate and its key{why}.") from None
    except OSError as fault:
        raise ArgumentError(f"{certificate} or {key} cannot be read: {fault.strerror}.") from None
    return context


def tls_folder(data_folder: Path) -> Path:
    """Where a namespace keeps its certificate for development."""
    return data_folder / "tls"


@dataclass(frozen=True, slots=True)
class DevelopmentCertificate:
    authority: Path
    certificate: Path
    key: Path


def certificate_files(folder: Path) -> DevelopmentCertificate:
    return DevelopmentCertificate(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")


def development_certificate(folder: Path, names: Sequence[str], now: Millis) -> DevelopmentCertificate:
    """The files in the folder, created where they are missing, damaged, near their end or for other names."""
    files = certificate_files(folder)
    wanted = list(dict.fromkeys((*NAMES_ALWAYS, *names)))
    moment = datetime.fromtimestamp(now / 1000, UTC)
    if not _is_usable(files, wanted, moment):
        folder.mkdir(0o700, parents=True, exist_ok=True)
        _create(files, wanted, moment)
        log.info("certificate_created", extra={"fields": {"authority": files.authority, "names": ",".join(wanted)}})
    return files


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    names: list[str]
    valid_from: datetime
    valid_until: datetime

    def problem_at(self, now: datetime) -> str | None:
        """What is wrong with it for a client, or soon will be."""
        if now < self.valid_from:
            return f"it is not valid before {self.valid_from:%Y-%m-%d %H:%M} UTC; check the clock of this machine"
        if now >= self.valid_until:
            return f"it expired on {self.valid_until:%Y-%m-%d %H:%M} UTC, and clients refuse it"
        if now >= self.valid_until - EXPIRY_LEAD:
            return f"it expires on {self.valid_until:%Y-%m-%d %H:%M} UTC"
        return None


def read_certificate(file: Path) -> CertificateFacts:
    """Raises OSError or ValueError if it is not there or not one."""
    try:
        return certificate_facts(file.read_bytes())
    except UNREADABLE as error:
        raise ValueError(f"{file} is damaged: {error}") from None


def certificate_facts(pem: bytes) -> CertificateFacts:
    """Raises one of UNREADABLE."""
    certificate = x509.load_pem_x509_certificate(pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return CertificateFacts(
        [str(name.value) for name in names], certificate.not_valid_before_utc, certificate.not_valid_after_utc
    )


def _is_usable(files: DevelopmentCertificate, names: Sequence[str], now: datetime) -> bool:
    """The three files are replaced one after another, so a crash can leave files that do not belong together."""
    try:
        authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
        certificate.verify_directly_issued_by(authority)
        covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        server_context(files.certificate, files.key)  # it reads them with another library, which may refuse more
    except (OSError, TypeError, InvalidSignature, ArgumentError, *UNREADABLE):
        return False
    return (
        key.public_key() == certificate.public_key()
        and certificate.not_valid_before_utc <= now
        and now < certificate.not_valid_after_utc - RENEWAL_LEAD
        and set(map(_general_name, names)) <= set(covered)
    )


def _create(files: DevelopmentCertificate, names: Sequence[str], now: datetime) -> None:
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, now)
    certificate = _certificate(key, authority, authority_key, names, now)
    write_private(files.key, f"{_private_pem(key)}\n")
    _write(files.certificate, certificate)
    _write(files.authority, authority)


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = common_name("twinbus development authority")
    return (
        builder(name, name, key.public_key(), key.public_key(), now, LIFETIME, CLOCK_SKEW)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(is_authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
    now: datetime,
) -> x509.Certificate:
    return (
        builder(
            common_name(names[0]),
            authority.subject,
            key.public_key(),
            authority_key.public_key(),
            now,
            LIFETIME,
            CLOCK_SKEW,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        # A certificate has no interface: with one, the address that is read from it would never be the one wanted.
        return x509.IPAddress(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        return x509.DNSName(name)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode().strip()


def _write(file: Path, certificate: x509.Certificate) -> None:
    draft = file.with_suffix(".new")
    draft.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    draft.replace(file)
