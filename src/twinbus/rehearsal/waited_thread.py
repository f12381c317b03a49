"""A thread that can be waited for again after Ctrl-C.

Up to Python 3.12 a `Thread.join` that Ctrl-C breaks off takes the thread for ended, and every later one returns at
once. A clean-up that relies on it would go on beside what it has to wait for.
"""

import threading


class WaitedThread(threading.Thread):
    """A daemon, so that it cannot keep a program alive that nobody waits in."""

    _ended: threading.Event

    def start(self) -> None:
        self.daemon = True
        self._ended = threading.Event()
        super().start()

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._ended.set()

    def wait_end(self, timeout_s: float | None = None) -> bool:
        """True if it has ended, or was never started."""
        return self.ident is None or self._ended.wait(timeout_s)
