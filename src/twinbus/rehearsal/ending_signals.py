"""Signals that ask a program to end, as one: KeyboardInterrupt in the main thread, which unwinds everything in order."""

import contextlib
import signal
import threading
from collections.abc import Iterator

# SIGHUP is what closing the terminal sends; Windows has none.
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextlib.contextmanager
def ending_signals_interrupt() -> Iterator[None]:
    """While inside. In another thread than the main one, where signals never arrive, it changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """While inside, Ctrl-C is not heard: for cleaning up, which ends soon and must not be done by halves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
