"""Listening sockets: hosts and ports in, sockets out; and the protocol of a connection by its first bytes.

Ports are bound before anything else is started, so that a port in use is reported at once, and listened on when everything
behind them is ready.
"""

import asyncio
import errno
import socket
import ssl
import sys
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from random import SystemRandom
from typing import cast

from twinbus.errors import ArgumentError
from twinbus.server.listening.admission import Admission

# Below the ports that systems give to outgoing connections. A server that is restarted on a port of that range may find
# it taken: a client that keeps trying to reach the server can even be given that very port, and connect to itself.
FREE_PORTS = range(20_000, 32_000)
FREE_PORT_TRIES = 20
AMQP_START = b"AMQP"
TLS_HANDSHAKE = 0x16  # the first byte of every TLS connection; no request of HTTP starts with it
FIRST_BYTES_WAIT_S = 20.0

MakeProtocol = Callable[[], asyncio.Protocol]


def bind(host: str, port: int) -> socket.socket:
    """A socket that is ours and refuses connections until `start_listening`; port 0 finds a free one.

    Raises ArgumentError that names the port if it is in use.
    """
    if port == 0:
        for candidate in SystemRandom().sample(FREE_PORTS, FREE_PORT_TRIES):
            sock = _socket(host)
            try:
                # Before the option is set: with it, the system would also give us a port that another of our sockets
                # is bound to and does not listen on yet, and whichever listens second would fail.
                sock.bind((host, candidate))
            except OSError:
                sock.close()
                continue
            _share_with_ended_connections(sock)
            return sock
    sock = _socket(host)
    _share_with_ended_connections(sock)
    try:
        sock.bind((host, port))
    except OSError as fault:
        sock.close()
        raise _refusal(host, port, fault) from None
    return sock


def start_listening(sock: socket.socket, backlog: int) -> None:
    """From here on connections wait to be accepted. Raises ArgumentError if another program was faster."""
    try:
        sock.listen(backlog)
    except OSError as fault:
        host, port = sock.getsockname()[:2]
        raise _refusal(host, port, fault) from None


def _socket(host: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


def _share_with_ended_connections(sock: socket.socket) -> None:
    """Connections that have just ended keep a server from its port unless all its sockets have this option."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _refusal(host: str, port: int, fault: OSError) -> ArgumentError:
    if fault.errno == errno.EADDRINUSE:
        return ArgumentError(f"Port {port} on {host} is in use. Stop what listens there, or choose another port.")
    if fault.errno == errno.EACCES:
        allow = f", allow it with 'sudo sysctl net.ipv4.ip_unprivileged_port_start={port}'" if _is_linux() else ""
        return ArgumentError(
            f"Port {port} on {host} is not allowed to this user. Use a port from 1024 on{allow}, or run twinbus as root."
        )
    if fault.errno == errno.EADDRNOTAVAIL:
        return ArgumentError(f"This machine has no address {host}. Give another one with --host.")
    return ArgumentError(f"Cannot listen on {host}:{port}: {fault.strerror or fault}.")


def _is_linux() -> bool:
    return sys.platform == "linux"


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


class _TlsLayer(SSLProtocol):
    max_size = 32 * 1024
    """Of a buffer that it fills with zeros at the first byte: with the usual 256 KB, 5,000 clients that send no other take 1.3 GB."""


class SharedPort(asyncio.Protocol):
    """A port for AMQP and HTTP, with TLS and without: the first bytes of a connection say what it speaks.

    Connection strings name a single port, and SDKs take it for AMQP, for AMQP over WebSockets and for administration; some
    use TLS for the last one alone. A connection stays here until the bytes are there, then goes to its protocol with them.
    One that sends too few in time is closed, and `admission` bounds how many wait.

    `tls` is for connections that start with a TLS handshake. What they say inside is decided by a second one, which gets the
    first as `outer`.
    """

    def __init__(
        self,
        make_amqp: MakeProtocol,
        make_http: MakeProtocol,
        admission: Admission,
        loop: asyncio.AbstractEventLoop,
        tls: ssl.SSLContext | None = None,
        outer: "SharedPort | None" = None,
    ) -> None:
        self._make_amqp = make_amqp
        self._make_http = make_http
        self._admission = admission
        self._loop = loop
        self._tls = tls
        self._outer = outer
        self._start = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._giving_up = self._loop.call_later(FIRST_BYTES_WAIT_S, self.cut)
        if self._outer is not None:
            self._outer._decide()
        self._admission.wait_for_start(self)

    def data_received(self, data: bytes) -> None:
        self._start += data
        if self._start.startswith(AMQP_START):
            self._hand_over(self._make_amqp())
        elif self._tls is not None and self._start[0] == TLS_HANDSHAKE:
            self._start_tls(self._tls)
        elif not AMQP_START.startswith(self._start):
            self._hand_over(self._make_http())

    def connection_lost(self, exc: Exception | None) -> None:
        self._decide()

    def cut(self) -> None:
        self._decide()
        self._transport.abort()

    def _decide(self) -> None:
        self._giving_up.cancel()
        self._admission.decided(self)

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        self._decide()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._start)

    def _start_tls(self, tls: ssl.SSLContext) -> None:
        """It stays undecided, and so bounded in time and number, until the handshake is over."""
        inner = SharedPort(self._make_amqp, self._make_http, self._admission, self._loop, outer=self)
        # Not the loop's own `start_tls`: that one reads the handshake from its start, and we have read it already.
        layer = _TlsLayer(
            self._loop,
            inner,
            tls,
            None,  # type: ignore[arg-type]  # nobody waits for the handshake
            server_side=True,
            ssl_handshake_timeout=FIRST_BYTES_WAIT_S,  # type: ignore[arg-type]  # any number will do
        )
        self._transport.set_protocol(layer)
        layer.connection_made(self._transport)
        rest = memoryview(self._start)
        while rest:
            buffer = layer.get_buffer(len(rest))
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            layer.buffer_updated(size)
            rest = rest[size:]
