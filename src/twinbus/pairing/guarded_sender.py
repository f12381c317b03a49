"""A stock sender that several threads may share and that keeps its timeout.

The SDK's senders are for one thread at a time, and they can block forever while they connect to a peer that accepts the
connection and then stays silent: their timeout does not apply there. So there is a lock, and a deadline that the pair's thread
watches. Past the deadline it shuts down the socket under the blocked call, which then fails as for a lost connection. Such a
sender, or one whose call was interrupted by Ctrl-C, is replaced: the SDK would notice only at the next send, and fail that too.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.clock import NEVER, Clock, Millis

CLOSE_WAIT_S = 5.0
CLOSED_AT_ONCE_MAX = 16

T = TypeVar("T")


class GuardedSender:
    def __init__(self, open_stock: Callable[[], ServiceBusSender], clock: Clock) -> None:
        self._open_stock = open_stock
        self._stock = open_stock()
        self._clock = clock
        self._lock = threading.Lock()
        self._deadline: Millis = NEVER
        self._is_interrupted = False
        # Held so that a socket is never shut down under the operation that follows the late one.
        self._watching = threading.Lock()

    @property
    def stock(self) -> ServiceBusSender:
        return self._stock

    def run(self, operation: Callable[[ServiceBusSender, float], T], timeout_s: float) -> T:
        """Call `operation` with the stock sender and what is left of the timeout once the sender is free."""
        if not self._lock.acquire(blocking=False):
            started = self._clock.now()
            if not self._lock.acquire(timeout=timeout_s):
                raise OperationTimeoutError(message="Another operation on this sender took all of the timeout.")
            timeout_s = max(0.001, timeout_s - (self._clock.now() - started) / 1000)
        try:
            if self._is_interrupted:
                self._replace()
            self._deadline = self._clock.now() + int(timeout_s * 1000)
            return operation(self._stock, timeout_s)
        except Exception as error:
            if self._is_interrupted:
                # Which error the SDK raises for a socket that is shut down depends on what it was reading.
                raise OperationTimeoutError(message="The peer did not answer within the timeout.") from error
            raise
        except BaseException:
            # Ctrl-C may have come in the middle of a frame.
            self._is_interrupted = True
            raise
        finally:
            with self._watching:
                self._deadline = NEVER
            self._lock.release()

    def interrupt_if_late(self, now: Millis) -> None:
        with self._watching:
            if now > self._deadline:
                self._is_interrupted = True
                interrupt(self._stock)

    def close(self) -> None:
        is_free = self._lock.acquire(timeout=CLOSE_WAIT_S)
        if not is_free:
            interrupt(self._stock)
            is_free = self._lock.acquire(timeout=CLOSE_WAIT_S)
        try:
            self._stock.close()
        finally:
            if is_free:
                self._lock.release()

    def _replace(self) -> None:
        broken, self._stock = self._stock, self._open_stock()
        self._is_interrupted = False
        # On a thread of its own: closing waits for threads of the SDK.
        threading.Thread(target=_close_quietly, args=(broken,), name="twinbus-close", daemon=True).start()


def _close_quietly(stock: ServiceBusSender) -> None:
    with contextlib.suppress(Exception):
        stock.close()


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


def close_all(opened: Sequence[Closeable]) -> None:
    """Close stock senders in parallel: each waits for a thread of the SDK that sleeps up to a second.

    Closes all of them even if one fails; the first failure is raised afterwards.
    """
    if len(opened) == 1:
        opened[0].close()
    elif opened:
        with ThreadPoolExecutor(min(len(opened), CLOSED_AT_ONCE_MAX), "twinbus-close") as closing:
            results = [closing.submit(each.close) for each in opened]
        for result in results:
            result.result()
