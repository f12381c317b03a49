"""What the open transactions of a namespace may hold in memory: so many bytes for each connection, and so many for all together."""

from typing import Protocol
from weakref import WeakSet

from twinbus.errors import QuotaExceeded, ServerBusy

SIZE_MAX = 64 * 1024 * 1024
"""Of one connection."""
SHARED_SIZE_MAX = 512 * 1024 * 1024


class Holder(Protocol):
    """The transactions of one connection."""

    @property
    def size_bytes(self) -> int: ...


class TransactionRoom:
    """Of all connections. Transactions end in many ways, so what they hold is counted anew, but only when it might be too much."""

    def __init__(self) -> None:
        self._holders: WeakSet[Holder] = WeakSet()
        self._size_at_most = 0

    def check(self, holder: Holder, size: int) -> None:
        """Raise if there is no room for this many bytes more. The first message of a connection has room, unless all hold too much;
        what needs no room always has it."""
        if not size:
            return
        held = holder.size_bytes
        if held and held + size > SIZE_MAX:
            raise QuotaExceeded(
                f"The open transactions of this connection hold {held} bytes; the limit is {SIZE_MAX}. Commit some."
            )
        self._holders.add(holder)
        self._size_at_most += size
        if self._size_at_most > SHARED_SIZE_MAX:
            self._size_at_most = sum([each.size_bytes for each in self._holders])
            if self._size_at_most + size > SHARED_SIZE_MAX:
                raise ServerBusy(
                    f"The open transactions of all connections hold {self._size_at_most} bytes; the limit is "
                    f"{SHARED_SIZE_MAX}. Do the same again later."
                )
            self._size_at_most += size
