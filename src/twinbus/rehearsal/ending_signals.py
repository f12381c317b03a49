"""Signals that ask a program to end, as one: KeyboardInterrupt in the main thread, which unwinds everything in order."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

# SIGHUP is what closing the terminal sends; Windows has none.
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def ending_signals_interrupt() -> contextlib.AbstractContextManager[None]:
    """While inside. A signal that is ignored stays so: who starts a program with `nohup` wants it to outlive him."""
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    return _handling(heard, signal.default_int_handler)


def uninterrupted() -> contextlib.AbstractContextManager[None]:
    """While inside, none of them is heard: for cleaning up, which ends soon and must not be done by halves."""
    # Not SIG_IGN, which a process that is started meanwhile would inherit: it could not be stopped while it starts.
    return _handling((signal.SIGINT, *ENDING), _hear_nothing)


def _hear_nothing(number: int, frame: FrameType | None) -> None:
    pass


@contextlib.contextmanager
def _handling(numbers: Sequence[signal.Signals], handler: Any) -> Iterator[None]:
    """In another thread than the main one, where signals never arrive, it changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
