"""Closing many stock senders: all at once, since each waits for a thread of the SDK that sleeps up to a second."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

CLOSED_AT_ONCE_MAX = 16


class Closeable(Protocol):
    def close(self) -> None: ...


def close_all(opened: Sequence[Closeable]) -> None:
    """Every one is tried; the first failure is raised afterwards."""
    if len(opened) == 1:
        opened[0].close()
    elif opened:
        with ThreadPoolExecutor(min(len(opened), CLOSED_AT_ONCE_MAX), "twinbus-close") as closing:
            results = [closing.submit(each.close) for each in opened]
        for result in results:
            result.result()
