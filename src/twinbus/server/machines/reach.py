"""Which of the other nodes this one reaches, and how long a question to each takes: names and lines in, with every beat.

A node that is cut off is one that does not reach most of them. One that misses a few is not: those may be the ones that are cut off, and if
each node told a balancer that it misses another, one that fails would take all of them out of service.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from twinbus.clock import boot_time
from twinbus.cluster.lines.line import Line, Topics
from twinbus.errors import MessagingError

PING: Final = 66
"""Topic of a line, beside those of `twinbus.cluster.lines.talk`: a question that is answered at once."""
MISSING_S = 10.0
"""For lines to be there again before a node counts as not reached."""


class Reach:
    def __init__(self, topics: Topics, clock: Callable[[], float] = boot_time) -> None:
        topics.asks[PING] = lambda line, payload, now, answer: answer(payload)
        self._clock = clock
        self._node_count = 1
        self._missing: dict[str, float] = {}  # since when, by name
        self.round_trips_s: dict[str, float] = {}

    def look(self, names: Mapping[int, str], lines: Mapping[int, Line]) -> None:
        """`names`: of the others that live; `lines`: those that are open."""
        missing = {name for number, name in names.items() if number not in lines}
        self._missing = {name: self._missing.get(name, self._clock()) for name in missing}
        self._node_count = len(names) + 1
        self.round_trips_s = {name: took for name, took in self.round_trips_s.items() if name in names.values()}
        for number, line in lines.items():
            if number in names:
                line.ask(PING, b"", partial(self._answered, names[number], time.monotonic()))

    def cut_off_from(self) -> list[str]:
        """The names of those that have not been reached for MISSING_S, if they are more than those that are reached and this one."""
        now = self._clock()
        late = sorted(name for name, since in self._missing.items() if now - since > MISSING_S)
        return late if 2 * len(late) > self._node_count else []

    def _answered(self, name: str, since: float, answer: bytes | MessagingError) -> None:
        if not isinstance(answer, MessagingError):
            self.round_trips_s[name] = time.monotonic() - since
