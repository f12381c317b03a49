"""Hand-over from all fragments of a queue to all of its receivers, fair to both (contract A5).

Whatever is ready is shared out evenly among the receivers with credit, the one served last comes last next time,
and the fragments have turns: a share is taken from the one whose turn it is, and from the next ones if that has too little.
Not a little from each, because what is received together is settled together, and each store that has a part in that writes and
syncs. A fragment that is not available has nothing ready and so costs nothing.

A receiver that is handed something may make more ready, or raise its credit, in the same call: a front gives back what it may
not pass on, and asks for more where it knows that there is more. Such a call finds `_is_pumping` set and returns: the loop that
runs looks again until nobody has credit or nothing is ready. Without that, receivers would be called in the middle of one another's
calls, as deep as there are messages. Nobody may attach or detach there: a round is over the receivers that there were when it began.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

from twinbus.broker.consumer import Consumer, ReceiveMode, TakenMessage
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.hand_over import take_and_delete, take_and_lock
from twinbus.broker.telling import tell
from twinbus.clock import Millis


class ReceiveMerge:
    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self._fragments = fragments
        self._receivers: OrderedDict[Consumer, None] = OrderedDict()
        """In the order in which they were served last. Each is found at once: thousands may be of one connection that ends."""
        self._turn = 0
        self._is_pumping = False
        self._is_left_over = False
        self.left_over: Callable[[Callable[[], int]], None] | None = None
        """Called while messages are ready that no receiver has credit for, with what tells how many: there may be receivers at other
        nodes."""

    def __len__(self) -> int:
        return len(self._receivers)

    def add(self, receiver: Consumer) -> None:
        self._receivers[receiver] = None

    def remove(self, receiver: Consumer) -> None:
        self._receivers.pop(receiver, None)

    def remove_all(self) -> list[Consumer]:
        receivers = list(self._receivers)
        self._receivers.clear()
        return receivers

    def _ready_count(self) -> int:
        return sum([len(fragment.lane.ready) for fragment in self._fragments])

    def pump(self, now: Millis) -> None:
        if self._is_pumping or (not self._receivers and self.left_over is None):
            return
        self._is_pumping = True
        try:
            while self._share_out(now):
                pass
        finally:
            self._is_pumping = False
        if self._is_left_over:
            self._is_left_over = False
            if self.left_over is not None:
                self.left_over(self._ready_count)

    def _share_out(self, now: Millis) -> bool:
        """One round over the receivers; false when nobody has credit or nothing is ready."""
        # First, since credit is raised all the time on queues that are kept empty, and receivers may be thousands.
        ready_count = self._ready_count()
        if not ready_count:
            return False
        hungry = [receiver for receiver in self._receivers if receiver.credit > 0]
        if not hungry:
            self._is_left_over = True
            return False
        share = -(-ready_count // len(hungry))
        for receiver in hungry[:ready_count]:
            self._receivers.move_to_end(receiver)
            self._serve(receiver, min(receiver.credit, share), now)
        return True

    def _serve(self, receiver: Consumer, count: int, now: Millis) -> None:
        if receiver.mode is ReceiveMode.PEEK_LOCK:
            deliveries = self._lock(count, now)
            if deliveries:
                receiver.credit -= len(deliveries)
                tell(receiver.deliver, deliveries)
        else:
            self._delete(receiver, count, now)

    def _lock(self, count: int, now: Millis) -> list[TakenMessage]:
        if len(self._fragments) == 1:
            fragment = self._fragments[0]
            return take_and_lock(fragment, fragment.lane, count, now)
        deliveries: list[TakenMessage] = []
        for fragment in self._next_fragments():
            deliveries += take_and_lock(fragment, fragment.lane, count - len(deliveries), now)
            if len(deliveries) >= count:
                break
        return deliveries

    def _delete(self, receiver: Consumer, count: int, now: Millis) -> None:
        def failed(missing: int, now: Millis) -> None:
            receiver.credit += missing
            # Other fragments may have had something ready for it all the time.
            if self._fragments[0].settings.can_receive:
                self.pump(now)

        for fragment in self._next_fragments():
            run = take_and_delete(fragment, fragment.lane, count, now, receiver.deliver, failed)
            receiver.credit -= run
            count -= run
            if count <= 0:
                break

    def _next_fragments(self) -> list[Fragment]:
        """Those with something ready, the one whose turn it is first."""
        fragments, turn = self._fragments, self._turn
        ready = [fragment for fragment in [*fragments[turn:], *fragments[:turn]] if fragment.lane.ready]
        if ready:
            # Behind the one that is served, and not one further: it would inherit the turns of the empty ones before it.
            self._turn = (ready[0].index + 1) % len(fragments)
        return ready
