"""Spark's read limits: one in, how many rows and bytes a batch may have out. Needs pyspark 4.2."""

from typing import Any, NamedTuple

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from twinbus.pipeline.source.options import SourceOptions


class BatchLimit(NamedTuple):
    count_max: int | None
    bytes_max: int | None


def default_limit(options: SourceOptions) -> ReadLimit:
    """Spark has no limit of both kinds: it gets the limit of rows, and the limit of bytes is kept anyway."""
    if options.count_max is not None:
        return ReadMaxRows(options.count_max)
    return ReadAllAvailable() if options.bytes_max is None else ReadMaxBytes(options.bytes_max)


def batch_limit(limit: Any, options: SourceOptions) -> BatchLimit:
    """What Spark asks for counts; where it asks for all there is, or says nothing that we know, see below."""
    if isinstance(limit, ReadMaxRows):
        return BatchLimit(limit.max_rows, options.bytes_max)
    if isinstance(limit, ReadMaxBytes):
        return BatchLimit(None, limit.max_bytes)
    if isinstance(limit, ReadAllAvailable):
        return BatchLimit(None, None)  # regardless of the options, says Spark
    return BatchLimit(options.count_max, options.bytes_max)
