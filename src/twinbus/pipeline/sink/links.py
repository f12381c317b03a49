"""A worker process's connection to a namespace: kept from task to task, since Spark uses its workers again.

Connecting, authorizing and opening a link takes a few round trips, more than a small task has messages.
"""

import os
from threading import Lock

from twinbus.client.blocking import LoopThread
from twinbus.client.kept_links import KeptLinks
from twinbus.pipeline.connection_options import ConnectionOptions

SENDER_COUNT_MAX = 256
"""Links that are kept open; a namespace has a limit for them too."""
CONNECTION_COUNT_MAX = 8
"""Connections that a process keeps, for jobs with different connection strings."""


class SenderLinks(KeptLinks):
    def __init__(self, connection: ConnectionOptions) -> None:
        super().__init__(connection.connect)
        self.unbatched: set[str] = set()
        """Entities that take messages without a key one by one only: partitioned ones that detect duplicates."""


_lock = Lock()
_kept: dict[tuple[int, ConnectionOptions, str], tuple[LoopThread, SenderLinks]] = {}


def links_of_process(connection: ConnectionOptions) -> tuple[LoopThread, SenderLinks]:
    """The links of this process, created on first use; they end with it. Raises OptionError."""
    # Threads and sockets do not survive a fork, so a child has none of its parent's. What a variable or a file says may
    # have changed since, and then the connection that was opened with it is useless.
    place = os.getpid(), connection, connection.resolve()
    with _lock:
        found = _kept.get(place)
        if found is None:
            if len(_kept) >= CONNECTION_COUNT_MAX:
                _end(*_kept.pop(next(iter(_kept))))
            loop = LoopThread()
            found = _kept[place] = loop, loop.run(_made(connection))
        return found


def _end(loop: LoopThread, links: SenderLinks) -> None:
    loop.run(links.drop())
    loop.stop()


async def _made(connection: ConnectionOptions) -> SenderLinks:
    return SenderLinks(connection)
