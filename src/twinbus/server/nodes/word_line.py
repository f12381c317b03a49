"""One end of a leash, the connection between the supervisor and a node: messages as lines of JSON (`switchboard` says which)."""

import asyncio
import json
from collections.abc import Callable
from typing import cast

from twinbus.server.nodes.switchboard import Words


class WordLine(asyncio.Protocol):
    """`told` is called with every message, and `lost` at the end: both are to be set before it is connected."""

    def __init__(self) -> None:
        self.told: Callable[[Words], None] = lambda _: None
        self.lost: Callable[[], None] = lambda: None
        self.transport: asyncio.Transport | None = None
        self._unread = bytearray()

    def say(self, words: Words) -> None:
        if self.transport is not None:
            self.transport.write(json.dumps(words).encode() + b"\n")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        *lines, rest = self._unread.split(b"\n")
        self._unread = bytearray(rest)
        for line in lines:
            self.told(json.loads(line))

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        self.lost()
