"""The settings of a namespace's process: a value, checked when it is created."""

import ipaddress
import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from twinbus.errors import ArgumentError
from twinbus.gateway.trusted_issuer import TrustedIssuer
from twinbus.meter.book import EXACT_PER_SECOND_DEFAULT
from twinbus.server.listening.admission import SharedLimits
from twinbus.server.listening.host_names import check_host_name

AMQP_PORT_DEFAULT = 5672
HTTP_PORT_DEFAULT = 5300
STORE_COUNT_DEFAULT = 16
STORE_COUNT_MAX = 64
PROCESSES_MAX = 32
CONNECTIONS_MAX_DEFAULT = 5_000
PORT_MAX = 65_535
AMQPS_PORT = 5671
PORTS_WITH_TLS = (443, AMQPS_PORT)
"""What clients speak there without being told: HTTPS and AMQP over TLS."""
LOOPBACK = "127.0.0.1"
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


class LogFormat(Enum):
    LOGFMT = "logfmt"
    JSON = "json"


class LogLevel(Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def require_node_name(name: str) -> None:
    """Raises ArgumentError."""
    if not NODE_NAME.fullmatch(name):
        raise ArgumentError(
            f"'{name}' is no name for a node. Use 1 to 32 letters, digits, hyphens, underscores and dots."
        )


@dataclass(frozen=True, slots=True)
class ExtraPort:
    """One more port for AMQP, WebSockets and HTTP."""

    port: int
    uses_tls: bool

    def __str__(self) -> str:
        return f"{self.port}/{'tls' if self.uses_tls else 'plain'}"


def read_extra_ports(text: str) -> tuple[ExtraPort, ...]:
    """`80,443,8443/tls`: 443 and 5671 have TLS, others do not, unless `/tls` or `/plain` says so. Raises ArgumentError."""
    return tuple(_extra_port(item.strip()) for item in text.split(",") if item.strip())


def _extra_port(item: str) -> ExtraPort:
    digits, _, kind = item.partition("/")
    if not digits.isascii() or not digits.isdigit() or kind.lower() not in ("", "tls", "plain"):
        raise ArgumentError(
            f"'{item}' is not a port. Write a number, or a number with /tls or /plain, such as 8443/tls."
        )
    port = int(digits)
    return ExtraPort(port, kind.lower() == "tls" if kind else port in PORTS_WITH_TLS)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Port 0 asks for a free port; the running server says which one it got."""

    name: str
    data_folder: Path
    host: str = LOOPBACK
    amqp_port: int = AMQP_PORT_DEFAULT
    http_port: int = HTTP_PORT_DEFAULT
    tls_port: int | None = None  # None: no TLS listener, unless one of `also_listen` is
    also_listen: tuple[ExtraPort, ...] = ()
    advertised_host: str | None = None  # the name that clients use; None: the address it listens on
    store_count: int = STORE_COUNT_DEFAULT
    store_dsns: tuple[str, ...] = field(default=(), repr=False)  # of databases; none: the stores are in the data folder
    node_name: str | None = None  # one of several machines; None: this process alone serves the namespace
    listen_nodes: str | None = None  # HOST:PORT at which it listens for other nodes
    advertise_nodes: str | None = None  # HOST:PORT at which they reach it; None: where it listens
    connections_max: int = CONNECTIONS_MAX_DEFAULT
    shared_limits: SharedLimits = field(default_factory=SharedLimits)
    tls_certificate: Path | None = None  # None with a TLS port: a certificate for development is created
    tls_key: Path | None = None
    tls_names: tuple[str, ...] = ()  # more names for the certificate for development
    allow_plain: bool = False  # no TLS even where other machines can reach it
    shared_access_key: str | None = field(default=None, repr=False)  # for a first start; None generates one
    trusted_issuers: tuple[TrustedIssuer, ...] = ()  # of JSON web tokens
    log_format: LogFormat = LogFormat.LOGFMT
    log_level: LogLevel = LogLevel.INFO
    is_metered: bool = False  # keep a log of all operations
    operations_folder: Path | None = None  # None: in the data folder
    exact_operations_max: int = EXACT_PER_SECOND_DEFAULT  # logged one by one per second; more are summed

    def __post_init__(self) -> None:
        self._check_ports()
        self._check_names()
        if not 1 <= self.store_count <= STORE_COUNT_MAX:
            raise ArgumentError(f"A namespace has 1 to {STORE_COUNT_MAX} messaging stores, not {self.store_count}.")
        self._check_node()
        if self.exact_operations_max < 0:
            raise ArgumentError("The number of operations logged one by one cannot be below 0.")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ArgumentError("TLS needs both a certificate and its key; give both files or neither.")
        if self.tls_certificate is not None and not self.uses_tls:
            raise ArgumentError("A certificate needs a TLS port. Give both or neither.")
        if not self.uses_tls and not self.allow_plain and not is_loopback(self.host):
            raise ArgumentError(
                f"{self.host} is not the loopback address, and keys and messages would cross the network in the clear. "
                "Serve with TLS (--tls), or accept it (--allow-plain)."
            )

    def _check_node(self) -> None:
        if (self.node_name is None) != (self.listen_nodes is None):
            raise ArgumentError(
                "A node of several machines has a name and an address for the others. Give --node and --listen-nodes, or neither."
            )
        if self.node_name is None:
            if self.advertise_nodes is not None:
                raise ArgumentError(
                    "Only one of several machines has an address for the others (--advertise-nodes). Give --node too."
                )
            return
        require_node_name(self.node_name)
        if not self.store_dsns:
            raise ArgumentError("Several machines share messaging stores in PostgreSQL. Name its servers with --store.")

    def _check_ports(self) -> None:
        taken: set[int] = set()
        for port in (self.amqp_port, self.http_port, self.tls_port or 0, *(each.port for each in self.also_listen)):
            if not 0 <= port <= PORT_MAX:
                raise ArgumentError(f"Port {port} is not between 0 and {PORT_MAX}.")
            if port in taken:
                raise ArgumentError(f"Port {port} is given twice. Choose a different one for each.")
            taken |= {port} - {0}

    def _check_names(self) -> None:
        if self.advertised_host is not None:
            check_host_name(self.advertised_host, "--advertise")
        for name in self.tls_names:
            check_host_name(name, "--tls-name", may_be_wildcard=True)
        if self.tls_names and self.tls_certificate is not None:
            raise ArgumentError("--tls-name is for the generated certificate, and one is given. Omit either.")

    @property
    def uses_tls(self) -> bool:
        return self.tls_port is not None or any(each.uses_tls for each in self.also_listen)

    @property
    def plain_host(self) -> str:
        """Where the ports without TLS listen: at the loopback address unless plain connections are allowed elsewhere."""
        return self.host if self.allow_plain or is_loopback(self.host) else LOOPBACK


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.casefold() == "localhost"
