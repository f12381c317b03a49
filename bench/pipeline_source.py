"""`python -m bench.pipeline_source`: what Spark reads from a queue, compared with one stock receiver, on the same namespace.

    python -m bench.pipeline_source [--rounds 3] [--count 50000] [--size 1024] [--master local[2]] [--partitioned] [--jobs read]
    python -m bench.pipeline_source --partitioned --counts 1000000 5000000 20000000 [--jobs 'browse|consume']

In each round the stock client receives and completes messages in a process of its own; then Spark looks at a full queue
(a batch query and a stream) and takes it away (a stream that consumes), to a sink that throws everything away. Spark has
started, and has run each query once, before anything is measured. The source is meant to be at least three times as fast
as the stock receiver.

Beside it: the same queue read without bodies, and peeked at by a plain Python loop; and rows of the same schema that are made up
in the workers (`made_up_rows`), which no source in Python can pass. The processor time is that of all
processes together, namespace, JVM and workers, which says more than a rate where others use the machine too; the memory is
the most that one Python worker had up to the end of the job. Each job is reported when it is done, so that a long run that is cut off has shown
something. The queue is filled at some ten thousand messages a second, and holds as many gigabytes as there are millions of 1 KiB.

With `--counts` the question is whether cost grows: for each count the queue is filled and each job run once, without a stock client.
The rate, the processor time a message by kind of process, and the most memory that one process of a kind had during the job are
printed when it is done. Twenty million messages of 1 KiB take 25 GB of disk, and a queue that is partitioned.

Behind it: what a micro-batch costs that has next to nothing to do, and how much of that is the source's part.
"""

import argparse
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench.clients import QUEUE, comparison_parser, in_process_of_its_own, served, show_rates
from bench.made_up_rows import MadeUpRows
from bench.pipeline_sink import empty
from bench.process_shares import Share, forget_peaks, shares
from bench.processor_time import processor_seconds
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STOCK_COUNT = 5_000
FILL_COUNT = 10_000
KEY_COUNT = 400
KEY_RUN = 100
"""Messages of one key in a row: they travel in one batch."""
WARM_COUNT = 20_000
"""Enough for several tasks, so that every worker has started."""
SMALL_BATCHES = 20
SMALL_BATCH_ROWS = 50
STREAM_TIMEOUT_S = 600
STREAM_RATE_MIN = 1_000
"""Messages a second, on a machine that is busy with other things as well. A stream that takes longer hangs."""


def fill(connection_string: str, count: int, size: int) -> None:
    """With many keys, so that the fragments of a partitioned queue have about as many messages each."""
    body = bytes(size)
    with BlockingNamespace.connect(connection_string) as namespace:
        sender = namespace.sender(QUEUE)
        for first in range(0, count, FILL_COUNT):
            numbers = range(first, min(first + FILL_COUNT, count))
            payloads = [
                encode_message(body, message_id=str(n), partition_key=f"k{n // KEY_RUN % KEY_COUNT}") for n in numbers
            ]
            if refused := next(filter(None, sender.send_batches(payloads)), None):
                raise SystemExit(f"the queue did not take the messages from {first:,} on: {refused}")


class Queue:
    """The queue under test and the queries over it."""

    def __init__(self, spark: "SparkSession", connection_string: str) -> None:
        self._spark = spark
        self._connection_string = connection_string
        self._options = {"connectionString": connection_string, "queue": QUEUE}
        self._filled = 0

    def fill(self, count: int, size: int) -> None:
        fill(self._connection_string, count, size)
        self._filled = count

    def read(self, **more: str) -> int:
        return self._counted(self._spark.read.format("servicebus").options(**self._options, **more).load())

    def _counted(self, frame: "DataFrame") -> int:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        observation = Observation()
        counted = frame.observe(observation, count(lit(1)).alias("rows"))
        counted.write.format("noop").mode("append").save()
        return int(observation.get["rows"])

    def made_up(self, size: int) -> int:
        """As many rows as there are messages, made up in the workers."""
        made = self._spark.read.format("made-up-rows").options(count=str(self._filled), size=str(size))
        return self._counted(made.load())

    def peek_in_a_loop(self) -> int:
        """Every message as an object whose body is looked at, a page at a time."""
        found = 0
        with BlockingNamespace.connect(self._connection_string) as namespace:
            extras = namespace.extras(QUEUE)
            for head in namespace.run(extras.fragment_heads()):
                following: int | None = head.first_number if head.first_number <= head.last_number else None
                while following is not None:
                    page = namespace.run(extras.peek_range(following, head.last_number))
                    found += sum(message.body is not None for message in page.messages)
                    following = page.next_number
        return found

    def stream(self, mode: str, batch_count: int | None = None) -> "StreamingQuery":
        options = dict(self._options, mode=mode)
        if batch_count is not None:
            options["maxMessagesPerTrigger"] = str(batch_count)
        with tempfile.TemporaryDirectory() as checkpoint:
            frame = self._spark.readStream.format("servicebus").options(**options).load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            limit_s = STREAM_TIMEOUT_S + self._filled // STREAM_RATE_MIN
            if not query.awaitTermination(limit_s):
                raise SystemExit(f"the {mode} stream did not end within {limit_s:,} s")
            return query

    def streamed(self, mode: str) -> int:
        """Says as well what is not done beside the tasks of a batch: what Spark waits for before it and after it."""
        batches = [progress for progress in self.stream(mode).recentProgress if progress["numInputRows"]]
        whole, planned, tasks = (
            sum(each["durationMs"].get(part, 0) for each in batches)
            for part in ("triggerExecution", "latestOffset", "addBatch")
        )
        print(f"{mode}: {len(batches)} batches, {whole} ms, of which latestOffset {planned}, tasks {tasks}", flush=True)
        return sum(each["numInputRows"] for each in batches)


