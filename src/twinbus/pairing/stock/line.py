"""Who may use a stock sender next: one at a time, in the order of asking. For threads and for tasks alike.

The SDK's senders are for one caller at a time, so those who share one wait for one another. That is time which this process
spends on itself: a caller's own time begins with its turn. A line that moves is waited in for as long as it takes. One
that has stood still for a caller's whole timeout is given up, and the failure is counted for whoever stands at its head.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.clock import Clock, Millis
from twinbus.pairing.errors import PairingError


class WaitedForItself(OperationTimeoutError):
    """The time went by in this process: in a line, or while nothing of it ran. It says nothing about a namespace."""


class NotWantedAnyMore(PairingError):
    """While an attempt waited for its turn, others found out that it should go elsewhere. Never reaches the application."""

    def __init__(self) -> None:
        super().__init__("The route has changed.")


class Turn(Protocol):
    """What waits in a line."""

    @property
    def timeout_s(self) -> float: ...

    def is_wanted(self) -> bool:
        """False once others found out that it should go elsewhere."""
        ...


class Line:
    """`call` is a function that is called, on any thread, when it is the caller's turn."""

    def __init__(self) -> None:
        self.moved_at: Millis = 0
        """When somebody in front of others last got through."""
        self.waiting: deque[Callable[[], None]] = deque()
        """To be read by others; changed here alone."""
        self._mutex = threading.Lock()
        self._turn = threading.Lock()
        self.take: Callable[[], bool] = partial(self._turn.acquire, False)
        """True if nobody else is here: it is the caller's turn. One call that needs no mutex, for the healthy path."""
        self.release = self._turn.release
        """In place of `pass_on` where nobody waits; who does it calls `released` if somebody does by then."""

    @property
    def length(self) -> int:
        return self._turn.locked() + len(self.waiting)

    def join(self, call: Callable[[], None]) -> None:
        """Wait for the turn. `call` may be called at once."""
        with self._mutex:
            if not self.take():
                self.waiting.append(call)
                return
        call()

    def leave(self, call: Callable[[], None]) -> bool:
        """Stop waiting. False if it is the caller's turn already: then it has to pass it on."""
        with self._mutex:
            if call not in self.waiting:
                return False
            self.waiting.remove(call)
        return True

    def pass_on(self) -> None:
        if self.waiting:
            self._call_next()
        else:
            self.release()
            if self.waiting:
                self.released()

    def released(self) -> None:
        """Somebody joined in between, and waits for a turn that was given back."""
        if self.take():
            self._call_next()

    def _call_next(self) -> None:
        with self._mutex:
            if not self.waiting:
                self.release()
                return
            call = self.waiting.popleft()
        call()


class Wait:
    """The decisions of one who waits in a line: whether to go on waiting. The shells look every now and then."""

    def __init__(self, line: Line, turn: Turn, clock: Clock) -> None:
        self._line, self._turn, self._clock = line, turn, clock
        self._began = clock.now()

    def reason_to_leave(self) -> Exception | None:
        if not self._turn.is_wanted():
            return NotWantedAnyMore()
        stands_since = max(self._began, self._line.moved_at)
        if self._clock.now() - stands_since > self._turn.timeout_s * 1000:
            return WaitedForItself(message="Other operations on this sender took all of the timeout.")
        return None

    def waited(self) -> Millis:
        return self._clock.now() - self._began
