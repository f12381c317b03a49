"""What a namespace refuses, in its log: at once when it starts, then once a minute with a count, however much it is."""

import logging

from twinbus.clock import Millis

log = logging.getLogger(__name__)

LOG_EVERY: Millis = 60_000

TOO_MANY_SOCKETS = "connections, as many sockets are open as the process may have"
TOO_MANY_UNDECIDED = "connections that have not said what they speak"
TOO_MANY_HTTP = "connections for HTTP"
NO_REQUESTS = "what came for HTTP and is no request"
TOO_MANY_AMQP = "connections for AMQP"
NOT_READ = "connections whose clients do not read what they are sent"
INCOMPLETE = "incomplete messages, all connections together hold too many bytes of them"


class RefusalLog:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._since: Millis | None = None  # when something was written last

    def note(self, what: str, count: int = 1) -> None:
        if what not in self._counts:
            self._counts[what] = 0
            self._write(what, count)
        else:
            self._counts[what] += count

    def tick(self, now: Millis) -> None:
        if not self._counts:
            self._since = None
        elif self._since is None:
            self._since = now
        elif not 0 <= now - self._since < LOG_EVERY:  # or the clock was set: then it is early
            self._since = now
            self._write_all()

    def _write_all(self) -> None:
        """What did not occur again is forgotten: its next time is written at once."""
        counts, self._counts = self._counts, {}
        for what, count in counts.items():
            if count:
                self._write(what, count)
                self._counts[what] = 0

    def _write(self, what: str, count: int) -> None:
        log.warning("refused", extra={"fields": {"what": what, "count": count}})
