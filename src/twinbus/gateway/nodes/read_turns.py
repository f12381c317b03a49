"""Requests of one connection that bring messages: a few are worked on at a time, and none while the client does not read.

A request of a hundred bytes can have an answer of many megabytes. Without this a client could ask for all of them at once, and
they would wait in memory for it to read. While some wait, nothing more is read from the connection (`is_behind`).
"""

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from twinbus.clock import Millis
from twinbus.gateway.nodes.management_node import PENDING_MAX, timed_out, too_many_pending
from twinbus.gateway.nodes.request_message import Response
from twinbus.gateway.requests.call import Respond

READS_MAX = 16

Work: TypeAlias = Callable[[Millis, Respond], None]
"""Calls its `respond` exactly once."""


class ReadTurns:
    def __init__(self) -> None:
        self._waiting: deque[tuple[Work, Respond, Millis]] = deque()
        self._running_count = 0
        self._is_paused = False
        self._is_serving = False
        self._now: Millis = 0

    @property
    def is_behind(self) -> bool:
        """Requests wait until the client has read the answers to others."""
        return bool(self._waiting)

    def ask(self, work: Work, now: Millis, deadline: Millis, respond: Respond) -> None:
        """Do it now or later; if it was not begun by the deadline, it is answered with a timeout."""
        if len(self._waiting) + self._running_count >= PENDING_MAX:
            respond(Response.failed(too_many_pending()))
            return
        self._waiting.append((work, respond, deadline))
        self._serve(now)

    def tick(self, now: Millis) -> None:
        if any(deadline <= now for _, _, deadline in self._waiting):
            waiting, self._waiting = self._waiting, deque()
            for work, respond, deadline in waiting:
                if deadline <= now:
                    respond(timed_out())
                else:
                    self._waiting.append((work, respond, deadline))

    def clock_stepped(self, by: Millis) -> None:
        self._now += by
        self._waiting = deque([(work, respond, deadline + by) for work, respond, deadline in self._waiting])

    def pause(self) -> None:
        self._is_paused = True

    def resume(self, now: Millis) -> None:
        self._is_paused = False
        self._serve(now)

    def _serve(self, now: Millis) -> None:
        self._now = now
        # Work that is answered at once calls this again: the loop below goes on then.
        if self._is_serving:
            return
        self._is_serving = True
        try:
            while self._waiting and self._running_count < READS_MAX and not self._is_paused:
                work, respond, _ = self._waiting.popleft()
                self._running_count += 1
                work(now, self._finishing(respond))
        finally:
            self._is_serving = False

    def _finishing(self, respond: Respond) -> Respond:
        def finish(response: Response) -> None:
            self._running_count -= 1
            respond(response)
            self._serve(self._now)

        return finish
