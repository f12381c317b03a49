"""A receiver that waits for a message session of a queue with parts at several nodes: the first part that has one wins.

A part that cannot be reached, or has no store at the moment, is asked again: it may have a session when it is back. If nobody is left
who waits for one, the receiver gets the error, as where all stores of a queue are lost.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from twinbus.broker.consumer import SessionLock, SessionRequest
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.replies import Reply
from twinbus.broker.telling import tell
from twinbus.clock import Millis
from twinbus.cluster.peers.hold import Hold
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import FragmentUnavailable, MessagingError, OperationTimeout

ASK_AGAIN_AFTER: Final[Millis] = 500
"""A part that was lost: there may be thousands who wait."""


class AskedSource(Protocol):
    """`twinbus.cluster.fronts.source.FrontSource`, as far as a waiter has to know."""

    local: MessageQueue
    peers: Peers

    @property
    def key(self) -> int: ...

    def accepted(self, lock: SessionLock) -> Hold:
        """Returns what the receiver gets."""
        ...

    def release_session(self, lock: SessionLock, now: Millis) -> None: ...

    def done_waiting(self, waiter: "SessionWaiter") -> None: ...


class SessionWaiter:
    """Asks the nodes for a message session, this one first; the first that has one wins, and the others give theirs back."""

    def __init__(
        self, source: AskedSource, request: SessionRequest, deadline: Millis, reply: Reply[SessionLock]
    ) -> None:
        self._source = source
        self._request = request
        self._deadline = deadline
        self._reply = reply
        self.is_over = False
        self._asked: dict[int, Millis] = {}  # by node: when
        self._lost: set[int] = set()  # those of them that could not say
        self._left = 0
        self._error: MessagingError | None = None
        self._waits: dict[int, Callable[[], None]] = {}  # by node

    def follow(self, nodes: Sequence[int], now: Millis) -> None:
        """These have fragments of the queue by now: those that were not asked yet may have a message session."""
        new = [node for node in nodes if node not in self._asked]
        if new and not self.is_over:
            self.ask(new, now)

    def ask_again(self, nodes: Sequence[int], now: Millis) -> None:
        """Those of these that could not say, and can be reached."""
        lost = [node for node in nodes if node in self._lost and self._source.peers.is_reached(node)]
        due = [node for node in lost if not 0 <= now - self._asked[node] < ASK_AGAIN_AFTER]
        if due and not self.is_over:
            self.ask(due, now)

    def ask(self, nodes: Sequence[int], now: Millis) -> None:
        source, request, deadline = self._source, self._request, self._deadline
        self._left += len(nodes)
        self._asked.update(dict.fromkeys(nodes, now))
        self._lost.difference_update(nodes)
        for node in nodes:
            if self.is_over:
                return
            answered = partial(self._answered, node)
            if node == source.peers.node:
                self._waits[node] = source.local.accept_session(request, deadline, now, answered).cancel
            else:
                peer = source.peers[node]
                number = peer.accept(source.key, request, max(0, deadline - now), answered)
                self._waits[node] = partial(peer.cancel_wait, number)

    def clock_stepped(self, by: Millis) -> None:
        """Those that were asked move what they wait for themselves."""
        self._deadline += by
        self._asked = {node: at + by for node, at in self._asked.items()}

    def cancel(self) -> None:
        self._end()
        for cancel in self._waits.values():
            cancel()
        self._waits.clear()

    def _end(self) -> None:
        self.is_over = True
        self._source.done_waiting(self)

    def _answered(self, node: int, result: SessionLock | MessagingError) -> None:
        if isinstance(result, MessagingError):
            self._left -= 1
            if isinstance(result, FragmentUnavailable):
                self._lost.add(node)
            if (
                self._error is None
                or not isinstance(result, FragmentUnavailable | OperationTimeout)
                or (isinstance(result, OperationTimeout) and isinstance(self._error, FragmentUnavailable))
            ):
                self._error = result
            if not self._left and not self.is_over:
                self._end()
                tell(self._reply, self._error)
            return
        if self.is_over:
            # Somebody else was quicker, or nobody waits any more: no delivery count rises.
            self._source.release_session(result, result.locked_at)
            return
        self.cancel()
        tell(self._reply, self._source.accepted(result))