def jobs_of(queue: Queue, options: argparse.Namespace) -> dict[str, Callable[[], int]]:
    jobs: dict[str, Callable[[], int]] = {
        "Python loop, peek": queue.peek_in_a_loop,
        "spark.read, browse": queue.read,
        "spark.read, includeBody=false": lambda: queue.read(includeBody="false"),
        "made-up rows": lambda: queue.made_up(options.size),
        "made-up rows without bodies": lambda: queue.made_up(0),
        "readStream, browse": lambda: queue.streamed("browse"),
        "readStream, consume": lambda: queue.streamed("consume"),
    }
    return {name: job for name, job in jobs.items() if re.search(options.jobs, name)}


def started_spark(master: str) -> "SparkSession":
    # Workers import the source of made-up rows from here.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")))
    )
    spark = spark_session("bench", master=master)
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    spark.dataSource.register(MadeUpRows)
    return spark


def grow(options: argparse.Namespace) -> None:
    """Each job once for each count, and what it took of everybody."""
    spark = started_spark(options.master)
    with served(is_partitioned=options.partitioned) as connection_string:
        queue = Queue(spark, connection_string)
        for count in (WARM_COUNT, *options.counts):
            started = time.perf_counter()
            queue.fill(count, options.size)
            if count != WARM_COUNT:
                print(f"{count:,} sent at {count / (time.perf_counter() - started):,.0f}/s", flush=True)
            for name, job in jobs_of(queue, options).items():
                forget_peaks(os.getpid())
                started, before = time.perf_counter(), shares(os.getpid())
                found = job()
                rate = found / (time.perf_counter() - started)
                if found != count:
                    raise SystemExit(f"{name}: {found} messages of {count}")
                if count != WARM_COUNT:
                    show_shares(name, count, rate, before, shares(os.getpid()))
            empty(connection_string)
    spark.stop()


def show_shares(name: str, count: int, rate: float, before: Mapping[str, Share], after: Mapping[str, Share]) -> None:
    costs = {kind: (after[kind].seconds - before[kind].seconds) * 1e6 / count for kind in after}
    each = ", ".join(f"{kind} {costs[kind]:.1f} µs {after[kind].megabytes:.0f} MB" for kind in after)
    print(f"{name}: {count:,} at {rate:,.0f}/s, {sum(costs.values()):.1f} µs each: {each}", flush=True)


def compare(options: argparse.Namespace) -> None:
    results: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    spark = started_spark(options.master)
    with served(is_partitioned=options.partitioned) as connection_string:
        queue = Queue(spark, connection_string)
        jobs = jobs_of(queue, options)
        queue.fill(WARM_COUNT, options.size)
        for job in jobs.values():
            job()
        empty(connection_string)
        for _ in range(options.rounds):
            queue.fill(STOCK_COUNT, options.size)
            stock = argparse.Namespace(count=STOCK_COUNT, size=options.size)
            figures = in_process_of_its_own("stock", connection_string, "receive", stock)
            results.setdefault("stock client, receive + complete", []).append(figures.rate)
            queue.fill(options.count, options.size)
            for name, job in jobs.items():
                started, used = time.perf_counter(), processor_seconds(os.getpid()) or 0.0
                found = job()
                rate = found / (time.perf_counter() - started)
                if found != options.count:
                    raise SystemExit(f"{name}: {found} messages of {options.count}")
                results.setdefault(name, []).append(rate)
                costs.setdefault(name, []).append((processor_seconds(os.getpid()) or 0.0) - used)
                show_job(name, found, rate, costs[name][-1])
            empty(connection_string)
        show_rates(results)
        for name, seconds in costs.items():
            print(
                f"{name:34}{statistics.median(seconds) * 1e6 / options.count:>10.0f} ms of processor time a 1,000 messages"
            )
        print(f"{'largest Python worker':34}{shares(os.getpid())['workers'].megabytes:>10.0f} MB")
        for mode in ("browse", "consume"):
            queue.fill(SMALL_BATCHES * SMALL_BATCH_ROWS, 100)
            show_overhead(mode, queue.stream(mode, SMALL_BATCH_ROWS))
        empty(connection_string)
    spark.stop()


def show_job(name: str, count: int, rate: float, cost_s: float) -> None:
    us = cost_s * 1e6 / count
    print(
        f"{name}: {count:,} at {rate:,.0f}/s, {us:.0f} µs each, worker {shares(os.getpid())['workers'].megabytes:.0f} MB",
        flush=True,
    )


def show_overhead(mode: str, query: "StreamingQuery") -> None:
    """Of the batches behind the first ones, which start what the others use."""
    durations = [progress["durationMs"] for progress in query.recentProgress if progress["numInputRows"]][2:]
    whole, planned = (
        statistics.median(each.get(part, 0) for each in durations) for part in ("triggerExecution", "latestOffset")
    )
    print(f"micro-batch of {SMALL_BATCH_ROWS}, {mode:8}{whole:>12.0f} ms, of which latestOffset {planned:.0f} ms")


def main() -> None:
    parser = comparison_parser(__doc__, 50_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--jobs", default="", help="a pattern: only those whose names have it")
    parser.add_argument(
        "--counts", type=int, nargs="+", help="whether cost grows: each job once for each of these counts"
    )
    options = parser.parse_args()
    if options.counts:
        grow(options)
    else:
        compare(options)


if __name__ == "__main__":
    main()
