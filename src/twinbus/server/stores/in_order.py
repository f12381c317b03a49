"""Requests in their order, though one of them may take several turns of the loop: what comes behind it waits."""

from collections import deque
from collections.abc import Callable, Iterator

TOGETHER_MAX = 100
"""Requests that have waited, in one turn: some milliseconds."""


class InOrder:
    """`later` calls in the next turn of the loop. `broken`: a request failed half-way, and nothing that follows makes sense."""

    def __init__(self, later: Callable[[Callable[[], None]], object], broken: Callable[[], None]) -> None:
        self._later = later
        self._broken = broken
        self._steps: Iterator[None] | None = None
        self._behind: deque[Callable[[], object]] = deque()
        self.is_busy = False

    def wait(self, request: Callable[[], object]) -> None:
        """While it is busy: what is before it comes first. It may `begin` steps of its own."""
        self._behind.append(request)

    def begin(self, steps: Iterator[None]) -> None:
        """Of the only request without others before it: a step in each turn from the next one on."""
        self._steps = steps
        self._plan()

    def stop(self) -> None:
        """Drop everything: nobody is there for it."""
        self._steps = None
        self._behind.clear()

    def _plan(self) -> None:
        if not self.is_busy:
            self.is_busy = True
            self._later(self._turn)

    def _turn(self) -> None:
        try:
            if self._steps is not None and next(self._steps, _END) is _END:
                self._steps = None
            left = TOGETHER_MAX
            while self._steps is None and self._behind and left:
                self._behind.popleft()()
                left -= 1
        except BaseException:
            self.stop()
            self._broken()
            raise
        finally:
            self.is_busy = False
            if self._steps is not None or self._behind:
                self._plan()


_END = object()
