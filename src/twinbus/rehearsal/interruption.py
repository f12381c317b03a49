"""Interrupting a rehearsal or a job: signals that end it, cleaning up undisturbed, and threads that can be waited for again.

Every signal that asks a program to end becomes KeyboardInterrupt in the main thread, which unwinds everything in order.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

# SIGHUP is what closing the terminal sends; Windows has none.
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def ending_signals_interrupt() -> contextlib.AbstractContextManager[None]:
    """For the duration of the context. A signal that is ignored stays ignored: `nohup` is meant to keep a program running."""
    return _handling([number for number in heard_signals() if number in ENDING], signal.default_int_handler)


def heard_signals() -> list[signal.Signals]:
    """Those that ask this program to end, Ctrl-C among them, without those that are ignored."""
    return [number for number in (signal.SIGINT, *ENDING) if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def stop_by_signal(ask: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """An event that the first signal sets, so that the job finishes what is under way; a second one does what it did
    before.

    The first one also calls `ask`, for work that the main thread waits for and that cannot see the event.
    """
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in heard_signals()}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        restore()
        ask()

    for number in before:
        signal.signal(number, ask_to_stop)
    try:
        yield stop
    finally:
        restore()


def uninterrupted() -> contextlib.AbstractContextManager[None]:
    """Ignores these signals for the duration of the context, for cleaning up, which is short and must be complete."""
    # Not SIG_IGN: a process started in the meantime would inherit it, and could not be stopped while it starts.
    return _handling((signal.SIGINT, *ENDING), _hear_nothing)


def _hear_nothing(number: int, frame: FrameType | None) -> None:
    pass


@contextlib.contextmanager
def _handling(numbers: Sequence[signal.Signals], handler: Any) -> Iterator[None]:
    """Outside the main thread, where signals never arrive, it changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class WaitedThread(threading.Thread):
    """A thread that can be waited for again after Ctrl-C. It is a daemon, so it cannot keep the program alive.

    Up to Python 3.12, a `Thread.join` interrupted by Ctrl-C marks the thread as ended, and every later one returns at once. A
    clean-up that relied on it would run beside what it has to wait for.
    """

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
