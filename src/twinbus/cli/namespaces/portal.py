"""`twinbus portal`: namespaces in a browser."""

import logging
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.command import DATA_DEFAULT, CaFileOption, DataOption, JsonOption
from twinbus.cli.cost.options import PricesOption
from twinbus.cli.namespaces.running import all_running
from twinbus.cli.output import Output
from twinbus.portal.listening import address_of, listen
from twinbus.portal.settings import LOOPBACK, PORT_DEFAULT, PortalSettings

if TYPE_CHECKING:
    from twinbus.portal.namespaces.directory import KnownNamespace

TLS_FOLDER = "portal-tls"


def register(app: typer.Typer) -> None:
    app.command("portal")(portal)


def portal(
    connection_string: Annotated[
        list[str] | None,
        typer.Option("--connection-string", help="A namespace, including one in Azure."),
    ] = None,
    data: DataOption = DATA_DEFAULT,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Anything but loopback needs TLS and a login.")
    ] = LOOPBACK,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0 chooses a free one.")
    ] = PORT_DEFAULT,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="A host name that browsers use for the portal, in addition to localhost."),
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="HTTPS with a generated development certificate.")] = False,
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="PEM certificate for HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key.")] = None,
    ca_file: CaFileOption = None,
    prices: PricesOption = None,
    as_json: JsonOption = False,
    listening: Annotated[
        int | None, typer.Option("--listening", hidden=True, help="A socket that already listens.")
    ] = None,
) -> None:
    """Serve the portal, which shows namespaces in a browser, until Ctrl-C. Namespaces on this machine are found."""
    from twinbus.portal.namespaces.directory import Directory, given_namespace
    from twinbus.portal.serving import serve

    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    if tls and tls_cert is None:
        tls_cert, tls_key = _development_certificate(data, host, name or [])
    settings = PortalSettings(host, port, tuple(name or ()), tls_cert, tls_key, data, prices)
    if tls_cert is not None and tls_key is not None:
        _check_certificate(tls_cert, tls_key)
    authorities = () if ca_file is None else (ca_file,)
    given = [given_namespace(each, authorities) for each in connection_string or ()]
    opened = listen(settings) if listening is None else socket.socket(fileno=listening)
    directory = Directory(given, lambda: local_namespaces(data))

    def ready() -> None:
        address = address_of(settings, opened)
        Output(as_json=as_json).done(f"The portal is at {address}", portal=address)
        sys.stdout.flush()

    serve(settings, directory, opened, ready, ends_with_input=listening is not None)


def local_namespaces(data: Path) -> "list[KnownNamespace]":
    """Those that run on this machine and whose keys this user may read."""
    from twinbus.portal.namespaces.directory import KnownNamespace

    return [
        KnownNamespace(each.name, each.local_connection_string, each.endpoint, (), is_local=True)
        for each in all_running(data)
    ]


def _development_certificate(data: Path, host: str, names: list[str]) -> tuple[Path, Path]:
    from twinbus.clock import SystemClock
    from twinbus.server.tls import development_certificate

    own = [] if host in ("0.0.0.0", "::") else [host]
    files = development_certificate(data / TLS_FOLDER, [*own, socket.gethostname(), *names], SystemClock().now())
    return files.certificate, files.key


def _check_certificate(certificate: Path, key: Path) -> None:
    """Before an address is printed that no browser could open. Raises ArgumentError that names the file."""
    from twinbus.clock import SystemClock
    from twinbus.server.tls import problem_with, server_context

    server_context(certificate, key)
    if (problem := problem_with(certificate, SystemClock().now())) is not None:
        print(f"twinbus: The certificate {certificate}: {problem}.", file=sys.stderr)
