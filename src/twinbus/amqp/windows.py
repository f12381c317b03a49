"""Session flow control: counts of transfer frames in, room to send and what to announce out
(AMQP 1.0 part 2, section 2.5.6).

Each side numbers its transfer frames and announces how many more it accepts. We respect the window of the peer to
the frame. Our own is announced and never enforced: one SDK counts its messages instead of its frames, so its count of
what is left differs from ours.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from twinbus.amqp.codec.transfer_writer import Part
from twinbus.amqp.serial_number import add, distance

if TYPE_CHECKING:
    from twinbus.amqp.outgoing_link import OutgoingLink


@dataclass(slots=True)
class SessionWindows:
    incoming_window_max: int
    next_outgoing_id: int = 0
    outgoing_window: int = 0x7FFFFFFF
    remote_incoming_window: int = 0
    """Transfer frames that the peer still accepts."""
    incoming_count: int = 0
    """Transfer frames since the peer's first id. This is all that the hot path updates."""

    _initial_incoming_id: int = 0
    _announced_at: int = 0

    def begun(self, next_outgoing_id: int, incoming_window: int) -> None:
        """The peer's begin has arrived: its first id, and the room it has for our frames."""
        self._initial_incoming_id = next_outgoing_id
        self.remote_incoming_window = incoming_window

    @property
    def next_incoming_id(self) -> int:
        return add(self._initial_incoming_id, self.incoming_count)

    @property
    def incoming_window(self) -> int:
        return max(0, self.incoming_window_max - (self.incoming_count - self._announced_at))

    @property
    def is_announcement_due(self) -> bool:
        return self.incoming_count - self._announced_at >= (self.incoming_window_max + 1) // 2

    def announce(self) -> None:
        """The flow that is about to be sent opens the window fully."""
        self._announced_at = self.incoming_count

    def sent(self, frame_count: int) -> None:
        self.next_outgoing_id = (self.next_outgoing_id + frame_count) & 0xFFFFFFFF
        self.remote_incoming_window -= frame_count

    def flow_received(self, next_incoming_id: int | None, incoming_window: int) -> None:
        """The room that the peer had when it sent the flow, less the frames that were on their way to it."""
        # A peer that has not seen our begin yet cannot know our ids, which start at 0.
        seen = 0 if next_incoming_id is None else next_incoming_id
        on_the_way = max(0, distance(seen, self.next_outgoing_id))
        self.remote_incoming_window = max(0, incoming_window - on_the_way)


class HeldRun(NamedTuple):
    """Frames of one link that were to be sent together."""

    link: "OutgoingLink"
    parts: deque[Part]
    """Heads and payloads; or nothing, for the place in the order at which the link reports itself drained."""


@dataclass(slots=True)
class HeldTotal:
    """Bytes of the frames that all sessions of a connection hold back."""

    size: int = 0


class HeldBack:
    """Transfer frames that wait for the peer's incoming-window, oldest first."""

    def __init__(self, total: HeldTotal) -> None:
        """`total`: of all sessions of the connection."""
        self._runs: dict[
            int, HeldRun
        ] = {}  # by their places in the order: one for all frames of a message, which may be many
        self._places: dict[OutgoingLink, set[int]] = {}
        self._first = self._next = 0
        self._size = 0
        self._total = total

    def __bool__(self) -> bool:
        return bool(self._runs)

    def _grow(self, size: int) -> None:
        self._size += size
        self._total.size += size

    def add(self, link: "OutgoingLink", parts: Sequence[Part]) -> None:
        """Frames as pairs of parts."""
        self._append(HeldRun(link, deque(parts)))
        self._grow(sum(map(len, parts)))

    def add_drained(self, link: "OutgoingLink") -> None:
        self._append(HeldRun(link, deque()))

    def _append(self, run: HeldRun) -> None:
        self._runs[self._next] = run
        self._places.setdefault(run.link, set()).add(self._next)
        self._next += 1

    def pop(self, frame_count_max: int) -> tuple["OutgoingLink", list[Part]]:
        """The next frames of one link, so many at most; none if it reports itself drained next."""
        place = self._first_place()
        link, waiting = self._runs[place]
        parts = [waiting.popleft() for _ in range(min(2 * frame_count_max, len(waiting)))]
        if not waiting:
            del self._runs[place]
            places = self._places[link]
            places.discard(place)
            if not places:
                del self._places[link]
        self._grow(-sum(map(len, parts)))
        return link, parts

    def _first_place(self) -> int:
        """Those before it are popped or dropped."""
        while self._first not in self._runs:
            self._first += 1
        return self._first

    @property
    def is_next_a_transfer(self) -> bool:
        """Asked while there are any."""
        return bool(self._runs[self._first_place()].parts)

    def drop(self, link: "OutgoingLink") -> None:
        """Forget the frames of a link that is gone.

        Their delivery-ids stay used: the application already has the ids of later deliveries, and a gap is
        legal. Only a peer with several links in a session whose window it keeps closed can see it.
        """
        for place in self._places.pop(link, ()):
            self._grow(-sum(map(len, self._runs.pop(place).parts)))

    def clear(self) -> None:
        self._runs.clear()
        self._places.clear()
        self._first = self._next
        self._grow(-self._size)
