"""Long commands stop when asked to: Ctrl-C or SIGTERM in, an event out."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_by_signal(tell: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """Set by the first signal, which is for finishing what is under way; a second one ends the process as ever.

    `tell` is called at once as well, for work that the main thread waits for and that cannot see the event.
    """
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        restore()
        tell()

    for number in SIGNALS:
        signal.signal(number, ask_to_stop)
    try:
        yield stop
    finally:
        restore()
