"""Session flow control: counts of transfer frames in, room to send and what to announce out
(AMQP 1.0 part 2, section 2.5.6).

Each side numbers its transfer frames and tells the other how many more it takes. The window of a
peer is respected to the frame. Our own is announced and never enforced: an SDK counts its messages
and not its frames, so what it believes to be left is not what we count.
"""

from dataclasses import dataclass

from twinbus.amqp.codec.serial_number import add, distance


@dataclass(slots=True)
class SessionWindows:
    incoming_window_max: int
    next_outgoing_id: int = 0
    outgoing_window: int = 0x7FFFFFFF
    remote_incoming_window: int = 0
    """Transfer frames that the peer still takes."""
    incoming_count: int = 0
    """Transfer frames since the peer's first id; the hot path adds to it and does nothing else."""

    _initial_incoming_id: int = 0
    _announced_at: int = 0

    def begun(self, next_outgoing_id: int, incoming_window: int) -> None:
        """The peer's begin is here: its first id, and the room it has for our frames."""
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
        """The window is opened fully with the flow that is about to be sent."""
        self._announced_at = self.incoming_count

    def sent(self, frame_count: int) -> None:
        self.next_outgoing_id = (self.next_outgoing_id + frame_count) & 0xFFFFFFFF
        self.remote_incoming_window -= frame_count

    def flow_received(self, next_incoming_id: int | None, incoming_window: int) -> None:
        """Room as the peer saw it, less what was on its way to it meanwhile."""
        # A peer that has not seen our begin yet cannot know our ids, which start at 0.
        seen = 0 if next_incoming_id is None else next_incoming_id
        on_the_way = max(0, distance(seen, self.next_outgoing_id))
        self.remote_incoming_window = max(0, incoming_window - on_the_way)
