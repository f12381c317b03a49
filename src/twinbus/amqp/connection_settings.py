"""What one side of a connection announces, and the limits that it enforces."""

from dataclasses import dataclass, field
from typing import Any

from twinbus.amqp.codec.sasl import ANONYMOUS, MSSBCBS, PLAIN, SaslCredentials
from twinbus.clock import Millis

BUFFER_SIZE = 64 * 1_048_576
"""Default for what a connection may hold in memory in each direction: 64 messages of the default maximum size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    container_id: str
    hostname: str | None = None
    """Client: the host that it wants to reach."""
    properties: dict[Any, Any] | None = None
    frame_size_max: int = 65_536
    """This and channel-max are what the service announces. Larger messages come in several frames."""
    channel_max: int = 4_999
    handle_max: int = 65_535
    link_count_max: int = 10_000
    """Over all sessions of the connection; a further link is refused."""
    idle_timeout: Millis = 240_000
    """Announced. The connection is given up after twice this time, as section 2.4.5 advises."""
    heartbeat_interval: Millis = 10_000
    """An empty frame is sent at least this often, requested or not: the Python SDK reads under a lock that its writes need."""
    handshake_timeout: Millis = 30_000
    """How long a peer may take from its first byte to its open."""
    close_timeout: Millis = 5_000
    """How long the peer has to answer our close."""
    incoming_window: int = 5_000
    message_size_max: int = 1_048_576
    """For incoming links that are accepted without a limit of their own."""
    reassembly_size_max: int = BUFFER_SIZE
    """Bytes of incomplete messages over all links of the connection; more if a link is accepted that takes larger messages."""
    incomplete_timeout: Millis = 60_000
    """How long the next frame of an incomplete message may take before its bytes are dropped; at most twice as long."""
    stranger_size_max: int = 256 * 1_024
    stranger_link_count_max: int = 32
    stranger_session_count_max: int = 32
    """Bytes of incomplete messages, links and sessions while a peer is restrained."""
    held_back_size_max: int = BUFFER_SIZE
    """Bytes that may wait for the windows of all sessions when more is to be sent; beyond that, the session that sends it is
    ended."""
    unsettled_count_max: int = 100_000
    """Outgoing deliveries per session whose settlement is awaited; the oldest are forgotten beyond that."""
    inflow_count_max: int = 20_000
    inflow_size_max: int = 16 * 1_048_576
    """Bytes and count of incoming deliveries that the application has not settled; beyond that, reading should pause."""
    noise_count_max: int = 50_000
    """Frames in a row, faster than they are taken, that bring and settle no message: twice what opens as many links as are
    allowed. Beyond that, the connection is closed."""
    sasl_mechanisms: tuple[str, ...] = (MSSBCBS, PLAIN, ANONYMOUS)
    """Server: what it offers, best first."""
    is_sasl_required: bool = False
    """Server: refuse a peer that starts without the SASL layer."""
    sasl_credentials: SaslCredentials | None = field(default_factory=SaslCredentials)
    """Client: what it answers; None skips the security layer."""
