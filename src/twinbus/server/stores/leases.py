"""Until when the messaging stores are ours, as the event loop knows it; and the line on which it learns that.

    loop           a byte every BEAT_S -->              the store process renews leases from the last of these on
                   <-- store number, boot time           with every renewal: trusted until then
                   <-- store number, REPLICATED or not   with the first renewal, and when it has changed

A namespace that is frozen sends nothing, so its leases end as if nobody had renewed them. One that was killed closes the line, and
its store process gives them back at once. A store on a folder has no lease: its lock is held by the process itself.
"""

import asyncio
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, cast

from twinbus.broker.store_port import ALWAYS_HELD, StoreLease
from twinbus.clock import boot_time

BEAT_S: Final = 0.25
UPDATE: Final = Struct("=id")
TAKEN: Final = -1.0
"""Instead of a time: another process owns the store."""
REPLICATED: Final = -2.0
NOT_REPLICATED: Final = -3.0
"""Instead of a time: a commit waits for a synchronous standby, or for none."""


class HeldLease:
    """Of one store. Written by the line, read by the message broker."""

    def __init__(self) -> None:
        self.until = 0.0

    def is_held(self) -> bool:
        return boot_time() < self.until


class LeaseLine(asyncio.Protocol):
    """The loop's end. `taken` is called with the number of a store that another process owns by now, `replicated` with that of a
    store and whether what it acknowledges is on a standby too."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        leases: Sequence[HeldLease],
        taken: Callable[[int], None],
        replicated: Callable[[int, bool], None],
    ) -> None:
        self._loop = loop
        self._leases = leases
        self._taken = taken
        self._replicated = replicated
        self._pending = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._beat()

    def _beat(self) -> None:
        if self._transport is not None:
            self._transport.write(b".")
            self._timer = self._loop.call_later(BEAT_S, self._beat)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        whole = len(self._pending) // UPDATE.size * UPDATE.size
        for number, until in UPDATE.iter_unpack(bytes(self._pending[:whole])):
            self._update(number, until)
        del self._pending[:whole]

    def _update(self, number: int, until: float) -> None:
        if until in (REPLICATED, NOT_REPLICATED):
            self._replicated(number, until == REPLICATED)
            return
        self._leases[number].until = max(until, 0.0)
        if until == TAKEN:
            self._taken(number)

    def connection_lost(self, _: Exception | None) -> None:
        self.close()

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if self._timer is not None:
            self._timer.cancel()
        if transport is not None:
            transport.abort()
        for lease in self._leases:
            lease.until = 0.0


def held_for_good(count: int) -> list[StoreLease]:
    return [ALWAYS_HELD] * count
