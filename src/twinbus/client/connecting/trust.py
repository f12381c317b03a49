"""Whom a client over TLS trusts: files that the caller and the environment name in, an SSL context or options of the SDK out.

Always those of the system. Beyond them, whichever are named:

TWINBUS_CA_FILE        for everything of twinbus; `--ca-file` of the commands says the same
REQUESTS_CA_BUNDLE     as the package requests has it
SSL_CERT_FILE          as OpenSSL has it: instead of the system's

Each is a PEM file; several authorities may be in one. They add up, and none takes away another one's trust.
"""

import functools
import os
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twinbus.client.connecting.connection_string import ConnectionString
from twinbus.errors import ArgumentError

CA_FILE_VARIABLE = "TWINBUS_CA_FILE"
REQUESTS_VARIABLE = "REQUESTS_CA_BUNDLE"
OPENSSL_VARIABLE = "SSL_CERT_FILE"


def named_authorities(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The files that the environment names."""
    variables = (CA_FILE_VARIABLE, REQUESTS_VARIABLE, OPENSSL_VARIABLE)
    return [Path(environment[name]) for name in variables if environment.get(name)]


def tls_context(authorities: Sequence[Path] = ()) -> ssl.SSLContext:
    """Trusts the system's authorities, those named by the environment, and these. Raises ArgumentError for a bad file."""
    context = ssl.create_default_context()
    for file in dict.fromkeys((*authorities, *named_authorities())):
        _trust(context, file)
    return context


def stock_client_options(target: ConnectionString, authorities: Sequence[Path] = ()) -> dict[str, Any]:
    """What the stock client needs to reach a namespace over TLS: it ignores the port and reads its own list of authorities."""
    options: dict[str, Any] = {}
    if not target.uses_tls:
        return options
    if target.is_port_given:
        host = f"[{target.host}]" if ":" in target.host else target.host
        options["custom_endpoint_address"] = f"sb://{host}:{target.port}"
    if has_named(authorities):
        options["ssl_context"] = context = tls_context(authorities)
        import certifi  # the stock client's own list, which comes with it

        context.load_verify_locations(certifi.where())
    return options


def has_named(authorities: Sequence[Path] = ()) -> bool:
    return bool(authorities or named_authorities())


def _trust(context: ssl.SSLContext, file: Path) -> None:
    try:
        if file.is_dir():
            context.load_verify_locations(capath=str(file))
        else:
            context.load_verify_locations(cafile=str(file))
    except ssl.SSLError:
        raise ArgumentError(f"{file} is not a PEM file of certificates, and is named as one to trust.") from None
    except OSError as fault:
        raise ArgumentError(f"The certificates in {file} cannot be read: {fault.strerror}.") from None


def share_trust(stock_client: Any) -> None:
    """Read the authorities of a stock client once, and not again for each of its links.

    For asyncio the SDK reads them on the event loop, even where it does not use TLS, and that takes tens of milliseconds.
    What it trusts stays the same. The SDK has no public name for what a client that is there already trusts.
    """
    if getattr(stock_client, "_ssl_context", True) is not None:
        return
    stock_client._ssl_context = _context_of(getattr(stock_client, "_connection_verify", None))


@functools.cache
def _context_of(authorities: str | None) -> ssl.SSLContext | None:
    import certifi  # the stock client's own list, which comes with it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(authorities or certifi.where())
    except (OSError, TypeError):
        return None  # the SDK reports what is wrong with it when it connects
    return context
