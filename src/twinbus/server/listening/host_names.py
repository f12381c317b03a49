"""Which host name clients are given for a listener, and which names a certificate has to have: addresses in, names out."""

import ipaddress
import re
import socket

from twinbus.errors import ArgumentError

ALL_ADDRESSES = ("0.0.0.0", "::", "")
LOCALHOST = "localhost"
LOOPBACK_NAMES = (LOCALHOST, "ip6-localhost")
HOST_NAME_LENGTH_MAX = 253
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def reachable_host(host: str) -> str:
    """A name that clients on this machine can use for a listener.

    The address that means "all addresses" cannot be dialled, and most SDKs cannot read an IPv6 address in a connection string.
    """
    if host in ALL_ADDRESSES:
        return LOCALHOST
    candidates = (*LOOPBACK_NAMES, socket.gethostname()) if ":" in host else ()
    return next((name for name in candidates if host in _addresses(name)), host)


def authority(host: str, port: int) -> str:
    """Host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def names_of_listener(host: str) -> list[str]:
    """The names under which clients find a listener: that of this machine too if it listens on all addresses."""
    if host not in ALL_ADDRESSES:
        return [host, reachable_host(host)]
    own = socket.gethostname()
    return [own] if _HOST_NAME.fullmatch(own) else []


def check_host_name(name: str, option: str, *, may_be_wildcard: bool = False) -> None:
    """ArgumentError unless it is a host name or an address, as a URL and a certificate have them."""
    if is_address(name):
        return
    plain = name.removeprefix("*.") if may_be_wildcard else name
    if len(name) > HOST_NAME_LENGTH_MAX or not _HOST_NAME.fullmatch(plain):
        raise ArgumentError(
            f"{option}: '{name}' is not a host name. Write a name or an address, without scheme and port."
        )


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _addresses(name: str) -> set[str]:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(entry[4][0]) for entry in found}
