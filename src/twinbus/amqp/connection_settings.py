"""What one side of a connection announces, and the limits it keeps."""

from dataclasses import dataclass, field
from typing import Any

from twinbus.amqp.codec.sasl import ANONYMOUS, MSSBCBS, PLAIN, SaslCredentials
from twinbus.clock import Millis

BUFFER_SIZE = 64 * 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    container_id: str
    hostname: str | None = None
    """Client: the host that it means to reach."""
    properties: dict[Any, Any] | None = None
    frame_size_max: int = 65_536
    channel_max: int = 4_999
    handle_max: int = 65_535
    link_count_max: int = 10_000
    """Over all sessions of the connection; a further link is refused."""
    idle_timeout: Millis = 240_000
    """Announced. The connection is given up after twice as long, as the specification advises."""
    heartbeat_interval: Millis = 10_000
    """Silence is broken at least this often, asked for or not: the Python SDK reads under a lock that its writes need."""
    handshake_timeout: Millis = 30_000
    """How long a peer may take from its first byte to its open."""
    close_timeout: Millis = 5_000
    """How long the peer has to answer our close."""
    incoming_window: int = 5_000
    message_size_max: int = 1_048_576
    """For incoming links that are accepted without a limit of their own."""
    reassembly_size_max: int = BUFFER_SIZE
    """Bytes of messages that are not whole yet, over all links of the connection; room for one of the largest at least."""
    held_back_size_max: int = BUFFER_SIZE
    """Bytes that wait for one session's window; beyond, the session is ended. As above."""
    unsettled_count_max: int = 100_000
    """Outgoing deliveries per session whose settlement is awaited; the oldest are forgotten beyond that."""
    inflow_count_max: int = 20_000
    inflow_size_max: int = 16 * 1_048_576
    """Incoming deliveries that the application has not settled; beyond, reading should pause."""
    sasl_mechanisms: tuple[str, ...] = (MSSBCBS, PLAIN, ANONYMOUS)
    """Server: what it offers, best first."""
    is_sasl_required: bool = False
    """Server: refuse a peer that starts without the security layer."""
    sasl_credentials: SaslCredentials | None = field(default_factory=SaslCredentials)
    """Client: what it answers; None leaves the security layer out."""
