"""Listening sockets, made before anything else so that a taken port is known at once."""

import errno
import socket

from twinbus.errors import ArgumentError


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens once a server takes it. Raises ArgumentError that says which port is taken."""
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
