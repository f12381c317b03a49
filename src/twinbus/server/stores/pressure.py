"""Who has to wait when a store is behind: senders of much are held back and let in again one by one, senders of little never.

A small message waits for everything that was asked of its store before it. So while there are senders of little, what may wait
for a store is bounded by time: as much as it has lately written in ALLOWED_S. While more waits, nobody who sends much is read
from (`ConnectionGateway.is_flooded`); as answers come, those who were held back first are woken first, as many as there is
room for. What is expected of those who were let in counts as if it waited already: an answer lets in ten at once, and there is
room for one of them. Among themselves, senders of much fill the line of a store as far as they like, up to ALLOWED_BYTES_MAX and a little
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
EXPECTED_S = 0.01
"""For how long it is expected: it may have nothing to send."""


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
    """Of all stores of a namespace. `time` and `call_later` are those of the loop."""

    def __init__(
        self,
        stores: Sequence[ServedStore],
        time: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._stores = stores
        self._time = time
        self._call_later = call_later
        self._paces = {store.index: Pace() for store in stores}
        self._light_until = 0.0
        self._held_back: dict[Callable[[], None], None] = {}
        self._expected: dict[Callable[[], None], float] = {}  # who was let in and has sent nothing yet: since when
        self._is_look_due = False
        for store in stores:
            store.on_progress = self._progress

    def light_sent(self) -> None:
        """Somebody who sends little has sent something."""
        self._light_until = self._time() + LIGHT_FOR_S

    def must_wait(self, inflow_bytes: int, is_heavy: bool, wake: Callable[[], None]) -> bool:
        """Whether a connection is held back that has so much waiting for the stores, and sent much lately or not. If so, `wake` is
        called once when there is room, and it need not wait until `heard_of` it."""
        is_large = inflow_bytes > PART_BYTES
        if (not is_large and not is_heavy) or wake in self._expected:
            return False
        if self._time() < self._light_until:
            must_wait = bool(self._held_back) or self._is_high()
            if not must_wait:
                self._let_in(wake)
        else:
            must_wait = is_large and any(store.waiting_bytes > ALLOWED_BYTES_MAX for store in self._stores)
        if must_wait:
            self._held_back[wake] = None
        return must_wait

    def heard_of(self, wake: Callable[[], None]) -> None:
        """It has sent what was expected."""
        self._expected.pop(wake, None)

    def _is_high(self) -> bool:
        expected_bytes = READ_BYTES * len(self._expected)
        return any(
            store.is_pressed or store.waiting_bytes + expected_bytes > self._paces[store.index].allowed_bytes
            for store in self._stores
        )

    def _let_in(self, wake: Callable[[], None]) -> None:
        self._expected[wake] = self._time()
        if not self._is_look_due:
            self._is_look_due = True
            self._call_later(EXPECTED_S, self._look_again)

    def _look_again(self) -> None:
        """Without this, those who wait behind somebody who has nothing to send would wait for good."""
        self._is_look_due = False
        now = self._time()
        self._expected = {wake: since for wake, since in self._expected.items() if now - since < EXPECTED_S}
        if self._expected:
            self._is_look_due = True
            self._call_later(EXPECTED_S, self._look_again)
        self._let_in_others()

    def _progress(self, store: ServedStore, written_bytes: int) -> None:
        self._paces[store.index].wrote(written_bytes, self._time(), is_idle=store.is_idle)
        if self._held_back:
            self._let_in_others()

    def _let_in_others(self) -> None:
        while self._held_back and not self._is_high():
            wake = next(iter(self._held_back))
            del self._held_back[wake]
            self._let_in(wake)
            tell(wake)
