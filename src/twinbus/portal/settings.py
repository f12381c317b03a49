"""What the portal is started with: a value, checked when it is created."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twinbus.errors import ArgumentError

PORT_DEFAULT = 5380
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class PortalSettings:
    """`names` are host names that the portal answers to, beside addresses and localhost. `data` is where local namespaces are."""

    host: str = LOOPBACK
    port: int = PORT_DEFAULT
    names: Sequence[str] = ()
    certificate: Path | None = None
    key: Path | None = None
    data: Path = Path("twinbus-data")
    prices: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ArgumentError(f"{self.port} is not a port. Use 1 to 65535, or 0 for a free one.")
        if (self.certificate is None) != (self.key is None):
            raise ArgumentError("A certificate needs its key: give both --tls-cert and --tls-key.")
        if not self.is_loopback and not self.uses_tls:
            raise ArgumentError(
                f"Other machines can connect to {self.host}, so keys would be sent in plain text. "
                "Add --tls, or --tls-cert and --tls-key."
            )

    @property
    def uses_tls(self) -> bool:
        return self.certificate is not None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
