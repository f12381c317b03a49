"""Which of the other nodes this one reaches, and how long a question to each takes: names and lines in, with every beat."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from twinbus.clock import boot_time
from twinbus.cluster.line import Line, Topics
from twinbus.errors import MessagingError

PING: Final = 66
"""Topic of a line, beside those of `twinbus.cluster.talk`: a question that is answered at once."""
MISSING_S = 10.0
"""A node that has not reached another one for this long is not ready: it cannot serve all that clients ask for."""


class Reach:
    def __init__(self, topics: Topics) -> None:
        topics.asks[PING] = lambda line, payload, now, answer: answer(payload)
        self._missing: dict[str, float] = {}  # since when, by name
        self.round_trips_s: dict[str, float] = {}

    def look(self, names: Mapping[int, str], lines: Mapping[int, Line]) -> None:
        """`names`: of the others that live; `lines`: those that are open."""
        missing = {name for number, name in names.items() if number not in lines}
        self._missing = {name: self._missing.get(name, boot_time()) for name in missing}
        self.round_trips_s = {name: took for name, took in self.round_trips_s.items() if name in names.values()}
        for number, line in lines.items():
            if number in names:
                line.ask(PING, b"", partial(self._answered, names[number], time.monotonic()))

    def missing(self) -> list[str]:
        """The names of those that have not been reached for MISSING_S."""
        now = boot_time()
        return sorted(name for name, since in self._missing.items() if now - since > MISSING_S)

    def _answered(self, name: str, since: float, answer: bytes | MessagingError) -> None:
        if not isinstance(answer, MessagingError):
            self.round_trips_s[name] = time.monotonic() - since
