"""TLS for AMQPS: a certificate chain and its key as PEM files."""

import ssl
from pathlib import Path

from twinbus.errors import ArgumentError


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Raises ArgumentError that names the file which cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except FileNotFoundError:
        missing = certificate if not certificate.exists() else key
        raise ArgumentError(f"The TLS file {missing} does not exist.") from None
    except ssl.SSLError as fault:
        why = f": {fault.reason}" if fault.reason else ""
        raise ArgumentError(f"{certificate} and {key} are no PEM certificate and its key{why}.") from None
    except OSError as fault:
        raise ArgumentError(f"{certificate} or {key} cannot be read: {fault.strerror}.") from None
    return context
