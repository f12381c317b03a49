"""Ids for messages that have none: where a row stands and what is in it in, an id out.

An entity that detects duplicates drops the second message of the same id. So an id has to be the same when Spark runs a
task or a batch again, and must never be the same for two messages:

    stream   query id / batch / input partition / row / digest     the same over task retries and restarts
    batch    job      / input partition / row / digest             the same over task retries; each job gets a new id

The digest is of the row's content. Spark may hand out the rows of a repeated batch in another order (another number of
input partitions, a shuffle); then ids differ and the entity keeps a message twice. Without the digest it would drop a
message that it has never seen.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

_DIGEST_SIZE = 8
_QUERY_PROPERTY, _BATCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"


class TaskPlace(NamedTuple):
    """Which part of which work a task does; `work` is the same whenever that part is done again."""

    work: str
    input_partition: int


def place_in_job(job: str) -> TaskPlace:
    """Of the Spark task that runs here."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return TaskPlace(job, 0 if context is None else context.partitionId())


def place_in_query(job: str) -> TaskPlace:
    """As `place_in_job`, for a streaming query: Spark names it and its batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskPlace(job, 0)
    query, batch = context.getLocalProperty(_QUERY_PROPERTY), context.getLocalProperty(_BATCH_PROPERTY)
    return TaskPlace(job if query is None or batch is None else f"{query}/{batch}", context.partitionId())


def message_id(place: TaskPlace, row: int, body: bytes | str | None, values: Sequence[Any]) -> str:
    digest = blake2b(body.encode() if isinstance(body, str) else body or b"", digest_size=_DIGEST_SIZE)
    digest.update(repr(values).encode(errors="surrogatepass"))
    return f"{place.work}/{place.input_partition}/{row}/{digest.hexdigest()}"
