"""A stock sender that several threads may share and that keeps its timeout.

The SDK's senders are for one thread at a time, and they can block forever while they connect to a peer that accepts the
connection and then stays silent: their timeout does not apply there. So there is a line, and a deadline that the pair's thread
watches. Past the deadline it shuts down the socket under the blocked call, which then fails as for a lost connection. Such a
sender, or one whose call was interrupted by Ctrl-C, is replaced: the SDK would notice only at the next send, and fail that too.
"""

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.clock import NEVER, Clock, Millis
from twinbus.pairing.stock.attempt import Attempt
from twinbus.pairing.stock.line import Line, NotWantedAnyMore, Wait, WaitedForItself
from twinbus.pairing.stock.local_lag import LocalLag

LINE_LOOK_S = 0.1
CLOSE_WAIT_S = 2.0
CLOSING_THREADS_MAX = 32
CLOSE_MAX_S = 8.0
"""For all senders of a pair together: what is not closed by then is left to its threads, which keep no process alive."""
OVERTIME: Millis = 50
"""The SDK's own timeout should win where it works: it knows more about the failure."""

T = TypeVar("T")


class GuardedSender:
    """Its fields are public for `PairedSender`, which sends a usual message by itself, step by step as `perform` does."""

    def __init__(self, open_stock: Callable[[], ServiceBusSender], clock: Clock, lag: LocalLag | None = None) -> None:
        self.line = Line()
        self._open_stock = open_stock
        self.stock = open_stock()
        self._clock = clock
        self.lag = lag or LocalLag(clock)
        self.deadline: Millis = NEVER
        self.is_interrupted = False
        # A socket is never shut down under the operation that follows the late one: an operation that ends takes its deadline away
        # first and then looks whether it is being interrupted, which looks at the deadline only after it has said so.
        self._interrupting = threading.Lock()
        self.is_being_interrupted = self._interrupting.locked

    def run(self, operation: Callable[[ServiceBusSender, float], T], timeout_s: float) -> T:
        """Call `operation` with the stock sender and the timeout, once the sender is free."""
        result: T = self.perform(Attempt(operation, timeout_s))
        return result

    def perform(self, attempt: Attempt) -> Any:
        """As `run`. The attempt learns how long it waited: for its turn, and while nothing of this process ran."""
        if not self.line.take():
            self._wait_in_line(attempt)
        timeout_s, now = attempt.timeout_s, self._clock.now()
        lost = self.lag.total(now)
        try:
            if self.is_interrupted:
                self.replace()
            self.deadline = now + int(timeout_s * 1000) + OVERTIME - lost
            result = attempt.operation(self.stock, timeout_s)
            if self.line.waiting:
                self.line.moved_at = self._clock.now()
        except Exception as error:
            meaning = self.meaning(attempt, lost, error)
            if meaning is error:
                raise
            raise meaning from error
        except BaseException:
            # Ctrl-C may have come in the middle of a frame.
            self.is_interrupted = True
            raise
        finally:
            self.free()
        if self.lag.noticed > lost:
            attempt.waited += self.lag.noticed - lost
        return result

    def meaning(self, attempt: Attempt, lost: Millis, error: Exception) -> Exception:
        """Of a failed attempt, which learns how much time this process lost since: `lost` is what it had lost before."""
        meanwhile = self.lag.total(self._clock.now()) - lost
        attempt.waited += meanwhile
        if not self.is_interrupted and not isinstance(error, OperationTimeoutError):
            return error
        if meanwhile > attempt.lag_max:
            return WaitedForItself(message="This process did not run for a part of the timeout.", error=error)
        # Which error the SDK raises for a socket that is shut down depends on what it was reading.
        return OperationTimeoutError(message="The peer did not answer within the timeout.", error=error)

    def free(self) -> None:
        """The operation has ended."""
        self.deadline = NEVER
        if self._interrupting.locked():
            with self._interrupting:
                pass
        self.line.pass_on()

    def _wait_in_line(self, attempt: Attempt) -> None:
        wait, turn = Wait(self.line, attempt, self._clock), threading.Event()
        self.line.join(turn.set)
        reason: Exception | None = None
        try:
            while not turn.wait(LINE_LOOK_S):
                reason = wait.reason_to_leave()
                if reason is not None and self.line.leave(turn.set):
                    break
        except BaseException:
            if not self.line.leave(turn.set):
                self.line.pass_on()
            raise
        if not isinstance(reason, WaitedForItself):
            attempt.waited += wait.waited()
        if turn.is_set():
            reason = NotWantedAnyMore() if not attempt.is_wanted() else None
            if reason is not None:
                self.line.pass_on()
        if reason is not None:
            raise reason

    def interrupt_if_late(self, now: Millis) -> None:
        with self._interrupting:
            if now - self.lag.total(now) > self.deadline:
                self.is_interrupted = True
                interrupt(self.stock)

    def close(self) -> None:
        turn = threading.Event()
        self.line.join(turn.set)
        if not turn.wait(CLOSE_WAIT_S):
            interrupt(self.stock)
            turn.wait(CLOSE_WAIT_S)
        try:
            self.stock.close()
        finally:
            if turn.is_set() or not self.line.leave(turn.set):
                self.line.pass_on()

    def replace(self) -> None:
        """A stock sender that was interrupted is of no more use."""
        broken, self.stock = self.stock, self._open_stock()
        self.is_interrupted = False
        close_aside(broken)


def close_aside(stock: "Closeable") -> None:
    """Close what is of no more use, on a thread of its own: closing waits for threads of the SDK. One that is only forgotten keeps its
    connection open, by a thread that sends heartbeats."""

    def close() -> None:
        with contextlib.suppress(Exception):
            stock.close()

    with contextlib.suppress(RuntimeError):  # the system has no thread for it
        threading.Thread(target=close, name="twinbus-close", daemon=True).start()


def interrupt(stock: object) -> None:
    """Shut down the socket of a stock sender or receiver: a call that blocks on it fails as for a lost connection."""
    # The SDK has no public way to end a blocked call: `close` waits for it or does not notice it.
    connection = getattr(getattr(stock, "_handler", None), "_connection", None)
    connected = getattr(getattr(connection, "_transport", None), "sock", None)
    raw = getattr(connected, "sock", connected)  # a WebSocket wraps the socket once more
    if isinstance(raw, socket.socket):
        with contextlib.suppress(OSError):
            raw.shutdown(socket.SHUT_RDWR)


class Closeable(Protocol):
    def close(self) -> None: ...


def close_all(opened: Sequence[Closeable], within_s: float = CLOSE_MAX_S) -> None:
    """Close clients and stock senders side by side, by a few threads: each waits for a thread of the SDK that sleeps up to a second,
    and longer where somebody still uses it.

    Closes all of them even if one fails; the first failure is raised afterwards.
    """
    failures: list[BaseException] = []
    left = deque(opened)

    def close() -> None:
        while True:
            try:
                each = left.popleft()
            except IndexError:
                return
            try:
                each.close()
            except BaseException as error:
                failures.append(error)

    threads = [
        threading.Thread(target=close, name="twinbus-close", daemon=True)
        for _ in range(min(len(opened), CLOSING_THREADS_MAX))
    ]
    for thread in threads:
        thread.start()
    ends_at = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, ends_at - time.monotonic()))
    if failures:
        raise failures[0]
