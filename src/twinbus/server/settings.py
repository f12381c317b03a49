"""What a namespace's process is told at start: a value, checked when it is made."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from twinbus.errors import ArgumentError

AMQP_PORT_DEFAULT = 5672
HTTP_PORT_DEFAULT = 5300
STORE_COUNT_DEFAULT = 16
STORE_COUNT_MAX = 64
MESSAGE_SIZE_DEFAULT = 256 * 1024
MESSAGE_SIZE_CEILING = 100 * 1024 * 1024
CONNECTIONS_MAX_DEFAULT = 5_000
PORT_MAX = 65_535


class LogFormat(Enum):
    LOGFMT = "logfmt"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Port 0 asks the system for a free one; which it was, the running server tells."""

    name: str
    data_folder: Path
    host: str = "127.0.0.1"
    amqp_port: int = AMQP_PORT_DEFAULT
    http_port: int = HTTP_PORT_DEFAULT
    amqps_port: int | None = None  # None: no TLS listener
    store_count: int = STORE_COUNT_DEFAULT
    message_size_max: int = MESSAGE_SIZE_DEFAULT
    connections_max: int = CONNECTIONS_MAX_DEFAULT
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    shared_access_key: str | None = field(default=None, repr=False)  # for a first start; None draws one
    log_format: LogFormat = LogFormat.LOGFMT

    def __post_init__(self) -> None:
        for port in (self.amqp_port, self.http_port, self.amqps_port or 0):
            if not 0 <= port <= PORT_MAX:
                raise ArgumentError(f"Port {port} is not between 0 and {PORT_MAX}.")
        if not 1 <= self.store_count <= STORE_COUNT_MAX:
            raise ArgumentError(f"A namespace has 1 to {STORE_COUNT_MAX} messaging stores, not {self.store_count}.")
        if not 1024 <= self.message_size_max <= MESSAGE_SIZE_CEILING:
            raise ArgumentError(f"The message size limit must be 1024 to {MESSAGE_SIZE_CEILING} bytes.")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ArgumentError("TLS needs both a certificate and its key; give both files or neither.")
        if self.amqps_port is not None and self.tls_certificate is None:
            raise ArgumentError("A TLS port needs a certificate and its key.")
