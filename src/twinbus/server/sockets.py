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
    """A socket that is ours and refuses connections until `start_listening`; port 0 finds a free one.

    Raises ArgumentError that says which port is taken.
    """
    if port == 0:
        for candidate in SystemRandom().sample(FREE_PORTS, FREE_PORT_TRIES):
            sock = _socket(host)
            try:
                # Before the option is set: with it, a port that another of our sockets is bound to and does not listen
                # on yet would be had as well, and the second to listen fail.
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
    """From here on connections wait to be accepted. Raises ArgumentError where another program was quicker."""
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
    """Connections that ended a moment ago keep a server from its port unless all of them have this option."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _refusal(host: str, port: int, fault: OSError) -> ArgumentError:
    if fault.errno == errno.EADDRINUSE:
        return ArgumentError(
            f"Port {port} on {host} is in use. Stop what listens there, or give 'twinbus serve' another port."
        )
    return ArgumentError(f"Cannot listen on {host}:{port}: {fault.strerror}.")


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])
