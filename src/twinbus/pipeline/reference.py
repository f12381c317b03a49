"""The reference page of the data source, generated from its tables: nothing in, Markdown out."""

import sys
from collections.abc import Iterable, Iterator

from twinbus.pipeline import connection_options
from twinbus.pipeline.sink import columns as sink_columns
from twinbus.pipeline.sink.options import SINK_OPTIONS
from twinbus.pipeline.source.option_table import BOTH, SOURCE_OPTIONS
from twinbus.pipeline.source.rows import columns as source_columns

HEAD = """# The data source `servicebus`: options and columns

`make docs` generates this page from the tables in the code; change those, not this page. Names of options and columns are not
case-sensitive in Spark, but your own schema for a source, `.schema("messageId string")`, must spell columns as on this page.
Unknown options are refused when the query is planned.

```python
spark.read.format("servicebus").option("connectionStringEnv", "BUS").option("queue", "orders").load()
```
"""

CONNECTION = """
## Connection

For sources and sinks. Exactly one of the first four says where the namespace is. twinbus never puts secrets into plans, offsets, logs
or error texts. `CREATE TEMPORARY VIEW … OPTIONS (connectionString …)` would write one to Spark's event log, so use
`connectionStringEnv` or `connectionStringFile` there. `CREATE TABLE … USING servicebus` is refused, because Spark does not pass on
a table's options when it is read.

"""

SOURCE = """
## Source: options

`spark.read` is a batch query; `spark.readStream` is a stream and needs pyspark 4.2 or later. Every message is in exactly one batch of a
stream. A batch that is repeated after a crash has the same messages; with `mode=browse`, messages that others removed meanwhile are missing.
So a sink that keeps each batch once keeps each message once, and any other sink gets the messages of that batch twice. A stream
continues without fragments that do not answer, and reads them later; a run with `availableNow` reads what it can, and then fails.

With `mode=consume` the first batch of a new query is empty: it records the name under which messages are claimed. Claimed messages
are deferred, so no receiver gets them, and are deleted when Spark plans the next batch: a query that is stopped holds the messages of its
last batch until it starts again. If you abandon a query, `twinbus pipeline release-claims ENTITY --checkpoint FOLDER` deletes them, and
makes the messages of unfinished batches active again. Keep Spark's asynchronous progress tracking off, because with it batches are planned before
the previous one is committed. The order of messages is kept only within an input partition.

In a twinbus namespace, a batch with `mode=consume` fails if messages that it claimed disappear before it has read them, because it would
be removed as a whole. That happens if two queries use one checkpoint, or if somebody purges the entity. Started again, the query reads
what is left.

"""

SOURCE_COLUMNS = """
## Source: columns

Your own schema may omit columns: `.schema("body binary, messageId string")`. A part of a message that cannot be decoded is null.

"""

SINK = """
## Sink: options

Use `df.write` with `mode("append")`, or `df.writeStream` with the output mode append or update. A message is sent at least once: when
something fails, Spark repeats a task or a batch (with `spark.speculation` even a task that is only slow), and messages are sent again. An
entity that detects duplicates drops them, because they have the same ids: those of the column `messageId`, otherwise ids generated from
the position and content of the row. Generated ids are the same when a task is repeated and, in a stream, when a batch is repeated
after a restart, provided that the query returns the same rows in the same order; rows in another order are stored twice, never dropped.

Rows of one entity with the same key (`sessionId`, else `partitionKey`) keep their order within an input partition. They are sent in batches
of one key, as partitioned entities require. A task retries errors that may pass, `retryTotal` times and for no longer than
`operationTimeout`; other errors fail the task, with the entity and the reason.

"""

SINK_COLUMNS = """
## Sink: columns

`body` is required; all other columns may be absent or null. The sink ignores the columns that only a source has:
{read_only}. Any other column is refused when the query is planned. If both the option `queue` or `topic` and the column `entity` are
given, the option decides, so that messages from one entity can be written to another.

"""

PROPERTIES = """
## Application properties

The values of `properties` are JSON, so numbers stay numbers: a sink writes the same value of the same type that a source read. AMQP types
that JSON does not have are written as an object with the name of the type.

| AMQP type | Text |
|---|---|
| string | `"blue"` |
| boolean, null | `true`, `null` |
| int; long beyond 32 bits | `5` |
| double | `5.0` |
| others | `{"long": 5}`, `{"timestamp": "2026-01-02T03:04:05.678Z"}`, `{"uuid": "…"}`, `{"binary": "<base64>"}`, `{"float": 0.5}`, … |

A text that is not JSON, or is JSON of another form, is sent as a string: `blue` is the same as `"blue"`. But `5` is a number: to send
all texts as strings, set `propertyValues` to `text`.
"""


def reference() -> str:
    read_only = ", ".join(f"`{name}`" for name in sink_columns.READ_ONLY)
    return "".join(
        [
            HEAD,
            CONNECTION,
            *_table("Option", "Meaning", rows=_connection_rows()),
            SOURCE,
            *_table("Option", "Default", "For", "Meaning", rows=_source_rows()),
            SOURCE_COLUMNS,
            *_table("Column", "Type", "Meaning", rows=_source_column_rows()),
            SINK,
            *_table("Option", "Default", "Meaning", rows=_sink_rows()),
            SINK_COLUMNS.format(read_only=read_only),
            *_table("Column", "Type", "Meaning", rows=_sink_column_rows()),
            PROPERTIES,
        ]
    )


def _connection_rows() -> Iterator[tuple[str, ...]]:
    """From the docstring of the module, which has them as a table."""
    for line in (connection_options.__doc__ or "").splitlines():
        if line.startswith("| `"):
            yield tuple(cell.strip() for cell in line.strip("|").split("|"))


def _source_rows() -> Iterator[tuple[str, ...]]:
    for option in SOURCE_OPTIONS:
        used_by = "batch, stream" if option.used_by == BOTH else option.used_by
        yield f"`{option.name}`", option.default, used_by, option.meaning


def _source_column_rows() -> Iterator[tuple[str, ...]]:
    for column in source_columns.COLUMNS:
        yield f"`{column.name}`", column.kind, column.meaning


def _sink_rows() -> Iterator[tuple[str, ...]]:
    for option in SINK_OPTIONS:
        yield f"`{option.name}`", option.default, option.meaning


def _sink_column_rows() -> Iterator[tuple[str, ...]]:
    for column in sink_columns.COLUMNS:
        yield f"`{column.name}`", column.expected, column.meaning


def _table(*names: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield _line(names)
    yield "|" + "---|" * len(names) + "\n"
    for row in rows:
        yield _line(row)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
