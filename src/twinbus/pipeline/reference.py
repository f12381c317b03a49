"""The reference page of the data source, made from its tables: nothing in, Markdown out."""

import sys
from collections.abc import Iterable, Iterator

from twinbus.pipeline import connection_options
from twinbus.pipeline.sink import columns as sink_columns
from twinbus.pipeline.sink.options import SINK_OPTIONS
from twinbus.pipeline.source import columns as source_columns
from twinbus.pipeline.source.option_table import BOTH, SOURCE_OPTIONS

HEAD = """# The data source `servicebus`: options and columns

Made from the tables in the code by `make docs`; change those, not this page. Names of options and columns are not
case-sensitive in Spark, but a schema of your own for a source, `.schema("messageId string")`, has to spell columns as here.
An option that is not here is refused when the query is planned.

```python
spark.read.format("servicebus").option("connectionStringEnv", "BUS").option("queue", "orders").load()
```
"""

CONNECTION = """
## Connection

For sources and sinks. Exactly one of the first four says where the namespace is. Secrets are in no plan, offset, log or
error text of ours; `CREATE TEMPORARY VIEW … OPTIONS (connectionString …)` alone would put one into Spark's event log, so
use `connectionStringEnv` or `connectionStringFile` there. `CREATE TABLE … USING servicebus` is refused: Spark does not hand
a table's options on when it is read.

"""

SOURCE = """
## Source: options

`spark.read` is a batch query, `spark.readStream` a stream, which needs pyspark 4.2 or later. A stream has every message in
exactly one batch. A batch that is run again after a crash has the same messages, in `mode=browse` without those that others removed
meanwhile: a sink that keeps each batch once keeps each message once, any other gets those of that batch twice. A stream goes on without
fragments that do not answer, and reads them later; a run with `availableNow` reads what it can, and then fails.

In `mode=consume` the first batch of a new query is empty: it writes down under which name messages are claimed. Claimed messages
are deferred, so that no receiver gets them, and are deleted when Spark plans the batch behind theirs: a query that is stopped holds
those of its last batch until it starts again. If a query is given up, `twinbus pipeline release-claims ENTITY --checkpoint FOLDER`
deletes them, and makes active again what no finished batch had. Spark's asynchronous progress tracking has to stay off, since with it
batches are planned before the one in front of them is committed. The order of messages is kept within an input partition only.

"""

SOURCE_COLUMNS = """
## Source: columns

A schema of one's own may leave columns out: `.schema("body binary, messageId string")`. A part of a message that cannot be
decoded is null.

"""

SINK = """
## Sink: options

`df.write` with `mode("append")`, or `df.writeStream` with the output mode append or update. A message is sent at least once: Spark runs a
task or a batch again when something fails (and with `spark.speculation` a task that is only slow), and then messages are sent again. An entity that detects duplicates drops them,
since they have the same ids: those of the column `messageId`, else ids made from where the row stands and what is in it. Ids that
were made are the same when a task is run again, and in a stream also when a batch is run again after a restart, if the query
yields the same rows in the same order; rows that come in another order are kept twice, and never dropped.

Rows of one entity and one key (`sessionId`, else `partitionKey`) keep their order within an input partition. They travel in
batches of one key, as partitioned entities demand. What may succeed later is tried again within a task, `retryTotal` times and
for no longer than `operationTimeout`; what cannot succeed fails the task with the entity and its reason.

"""

SINK_COLUMNS = """
## Sink: columns

`body` is needed, all others may be left out or null. Those that only a source has are left out by the sink itself:
{read_only}. Any other column is refused when the query is planned. Between the option `queue` or
`topic` and the column `entity` the option counts, so that what was read from one entity can be written to another.

"""

PROPERTIES = """
## Application properties

The values of `properties` are JSON, so that a number stays a number: what a source reads and a sink writes is the same value
of the same type. What JSON cannot tell apart stands in an object with the name of its AMQP type.

| AMQP type | Text |
|---|---|
| string | `"blue"` |
| boolean, null | `true`, `null` |
| int; long beyond 32 bits | `5` |
| double | `5.0` |
| others | `{"long": 5}`, `{"timestamp": "2026-01-02T03:04:05.678Z"}`, `{"uuid": "…"}`, `{"binary": "<base64>"}`, `{"float": 0.5}`, … |

A text that is no JSON, or JSON of another form, is sent as the string that it is: `blue` is the same as `"blue"`. But `5` is a
number: with texts of one's own, whatever they may look like, set `propertyValues` to `text`.
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
    """Out of the head of the module, which has them as a table."""
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
