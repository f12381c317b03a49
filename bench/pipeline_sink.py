"""`python -m bench.pipeline_sink`: `df.write` to a queue compared with the stock client's sends of lists, on the same namespace.

    python -m bench.pipeline_sink [--rounds 3] [--count 100000] [--size 1024] [--master local[2]] [--partitioned]

In each round the stock client sends its lists of 100 in a process of its own, and Spark writes a DataFrame with one task
and with two. Spark has started, and has written once, before anything is measured: what it costs to begin is shown
apart. The sink is meant to be at least three times as fast as the stock client.
"""

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.clients import QUEUE, comparison_parser, in_process_of_its_own, served, show_rates
from twinbus.client.blocking import BlockingNamespace
from twinbus.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STOCK_COUNT = 5_000
PURGE_COUNT = 10_000
TASKS = (1, 2)
KEYS = {"no keys": "null", "100 keys": "concat('k', id % 100)"}


def empty(connection_string: str) -> None:
    with BlockingNamespace.connect(connection_string) as namespace:
        while namespace.run(namespace.extras(QUEUE).purge(PURGE_COUNT)):
            pass


def rate(count: int, work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def write(frame: "DataFrame", connection_string: str) -> None:
    writer = frame.write.format("servicebus").mode("append")
    writer.options(connectionString=connection_string, queue=QUEUE).save()


def compare(options: argparse.Namespace) -> None:
    results: dict[str, list[float]] = {}
    started = time.perf_counter()
    spark = spark_session("bench", master=options.master)
    spark.sparkContext.setLogLevel("ERROR")
    body = f"rpad(string(id), {options.size}, 'x') as body"
    with served(is_partitioned=options.partitioned) as connection_string:
        write(spark.sql(f"select {body} from range(1000)"), connection_string)
        print(f"{time.perf_counter() - started:.1f} s to start Spark and write 1,000 messages")
        for _ in range(options.rounds):
            stock = argparse.Namespace(count=STOCK_COUNT, size=options.size)
            figures = in_process_of_its_own("stock", connection_string, "lists", stock)
            results.setdefault("stock client, lists of 100", []).append(figures.rate)
            for tasks in TASKS:
                for name, key in KEYS.items():
                    rows = f"range(0, {options.count}, 1, {tasks})"
                    frame = spark.sql(f"select {body}, {key} as partitionKey from {rows}")
                    found = rate(options.count, lambda frame=frame: write(frame, connection_string))  # type: ignore[misc]
                    results.setdefault(f"df.write, {tasks} task{'s' * (tasks > 1)}, {name}", []).append(found)
                    empty(connection_string)
    spark.stop()
    show_rates(results)


def main() -> None:
    parser = comparison_parser(__doc__, 100_000)
    parser.add_argument("--master", default="local[2]")
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
