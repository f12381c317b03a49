"""A receiver that waits for a message session of a queue with parts at several nodes: the first part that has one wins."""

from collections.abc import Callable, Sequence
from typing import Protocol

from twinbus.broker.consumer import SessionLock, SessionRequest
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.replies import Reply
from twinbus.broker.telling import tell
from twinbus.clock import Millis
from twinbus.cluster.peers.hold import Hold
from twinbus.cluster.peers.peers import Peers
from twinbus.errors import FragmentUnavailable, MessagingError, OperationTimeout


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
        self._asked: set[int] = set()
        self._left = 0
        self._error: MessagingError | None = None
        self._waits: list[Callable[[], None]] = []

    def follow(self, nodes: Sequence[int], now: Millis) -> None:
        """These have fragments of the queue by now: those that were not asked yet may have a message session."""
        new = [node for node in nodes if node not in self._asked]
        if new and not self.is_over:
            self.ask(new, now)

    def ask(self, nodes: Sequence[int], now: Millis) -> None:
        source, request, deadline = self._source, self._request, self._deadline
        self._left += len(nodes)
        self._asked.update(nodes)
        for node in nodes:
            if self.is_over:
                return
            if node == source.peers.node:
                self._waits.append(source.local.accept_session(request, deadline, now, self._answered).cancel)
            else:
                peer = source.peers[node]
                number = peer.accept(source.key, request, max(0, deadline - now), self._answered)
                self._waits.append(lambda peer=peer, number=number: peer.cancel_wait(number))  # type: ignore[misc]

    def clock_stepped(self, by: Millis) -> None:
        """Those that were asked move what they wait for themselves."""
        self._deadline += by

    def cancel(self) -> None:
        self._end()
        for cancel in self._waits:
            cancel()
        self._waits.clear()

    def _end(self) -> None:
        self.is_over = True
        self._source.done_waiting(self)

    def _answered(self, result: SessionLock | MessagingError) -> None:
        if isinstance(result, MessagingError):
            self._left -= 1
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
