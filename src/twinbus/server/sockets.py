"""Listening sockets, made before anything else so that a taken port is known at once."""

import errno
import socket
from random import SystemRandom

from twinbus.errors import ArgumentError

# Below the ports that systems give to outgoing connections. A server that is started again on a port of that range
# may find it taken: a client that keeps trying to reach it can even get the very port, and connect to itself.
FREE_PORTS = range(20_000, 32_000)
FREE_PORT_TRIES = 20


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens once a server takes it; port 0 finds a free one.

    Raises ArgumentError that says which port is taken.
    """
    if port == 0:
        for candidate in SystemRandom().sample(FREE_PORTS, FREE_PORT_TRIES):
            try:
                return _bind(host, candidate)
            except ArgumentError:
                continue
    return _bind(host, port)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as fault:
        sock.close()
        if fault.errno == errno.EADDRINUSE:
            raise ArgumentError(
                f"Port {port} on {host} is in use. Stop what listens there, or give another port."
            ) from None
        raise ArgumentError(f"Cannot listen on {host}:{port}: {fault.strerror}.") from None
    sock.setblocking(False)
    return sock


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])
