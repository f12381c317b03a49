"""Limits and defaults of a pair of namespaces: its senders and syphon keep them, and its bill is estimated with them.

They are here, below all of those, so that an estimate needs no messaging client (docs/contract.md, B1 to B11).
"""

from datetime import timedelta

BACKLOG_QUEUE_COUNT_DEFAULT = 10

FAILOVER_INTERVAL_DEFAULT = timedelta(minutes=1)
FAILOVER_INTERVAL_MAX = timedelta(minutes=60)

PING_INTERVAL_DEFAULT = timedelta(minutes=1)
PING_INTERVAL_MIN = timedelta(seconds=1)
PING_INTERVAL_MAX = timedelta(minutes=30)
PING_TIMEOUT = timedelta(minutes=2)
PING_TIME_TO_LIVE = timedelta(seconds=1)

PARTNER_CLOSE_GRACE = timedelta(seconds=5)

SYPHON_POLL = timedelta(minutes=15)
"""How long one receive of a syphon waits for a message."""

SET_ASIDE_SIZE = 512
"""About how many bytes a message grows by when it is rewritten for a backlog queue."""

SET_ASIDE_SIZE_MAX = 1024
"""It never grows by more than this."""
