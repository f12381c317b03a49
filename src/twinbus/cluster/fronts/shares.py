"""What one receiver has at each part of its queue: the demand of its credit that lies there, at this node or at another one.

`FrontReceiver` gives and recalls demand; the parts hand messages over to the share, give back what they have not used, say that
they have more, or are lost.
"""

from typing import TYPE_CHECKING, Protocol

from twinbus.broker.consumer import ReceiveMode, SessionLock, TakenMessage
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.clock import Millis
from twinbus.cluster.parts.left_overs import LeftOvers
from twinbus.cluster.peers.hold import Hold
from twinbus.cluster.peers.peer import Peer
from twinbus.errors import MessagingError

if TYPE_CHECKING:
    from twinbus.cluster.fronts.receiver import FrontReceiver


class Share(Protocol):
    """What one part has of the demand."""

    node: int
    outstanding: int
    ready: int  # how many messages it said to have that nobody has credit for
    is_attached: bool
    is_recalled: bool
    is_used: bool  # it gave back all that it had not used: the rest is messages that are being removed
    is_here: bool

    @property
    def is_fed(self) -> bool:
        """More than it has demand for is there, or on its way from a store."""
        ...

    def attach(self, now: Millis) -> None:
        """Raises MessagingError, or is attached; or is not because the part cannot be reached."""
        ...

    def give(self, demand: int, now: Millis) -> None: ...

    def recall(self, now: Millis, *, waits: bool) -> None: ...

    def close(self, now: Millis) -> None: ...


class LocalShare:
    """At the part of this node; also what its queue sees as the receiver."""

    is_here = True

    def __init__(self, front: "FrontReceiver", queue: MessageQueue, left_overs: LeftOvers, node: int) -> None:
        self.node = node
        self.outstanding = 0
        self.ready = 0
        self.is_attached = self.is_recalled = self.is_used = False
        self.credit = 0
        self.mode: ReceiveMode = front.receiver.mode
        hold = front.receiver.session
        self.session: SessionLock | None = hold.own if isinstance(hold, Hold) else None
        self._front = front
        self._queue = queue
        self._left_overs = left_overs

    @property
    def is_fed(self) -> bool:
        return self.ready > 0 or any(
            fragment.lane.ready or fragment.lane.is_filling for fragment in self._queue.fragments
        )

    def attach(self, now: Millis) -> None:
        self.credit = self.outstanding = 0
        self._left_overs.add(self, lambda count: self._front.told_ready(self, count, self._now()))
        try:
            self._queue.attach(self, now)
        except MessagingError:
            self._left_overs.discard(self)  # it may never be attached, and so never closed
            raise
        self.is_attached = True

    def give(self, demand: int, now: Millis) -> None:
        self.credit += demand
        self._left_overs.rearm(self)
        self._queue.pump(now, self)

    def recall(self, now: Millis, *, waits: bool) -> None:
        self.is_recalled = True
        if waits and self.credit and self._queue.is_reading:
            self._queue.after_reading(self._give_back)
        else:
            self._give_back()

    def _give_back(self) -> None:
        if self.is_recalled and self.is_attached:
            unused, self.credit = self.credit, 0
            self._left_overs.rearm(self)
            self._front.returned(self, unused, self._now())

    def tick(self) -> None:
        """A store that hangs does not keep a drain waiting any longer."""
        self._give_back()

    def close(self, now: Millis) -> None:
        self._left_overs.discard(self)
        self.credit = 0
        self._queue.detach(self, now)

    # Called by the queue

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        self._front.delivered(self, deliveries)

    def credit_returned(self, now: Millis) -> None:
        """A queue of one node passes nothing on."""

    def session_lost(self, error: MessagingError) -> None:
        self._left_overs.discard(self)
        self._front.lost(self, error, self._now())

    def _now(self) -> Millis:
        return self._front.clock.now()


class DistantShare:
    """At the part of another node."""

    is_here = False
    is_fed = False

    def __init__(self, front: "FrontReceiver", peer: Peer, key: int) -> None:
        self.node = peer.node
        self.outstanding = 0
        self.ready = 0
        self.is_attached = self.is_recalled = self.is_used = False
        self.key = key
        self._front = front
        self._peer = peer
        self._number = 0

    def attach(self, now: Millis) -> None:
        if self._peer.is_open:
            self.outstanding = 0
            self.is_attached = True
            self._number = self._peer.attach(self, self._front.receiver.mode, self._front.receiver.session)

    def give(self, demand: int, now: Millis) -> None:
        self._peer.demand(self._number, demand)

    def recall(self, now: Millis, *, waits: bool) -> None:
        self.is_recalled = True
        number = self._number

        def reply(unused: int) -> None:
            if self._number == number and self.is_attached:
                self._front.returned(self, unused, self._front.clock.now())

        self._peer.recall(number, reply, waits=waits)

    def close(self, now: Millis) -> None:
        session = self._front.receiver.session
        if isinstance(session, Hold):
            self._peer.forget(session)
        self._peer.close(self._number)

    # Called by the peer

    def delivered(self, taken: list[TakenMessage]) -> None:
        self._front.delivered(self, taken)

    def told_ready(self, count: int, now: Millis) -> None:
        self._front.told_ready(self, count, now)

    def lost(self, error: MessagingError, now: Millis) -> None:
        session = self._front.receiver.session
        if isinstance(session, Hold):
            self._peer.forget(session)
        self._front.lost(self, error, now)
