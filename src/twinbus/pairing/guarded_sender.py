"""A stock sender that several threads may share and that keeps its timeout.

The SDK's senders are for one thread at a time, and they can block for ever while they connect
to a peer that accepts the connection and then says nothing: their timeout is not looked at
there. So a lock, and a deadline that the pair's thread watches: past it, the socket is shut
down under the blocked call, which then fails as it does for a lost connection. A sender that
this was done to, or whose call Ctrl-C broke off, is replaced: the SDK would find out only at the
next send, and fail that too.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.clock import NEVER, Clock, Millis
from twinbus.pairing.interrupt import interrupt

CLOSE_WAIT_S = 5.0

T = TypeVar("T")


class GuardedSender:
    def __init__(self, open_stock: Callable[[], ServiceBusSender], clock: Clock) -> None:
        self._open_stock = open_stock
        self._stock = open_stock()
        self._clock = clock
        self._lock = threading.Lock()
        self._deadline: Millis = NEVER
        self._is_interrupted = False
        # So that a socket is never shut down under the operation after the one that was late.
        self._watching = threading.Lock()

    @property
    def stock(self) -> ServiceBusSender:
        return self._stock

    def run(self, operation: Callable[[ServiceBusSender, float], T], timeout_s: float) -> T:
        """Do `operation` with the stock sender and what is left of the timeout once the sender is free."""
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
                # What the SDK makes of a socket that is shut under it varies with what it was about to read.
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
        # Aside: closing waits for threads of the SDK.
        threading.Thread(target=_close_quietly, args=(broken,), name="twinbus-close", daemon=True).start()


def _close_quietly(stock: ServiceBusSender) -> None:
    with contextlib.suppress(Exception):
        stock.close()
