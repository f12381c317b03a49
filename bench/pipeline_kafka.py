"""`python -m bench.pipeline_kafka`: Spark reads the same messages from Kafka, by its own source, and from twinbus, in one session.

    python -m bench.pipeline_kafka [--rounds 3] [--count 200000] [--size 1024]

One server of Kafka without replicas, a topic of 16 partitions, and a partitioned queue with 16 fragments; each is read
by a batch query and by a stream, to a sink that throws everything away, in turns. Both servers run all the time. Kafka's
source exists for Spark 4.2 and not for later versions, so this installs that version into the build folder;
Maven gets the server. Where either cannot be had, the reason is printed and nothing is measured.

The processor time is that of everybody together: Spark, its workers, and the server that is read, as the other one is idle.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[1]
SPARK_VERSION = "4.2.0"
PACKAGES = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"
TOKEN_PROVIDER = "spark-token-provider-kafka-0-10_2.13"
TOPIC, PARTITIONS = "orders", 16
START_S_MAX = 60.0
SERVER_MEMORY = ("-Xms512m", "-Xmx512m")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def kafka_server(libraries: Path) -> Iterator[str]:
    """Where clients find it. The topic exists."""
    with tempfile.TemporaryDirectory() as folder:
        clients, controllers = _free_port(), _free_port()
        settings = Path(folder) / "server.properties"
        settings.write_text(
            f"""process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{clients},CONTROLLER://127.0.0.1:{controllers}
advertised.listeners=PLAINTEXT://127.0.0.1:{clients}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controllers}
log.dirs={folder}/data
num.partitions={PARTITIONS}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
        )
        java = ["java", *SERVER_MEMORY, "-cp", f"{libraries}/*"]
        form = [*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", "dHdpbmJ1c3R3aW5idXN0dw", "-c"]
        subprocess.run([*form, str(settings)], check=True, capture_output=True)
        with (Path(folder) / "log").open("w") as log:
            server = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        address = f"127.0.0.1:{clients}"
        try:
            _wait_for(clients, server)
            # By itself it would come with its first records, some of which then wait for longer than their sender does.
            topic = [*java, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--create"]
            topic += ["--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "1"]
            subprocess.run(topic, check=True, capture_output=True)
            yield address
        finally:
            server.terminate()
            server.wait(30)


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_S_MAX
    while time.monotonic() < end and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("Kafka's server did not start")


class Sources:
    """The queries over both, in one session."""

    def __init__(self, spark: "SparkSession", kafka: str, bus: str, queue: str) -> None:
        self._spark = spark
        self._options = {
            "Kafka": ("kafka", {"kafka.bootstrap.servers": kafka, "subscribe": TOPIC, "startingOffsets": "earliest"}),
            "twinbus": ("servicebus", {"connectionString": bus, "queue": queue}),
        }

    def send_to_kafka(self, count: int, size: int) -> None:
        from pyspark.sql import functions as f

        _, options = self._options["Kafka"]
        body = f.lit(bytes(size))
        rows = self._spark.range(count).select(
            f.concat(f.lit("k"), f.col("id") % 400).alias("key"), body.alias("value")
        )
        writing = rows.write.format("kafka").option("topic", TOPIC)
        writing.option("kafka.bootstrap.servers", options["kafka.bootstrap.servers"]).save()

    def batch(self, name: str) -> int:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        form, options = self._options[name]
        observation = Observation()
        frame: DataFrame = self._spark.read.format(form).options(**options).load()
        frame.observe(observation, count(lit(1)).alias("rows")).write.format("noop").mode("append").save()
        return int(observation.get["rows"])

    def stream(self, name: str) -> int:
        form, options = self._options[name]
        with tempfile.TemporaryDirectory() as checkpoint:
            frame = self._spark.readStream.format(form).options(**options).load()
            writing = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writing.trigger(availableNow=True).start()
            query.awaitTermination()
            return sum(progress["numInputRows"] for progress in query.recentProgress)


def measure(task: dict[str, str]) -> None:
    """In the Python that has the older Spark."""
    from bench.processor_time import processor_seconds
    from twinbus.pipeline.session import spark_session

    count, size, rounds = int(task["count"]), int(task["size"]), int(task["rounds"])
    settings = {
        "spark.jars.packages": PACKAGES,
        "spark.jars.excludes": f"org.apache.spark:{TOKEN_PROVIDER}",
        "spark.jars": task["jar"],
        "spark.log.level": "ERROR",
    }
    spark = spark_session("bench", master="local[2]", settings=settings)
    sources = Sources(spark, task["kafka"], task["bus"], task["queue"])
    started = time.perf_counter()
    sources.send_to_kafka(count, size)
    print(f"Kafka has its messages after {time.perf_counter() - started:.1f} s", file=sys.stderr)
    jobs: dict[str, Callable[[], int]] = {
        f"{name}, {kind}": (lambda name=name, read=read: read(name))  # type: ignore[misc]
        for name in ("Kafka", "twinbus")
        for kind, read in (("batch", sources.batch), ("stream", sources.stream))
    }
    rates: dict[str, list[float]] = {name: [] for name in jobs}
    costs: dict[str, list[float]] = {name: [] for name in jobs}
    everybody = os.getppid()
    for turn in range(rounds + 1):
        for name, job in jobs.items():
            started, used = time.perf_counter(), processor_seconds(everybody) or 0.0
            found = job()
            took = time.perf_counter() - started
            if found != count:
                raise SystemExit(f"{name}: {found} messages of {count}")
            if turn:  # the first time is to get warm
                rates[name].append(found / took)
                costs[name].append(((processor_seconds(everybody) or 0.0) - used) * 1e6 / found)
                print(f"{name}: {rates[name][-1]:,.0f}/s, {costs[name][-1]:.1f} µs", flush=True)
    for name in jobs:
        print(f"{name:20}{statistics.median(rates[name]):>12,.0f}/s{statistics.median(costs[name]):>8.1f} µs a message")
    spark.stop()


def compare(options: argparse.Namespace) -> None:
    from bench.clients import QUEUE, served
    from bench.pipeline_source import fill
    from tests.interop.foreign_suite import SuiteUnavailable
    from tests.interop.maven import MavenProject
    from tests.spark.test_spark_versions import python_with_spark

    try:
        libraries = MavenProject(Path(__file__).parent / "kafka", "kafka.Kafka", common=None).libraries()
        python = python_with_spark(SPARK_VERSION)
    except (SuiteUnavailable, subprocess.SubprocessError) as missing:
        raise SystemExit(f"not measured: {missing}") from None
    with kafka_server(libraries) as kafka, served(is_partitioned=True) as bus:
        fill(bus, options.count, options.size)
        (jar,) = libraries.glob(f"{TOKEN_PROVIDER}-*.jar")
        task = {"kafka": kafka, "bus": bus, "queue": QUEUE, "jar": str(jar)} | {
            name: str(getattr(options, name)) for name in ("count", "size", "rounds")
        }
        hidden = ("SPARK_", "PYSPARK_", "PYTHON")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        command = [str(python), "-m", "bench.pipeline_kafka", "--task"]
        subprocess.run(
            command,
            env={**inherited, "PYTHONPATH": path},
            cwd=ROOT,
            input=json.dumps(task),
            text=True,
            stderr=None if options.verbose else subprocess.DEVNULL,
            check=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1_024)
    parser.add_argument("--verbose", action="store_true", help="show what Spark says")
    parser.add_argument("--task", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        measure(json.loads(sys.stdin.read()))
    else:
        compare(options)


if __name__ == "__main__":
    main()
