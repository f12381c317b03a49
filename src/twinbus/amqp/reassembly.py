"""Messages that arrive in several transfer frames: frames in, whole payloads out, and bounds on what is incomplete.

A message that gets no room is read to its end and its bytes are dropped: this one message can then be refused, and the link
and everything after it on the link goes on. That happens to a message

    over the limit of its link;
    that got no frame for a while (`drop_stalled`);
    of the connection that holds most, if all connections of the process together hold too much (`SharedReassembly`).
"""

from dataclasses import dataclass, field
from typing import Protocol

from twinbus.amqp.codec.delivery_state import DeliveryState
from twinbus.clock import Millis

SHARED_SIZE_MAX = 512 * 1_048_576
"""Default for all connections together: five messages of the largest size that an entity can have."""


@dataclass(slots=True, eq=False)
class PartialDelivery:
    """One message that comes in several transfer frames: frames in, a whole payload or its size out."""

    delivery_id: int
    delivery_tag: bytes
    message_format: int
    settled: bool
    state: DeliveryState | None
    size_max: int
    size: int = 0
    parts: list[bytes | memoryview] = field(default_factory=list)
    is_dropped: bool = False
    is_ignored: bool = False
    """It is read to its end and never reported."""
    size_seen: int = -1
    """At the last look for stalled messages."""

    @property
    def is_oversize(self) -> bool:
        return self.size > self.size_max

    @property
    def held_size(self) -> int:
        return 0 if self.is_dropped or self.is_oversize else self.size

    def add(self, payload: bytes | memoryview, state: DeliveryState | None, *, settled: bool) -> None:
        """A view has to be the last part."""
        self.size += len(payload)
        # Any frame may settle the delivery, and no later one can undo that (section 2.7.5).
        self.settled = self.settled or settled
        self.state = state or self.state
        if self.is_dropped or self.is_oversize:
            self.parts.clear()
        elif payload:
            self.parts.append(payload)

    def drop(self) -> None:
        self.is_dropped = True
        self.parts.clear()

    def ignore(self) -> None:
        self.is_ignored = True
        self.drop()


class Holder(Protocol):
    """Of incomplete messages: a connection, or a request with a body."""

    @property
    def size(self) -> int:
        """In bytes."""
        ...

    def drop_all(self) -> int:
        """Returns how many messages lost their bytes."""
        ...


class SharedReassembly:
    """Bytes of incomplete messages over all connections of a process."""

    def __init__(self, size_max: int = SHARED_SIZE_MAX) -> None:
        self._size_max = size_max
        self.size = 0
        self.dropped_count = 0
        self._holders: set[Holder] = set()

    def change(self, holder: Holder, size: int) -> None:
        """`size` more bytes are held, or fewer if it is negative."""
        self.size += size
        if holder.size:
            self._holders.add(holder)
        else:
            self._holders.discard(holder)
        while self.size > self._size_max:
            # Not the one that came last: whoever holds most leaves the least for others.
            self.dropped_count += max(self._holders, key=lambda each: each.size).drop_all()


class ReassemblyBudget:
    """Bytes of incomplete messages over all links of a connection."""

    def __init__(self, size_max: int, shared: SharedReassembly | None = None) -> None:
        self.size_max = size_max
        self.size = 0
        self._shared = shared or SharedReassembly()
        self._partials: dict[PartialDelivery, None] = {}
        self._look_at: Millis = 0

    @property
    def is_exceeded(self) -> bool:
        return self.size > self.size_max

    def admit(self, message_size_max: int) -> None:
        """A link takes messages of this size: two of them have room at once."""
        self.size_max = max(self.size_max, 2 * message_size_max)

    def hold(self, partial: PartialDelivery) -> None:
        self._partials[partial] = None
        self._change(partial.held_size)

    def release(self, partial: PartialDelivery) -> None:
        """It is complete, or a frame is about to be added."""
        if partial in self._partials:
            del self._partials[partial]
            self._change(-partial.held_size)

    def drop_all(self) -> int:
        """Returns how many messages lost their bytes."""
        return sum(self._drop(partial) for partial in self._partials)

    def drop_stalled(self, now: Millis, timeout: Millis) -> None:
        """Drop what got no byte since the last look, which was at least `timeout` ago."""
        if not self._partials or now < self._look_at:
            return
        self._look_at = now + timeout
        for partial in self._partials:
            if partial.size == partial.size_seen:
                self._drop(partial)
            partial.size_seen = partial.size

    def clock_stepped(self, by: Millis) -> None:
        self._look_at += by

    def _drop(self, partial: PartialDelivery) -> bool:
        size = partial.held_size
        partial.drop()
        self._change(-size)
        return size > 0

    def _change(self, size: int) -> None:
        if size:
            self.size += size
            self._shared.change(self, size)
