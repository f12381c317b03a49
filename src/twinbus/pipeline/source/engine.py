"""What the Spark that runs here says to a streaming source.

    4.0, 4.1   latestOffset()              nothing but the question where a batch may end
    4.2 on     latestOffset(start, limit)  also where it starts, and so what is committed, and how much it may have

Without the start nothing can be settled and no limit can be kept: see `unbounded_stream_reader`.
"""

from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    SAYS_START = True
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        SAYS_START = True
    except ImportError:

        class _NotKnown:
            """Stands where this Spark has nothing."""

        ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxRows = SupportsTriggerAvailableNow = _NotKnown
        SAYS_START = False

VERSION: str = pyspark.__version__

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SAYS_START",
    "SupportsTriggerAvailableNow",
    "VERSION",
]
