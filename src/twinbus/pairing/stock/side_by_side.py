"""Blocking calls that must not wait for one another: a function and what to call it with in, the results out."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Sequence[Item], at_once: int, name: str) -> list[Result]:
    """What `work`, which must not raise, returns for each. The caller's thread does its part, and all of it where the system has no
    others. Not a pool: an application that ends would wait for calls that hang."""
    left, results = deque(enumerate(items)), dict[int, Result]()

    def work_off() -> None:
        while True:
            try:
                place, item = left.popleft()
            except IndexError:
                return
            results[place] = work(item)

    helpers: list[threading.Thread] = []
    with contextlib.suppress(RuntimeError):
        for _ in range(min(at_once, len(items)) - 1):
            helper = threading.Thread(target=work_off, name=name, daemon=True)
            helper.start()
            helpers.append(helper)
    work_off()
    for helper in helpers:
        helper.join()
    return [results[place] for place in range(len(items))]
