"""The ports of a namespace: settings in, bound sockets and the numbers they got out; and what clients connect to.

Who serves a namespace binds them before anything else is started, so that a port in use is reported at once. Several processes
that serve one namespace have none of their own: the process that started them hands them connections, each with the `Door` it
came in by.
"""

import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from twinbus.clock import Millis
from twinbus.model.descriptions import AuthorizationRule
from twinbus.server.listening.host_names import authority, names_of_listener, reachable_host
from twinbus.server.listening.sockets import bind, port_of
from twinbus.server.server_settings import AMQPS_PORT, ServerSettings
from twinbus.server.tls import development_certificate, problem_with, server_context, tls_folder

log = logging.getLogger(__name__)


class Door(IntEnum):
    """What kind of port a connection came in by."""

    SHARED = 0  # AMQP, HTTP and TLS: the first bytes say which
    TLS = 1
    HTTP = 2


@dataclass(frozen=True, slots=True)
class PortNumbers:
    amqp: int
    http: int
    tls: int | None


class Ports:
    """Bound and not listened on."""

    def __init__(self, settings: ServerSettings, keep: Callable[[Callable[[], None]], None]) -> None:
        """`keep` is given what closes each socket. Raises ArgumentError that names the port that is in use."""

        def bound(host: str, port: int) -> socket.socket:
            sock = bind(host, port)
            keep(sock.close)
            return sock

        self.plain = [bound(settings.plain_host, settings.amqp_port)]
        self.http = bound(settings.plain_host, settings.http_port)
        self.tls = [] if settings.tls_port is None else [bound(settings.host, settings.tls_port)]
        for extra in settings.also_listen:
            if extra.uses_tls:
                self.tls.append(bound(settings.host, extra.port))
            else:
                self.plain.append(bound(settings.plain_host, extra.port))
        with_tls = [port_of(sock) for sock in self.tls]
        # The one that was asked for by name, or else the one that AMQP usually has.
        is_usual = settings.tls_port is None and AMQPS_PORT in with_tls
        tls_port = AMQPS_PORT if is_usual else next(iter(with_tls), None)
        self.numbers = PortNumbers(port_of(self.plain[0]), port_of(self.http), tls_port)

    @property
    def doors(self) -> list[tuple[socket.socket, Door]]:
        return [
            *((sock, Door.SHARED) for sock in self.plain),
            *((sock, Door.TLS) for sock in self.tls),
            (self.http, Door.HTTP),
        ]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    context: ssl.SSLContext
    authority: Path | None  # what clients have to trust, if no certificate was given


def tls_files(settings: ServerSettings, now: Millis) -> TlsFiles:
    """What connections with TLS use. Without a certificate one for development is made, once."""
    if settings.tls_certificate is not None and settings.tls_key is not None:
        if (problem := problem_with(settings.tls_certificate, now)) is not None:
            log.warning("certificate", extra={"fields": {"file": settings.tls_certificate, "problem": problem}})
        return TlsFiles(server_context(settings.tls_certificate, settings.tls_key), None)
    made = development_certificate(tls_folder(settings.data_folder), host_names(settings), now)
    return TlsFiles(server_context(made.certificate, made.key), made.authority)


def host_names(settings: ServerSettings) -> list[str]:
    """Under which clients find the namespace."""
    advertised = [] if settings.advertised_host is None else [settings.advertised_host]
    return [*names_of_listener(settings.host), *settings.tls_names, *advertised]


def plain_name(settings: ServerSettings) -> str:
    """The advertised name is that of `host`, and the ports without TLS may be at the loopback address alone."""
    is_advertised = settings.advertised_host is not None and settings.plain_host == settings.host
    return (is_advertised and settings.advertised_host) or reachable_host(settings.plain_host)


def plain_connection_string(settings: ServerSettings, numbers: PortNumbers, rule: AuthorizationRule) -> str:
    """For the port without TLS: the emulator flag makes the SDKs connect without it."""
    return _connection_string(plain_name(settings), numbers.amqp, rule) + "UseDevelopmentEmulator=true;"


def tls_connection_string(settings: ServerSettings, numbers: PortNumbers, rule: AuthorizationRule) -> str | None:
    name = settings.advertised_host or reachable_host(settings.host)
    return _connection_string(name, numbers.tls, rule) if numbers.tls is not None else None


def _connection_string(host: str, port: int, rule: AuthorizationRule) -> str:
    endpoint = f"Endpoint=sb://{authority(host, port)};"
    return f"{endpoint}SharedAccessKeyName={rule.name};SharedAccessKey={rule.primary_key};"
