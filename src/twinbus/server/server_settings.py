"""The settings of a namespace's process: a value, checked when it is created."""

import ipaddress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from twinbus.errors import ArgumentError
from twinbus.meter.book import EXACT_PER_SECOND_DEFAULT
from twinbus.model.message_limits import MESSAGE_SIZE_MAX

AMQP_PORT_DEFAULT = 5672
HTTP_PORT_DEFAULT = 5300
STORE_COUNT_DEFAULT = 16
STORE_COUNT_MAX = 64
MESSAGE_SIZE_CEILING = 100 * 1024 * 1024
CONNECTIONS_MAX_DEFAULT = 5_000
PORT_MAX = 65_535
LOOPBACK = "127.0.0.1"


class LogFormat(Enum):
    LOGFMT = "logfmt"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Port 0 asks for a free port; the running server says which one it got."""

    name: str
    data_folder: Path
    host: str = LOOPBACK
    amqp_port: int = AMQP_PORT_DEFAULT
    http_port: int = HTTP_PORT_DEFAULT
    tls_port: int | None = None  # None: no TLS listener
    store_count: int = STORE_COUNT_DEFAULT
    message_size_max: int = MESSAGE_SIZE_MAX
    connections_max: int = CONNECTIONS_MAX_DEFAULT
    tls_certificate: Path | None = None  # None with a TLS port: a certificate for development is created
    tls_key: Path | None = None
    allow_plain: bool = False  # no TLS even where other machines can reach it
    shared_access_key: str | None = field(default=None, repr=False)  # for a first start; None generates one
    log_format: LogFormat = LogFormat.LOGFMT
    is_metered: bool = False  # keep a log of all operations
    operations_folder: Path | None = None  # None: in the data folder
    exact_operations_max: int = EXACT_PER_SECOND_DEFAULT  # logged one by one per second; more are summed

    def __post_init__(self) -> None:
        for port in (self.amqp_port, self.http_port, self.tls_port or 0):
            if not 0 <= port <= PORT_MAX:
                raise ArgumentError(f"Port {port} is not between 0 and {PORT_MAX}.")
        if not 1 <= self.store_count <= STORE_COUNT_MAX:
            raise ArgumentError(f"A namespace has 1 to {STORE_COUNT_MAX} messaging stores, not {self.store_count}.")
        if not 1024 <= self.message_size_max <= MESSAGE_SIZE_CEILING:
            raise ArgumentError(f"The message size limit must be 1024 to {MESSAGE_SIZE_CEILING} bytes.")
        if self.exact_operations_max < 0:
            raise ArgumentError("The number of operations logged one by one cannot be below 0.")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ArgumentError("TLS needs both a certificate and its key; give both files or neither.")
        if self.tls_certificate is not None and self.tls_port is None:
            raise ArgumentError("A certificate needs a TLS port. Give both or neither.")
        if self.tls_port is None and not self.allow_plain and not is_loopback(self.host):
            raise ArgumentError(
                f"{self.host} is not the loopback address, and keys and messages would cross the network in the clear. "
                "Serve with TLS (--tls), or accept it (--allow-plain)."
            )

    @property
    def plain_host(self) -> str:
        """Where the ports without TLS listen: at the loopback address unless plain connections are allowed elsewhere."""
        return self.host if self.allow_plain or is_loopback(self.host) else LOOPBACK


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"
