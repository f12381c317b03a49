"""How long the loop of a namespace works without looking at anybody else: the processor time of its longest turn, and the time it
works until it has answered somebody.

Processor time, because a machine that is busy with other things must not count. While the longest turn is looked for, the loop
never rests: each of its turns asks for the next one. The collector does, which would walk everything that all tests of the process
have left, in whatever turn it likes; that of a server is set to do so next to never.
"""

import gc
import threading
import time
from types import TracebackType

from twinbus.testing.local_namespace import LocalNamespace

WAIT_S = 60.0


def worked_s(namespace: LocalNamespace) -> float:
    """The processor time that its loop has used so far; may be asked from any thread."""
    assert namespace._thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(namespace._thread.ident))


class LongestTurn:
    """From `with` to the end of the block."""

    def __init__(self, namespace: LocalNamespace) -> None:
        self._loop = namespace._loop
        self._is_over = False
        self._has_ended = threading.Event()
        self._since = 0.0
        self.seconds = 0.0

    def __enter__(self) -> "LongestTurn":
        gc.disable()
        self._loop.call_soon_threadsafe(self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        gc.enable()
        # The turn that did what the block waited for counts too.
        assert self._has_ended.wait(WAIT_S)

    def _begin(self) -> None:
        self._since = time.thread_time()
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = time.thread_time()
        self.seconds = max(self.seconds, now - self._since)
        self._since = now
        if self._is_over:
            self._has_ended.set()
        else:
            self._loop.call_soon(self._turn)
