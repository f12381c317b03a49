"""Transfer frames that wait for the peer's incoming-window, in the order in which they were given."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from twinbus.amqp.link.outgoing_link import OutgoingLink


class HeldFrame(NamedTuple):
    link: "OutgoingLink"
    parts: Sequence[bytes]
    """Head and payload. None of them: the place, behind what was sent before it, where the link reports itself drained."""


class HeldBack:
    def __init__(self) -> None:
        self._frames: deque[HeldFrame] = deque()
        self.size = 0

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, link: "OutgoingLink", parts: Sequence[bytes]) -> None:
        """Frames as pairs of parts."""
        for index in range(0, len(parts), 2):
            self._frames.append(HeldFrame(link, parts[index : index + 2]))
        self.size += sum(map(len, parts))

    def add_drained(self, link: "OutgoingLink") -> None:
        self._frames.append(HeldFrame(link, ()))

    def pop(self) -> HeldFrame:
        frame = self._frames.popleft()
        self.size -= sum(map(len, frame.parts))
        return frame

    @property
    def is_next_a_transfer(self) -> bool:
        return bool(self._frames and self._frames[0].parts)

    def drop(self, link: "OutgoingLink") -> None:
        """Forget the frames of a link that is gone.

        Their delivery-ids stay used: the numbers of later deliveries are with the application
        already, and the gap is legal. It can only be seen by a peer with several links in a session
        whose window it keeps shut.
        """
        kept = deque(frame for frame in self._frames if frame.link is not link)
        self._frames = kept
        self.size = sum(len(part) for frame in kept for part in frame.parts)

    def clear(self) -> None:
        self._frames.clear()
        self.size = 0
