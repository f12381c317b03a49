"""The host names of a server, for pages that need no token: the `Host` of a request in, whether it is one of ours out.

A page of another site can make a browser on this machine ask here under a name of that site (DNS rebinding), and then read the
answer. It has to use a name for that: an address is always ours.
"""

from collections.abc import Iterable
from ipaddress import ip_address

from starlette.requests import Request

LOCALHOST = "localhost"


class OwnHosts:
    def __init__(self, names: Iterable[str]) -> None:
        """A name may be `*.NAME`, as in a certificate."""
        folded = {name.casefold().rstrip(".") for name in names} | {LOCALHOST}
        self._names = {name for name in folded if not name.startswith("*.")}
        self._suffixes = (f".{LOCALHOST}", *(name[1:] for name in folded if name.startswith("*.")))

    def include_host_of(self, request: Request) -> bool:
        """HTTP/1.0 may omit the host; no browser does."""
        host = request.headers.get("host")
        return host is None or self.include(host)

    def include(self, host: str) -> bool:
        """`host` may have a port."""
        name = _without_port(host.strip()).casefold().rstrip(".")
        return name in self._names or name.endswith(self._suffixes) or _is_address(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, separator, port = host.rpartition(":")
    return name if separator and port.isdigit() and ":" not in name else host


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
