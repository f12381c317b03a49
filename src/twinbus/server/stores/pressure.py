"""Who has to wait when a store is behind: senders of much are held back and let in again one by one, senders of little never.

A small message waits for everything that was asked of its store before it. So while there are senders of little, what may wait
for a store is bounded by time: as much as it has lately written in ALLOWED_S. While more waits, nobody who sends much is read
from (`ConnectionGateway.is_flooded`); as answers come, those who were held back first are woken first, as many as there is
room for. Among themselves, senders of much fill the line of a store as far as they like, up to ALLOWED_BYTES_MAX and a little
more each: a store writes much together for less than little by little.
"""

from collections.abc import Callable, Sequence

from twinbus.broker.telling import tell
from twinbus.server.stores.served_store import ServedStore

ALLOWED_S = 0.02
ALLOWED_BYTES_MIN = 512 * 1024
ALLOWED_BYTES_MAX = 4 << 20
PART_BYTES = 256 * 1024
"""With more than this waiting for the stores a connection has its part in it if one of them is behind."""
LIGHT_FOR_S = 1.0
"""For how long after a message of somebody who sends little others of his kind are expected."""
MEASURED_S = 0.05
"""For at least so long a store is watched before what it wrote counts."""
READ_BYTES = 256 * 1024
"""What is expected of a connection that is read from again, before it is held back again."""


class Pace:
    """How much one store writes in ALLOWED_S, as far as there is anything to write."""

    __slots__ = ("_bytes", "_since", "allowed_bytes")

    def __init__(self) -> None:
        self.allowed_bytes = ALLOWED_BYTES_MAX
        self._bytes = 0
        self._since = 0.0

    def wrote(self, size: int, now: float, *, is_idle: bool) -> None:
        """`is_idle`: nothing else waits. How long it takes then says nothing about the store."""
        self._bytes += size
        elapsed = now - self._since
        if elapsed >= MEASURED_S:
            found = int(self._bytes / elapsed * ALLOWED_S)
            if not is_idle or found > self.allowed_bytes:
                self.allowed_bytes = min(max(found, ALLOWED_BYTES_MIN), ALLOWED_BYTES_MAX)
        if elapsed >= MEASURED_S or is_idle:
            self._bytes, self._since = 0, now


class StorePressure:
    """Of all stores of a namespace. `time` is that of the loop."""

    def __init__(self, stores: Sequence[ServedStore], time: Callable[[], float]) -> None:
        self._stores = stores
        self._time = time
        self._paces = {store.index: Pace() for store in stores}
        self._light_until = 0.0
        self._held_back: dict[Callable[[], None], None] = {}
        for store in stores:
            store.on_progress = self._progress

    def light_sent(self) -> None:
        """Somebody who sends little has sent something."""
        self._light_until = self._time() + LIGHT_FOR_S

    def must_wait(self, inflow_bytes: int, is_heavy: bool) -> bool:
        """Whether a connection is to be held back that has so much waiting for the stores, and sent much lately or not."""
        is_large = inflow_bytes > PART_BYTES
        if not is_large and not is_heavy:
            return False
        if self._time() < self._light_until:
            return self._is_high()
        return is_large and any(store.waiting_bytes > ALLOWED_BYTES_MAX for store in self._stores)

    def _is_high(self) -> bool:
        return any(
            store.is_pressed or store.waiting_bytes > self._paces[store.index].allowed_bytes for store in self._stores
        )

    def hold_back(self, wake: Callable[[], None]) -> None:
        """`wake` is called once, when there is room."""
        self._held_back[wake] = None

    def _progress(self, store: ServedStore, written_bytes: int) -> None:
        pace = self._paces[store.index]
        pace.wrote(written_bytes, self._time(), is_idle=store.is_idle)
        room = pace.allowed_bytes - store.waiting_bytes
        while self._held_back and not self._is_high() and (room > 0 or store.is_idle):
            wake = next(iter(self._held_back))
            del self._held_back[wake]
            room -= READ_BYTES
            tell(wake)
