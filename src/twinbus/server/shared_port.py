"""One port for AMQP and HTTP: the first four bytes of a connection say which of the two it speaks.

An SDK's connection string names a single port, and the JavaScript SDK takes it for AMQP over TLS, for AMQP over
WebSockets and for administration over HTTPS alike.
"""

import asyncio
from collections.abc import Callable
from typing import cast

AMQP_START = b"AMQP"
FIRST_BYTES_WAIT_S = 20.0

MakeProtocol = Callable[[], asyncio.Protocol]


class SharedPort(asyncio.Protocol):
    """Holds a connection until it is known what it speaks, then hands it over with what was read."""

    def __init__(self, make_amqp: MakeProtocol, make_http: MakeProtocol, loop: asyncio.AbstractEventLoop) -> None:
        self._make_amqp = make_amqp
        self._make_http = make_http
        self._loop = loop
        self._start = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports keep the interface without the base class.
        self._transport = cast(asyncio.Transport, transport)
        self._giving_up = self._loop.call_later(FIRST_BYTES_WAIT_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._start += data
        if self._start.startswith(AMQP_START):
            self._hand_over(self._make_amqp())
        elif not AMQP_START.startswith(self._start):
            self._hand_over(self._make_http())

    def connection_lost(self, exc: Exception | None) -> None:
        self._giving_up.cancel()

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        self._giving_up.cancel()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._start)
