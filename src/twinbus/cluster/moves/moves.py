"""Stores that are about to have another owner: what is asked of them waits here until that one serves them. No frames, no time of its own.

    begin --> moving --somebody serves it under a later epoch, or after HELD_MAX--> over: all that waited is asked, in its order

A request that waits has not been sent to anybody. So whatever the owner was sent before is done before the store leaves it, and
nothing fails because a store moves. What does not fit any more is asked of the former owner at once, which refuses it if it has left the
store already. Messages with a key and transactions are not: they would overtake those that wait, and their sender gets the error.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable

HELD_MAX: Millis = 5_000
HELD_BYTES_MAX = 32 << 20
CALL_BYTES = 512
"""Of a request that waits, beside what it carries."""

Call: TypeAlias = Callable[[Millis], None]
"""Asks again, at that time."""


class _Move:
    def __init__(self, epoch: int, began_at: Millis) -> None:
        self.epoch = epoch
        self.began_at = began_at
        self.waiting: list[tuple[Call, int]] = []


class Moves:
    """Of one node. `stores`: those that move."""

    def __init__(self) -> None:
        self.stores: dict[int, _Move] = {}
        self._size_bytes = 0

    def begin(self, store: int, epoch: int, now: Millis) -> None:
        """`epoch`: that of the owner that it leaves."""
        if store not in self.stores:
            self.stores[store] = _Move(epoch, now)

    def wait(self, store: int, call: Call, size_bytes: int) -> bool:
        """Whether it waits; if not, there is no room for it."""
        size_bytes += CALL_BYTES
        if self._size_bytes + size_bytes > HELD_BYTES_MAX:
            return False
        self._size_bytes += size_bytes
        self.stores[store].waiting.append((call, size_bytes))
        return True

    def ended(self, epochs: Callable[[int], int], now: Millis) -> dict[int, bool]:
        """Those that have an owner with a later epoch, or have taken too long, and whether it is the former. `epochs`: the latest that
        is known of a store."""
        return {
            store: epochs(store) > move.epoch
            for store, move in self.stores.items()
            if epochs(store) > move.epoch or not 0 <= now - move.began_at < HELD_MAX
        }

    def clock_stepped(self, by: Millis) -> None:
        for move in self.stores.values():
            move.began_at += by

    def take(self, store: int) -> list[Call]:
        """It does not move any more. Returns what waited for that."""
        waiting = self.stores.pop(store).waiting
        self._size_bytes -= sum([size_bytes for _, size_bytes in waiting])
        return [call for call, _ in waiting]

    def first_of(self, stores: Iterable[int]) -> int | None:
        """The first of these that moves."""
        return next((store for store in stores if store in self.stores), None)


def no_room_to_wait() -> FragmentUnavailable:
    """For what must not be asked of the former owner instead."""
    return FragmentUnavailable("A messaging store moves, and too much waits for it. Try again later.")
