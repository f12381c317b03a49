"""The syphon on Spark compared with the in-process syphon: real namespaces, real messages, everything on this machine.

    python -m bench.pipeline_syphon [--rounds 3] [--count 100000] [--queues 10] [--destinations 20] [--master local[2]]

In each round both drain the same backlog: the in-process syphon in one process, Spark with one task and with two. Spark
has started, and its Python workers have, before anything is measured: what it costs to begin is shown apart. "Drain" is
from the first lane's start to the last one's end, "job" has the planning around it too. The Spark syphon is meant to be
no slower than the other.

Below that is a model of more cores, made of what was measured in the same run; see `Costs`.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.processor_time import processor_seconds
from bench.syphon_drain import drain, fill
from tests.pairing.namespaces import NamespaceProcess
from twinbus.client.blocking import BlockingNamespace
from twinbus.clock import SteadyClock
from twinbus.pairing.syphon.service import PairToDrain
from twinbus.pipeline.session import spark_session
from twinbus.pipeline.stop_request import StopRequest
from twinbus.pipeline.syphon.driver import SyphonJob
from twinbus.pipeline.syphon.key_folder import KeyFolder
from twinbus.pipeline.syphon.pairs import PairToSyphon
from twinbus.pipeline.syphon.reports import LaneReport
from twinbus.pipeline.syphon.rounds import PairPlaces
from twinbus.pipeline.syphon.syphon_settings import BUDGET_S_DEFAULT, SyphonSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS = (1, 2)
PURGE_COUNT = 10_000
WARM_UP_COUNT = 2_000
MODEL_CORES = (1, 2, 4, 8, 16, 32, 64)
MODEL_PAIRS = (1, 4, 16)


class Figures(NamedTuple):
    """Messages a second."""

    drain: float
    job: float


@dataclass
class Scene:
    """Two namespaces, a backlog in one and its destinations in the other."""

    primary: NamespaceProcess
    secondary: NamespaceProcess
    queues: list[str]
    destinations: list[str]
    keys: KeyFolder

    def fill(self, queues: Sequence[str], count: int) -> None:
        """The destinations are emptied first: both syphons meet the same ones."""
        with BlockingNamespace.connect(self.primary.connection_string) as namespace:
            for path in self.destinations:
                while namespace.run(namespace.extras(path).purge(PURGE_COUNT)):
                    pass
        asyncio.run(fill(self.secondary, list(queues), self.destinations, count))

    def pair(self, queues: Sequence[str]) -> PairToSyphon:
        primary, secondary = self.primary.connection_string, self.secondary.connection_string
        backlog = PairToDrain(primary, secondary, self.secondary.administration(), tuple(queues))
        return PairToSyphon("bench", PairPlaces(self.keys.keep(primary), self.keys.keep(secondary)), backlog)


@dataclass(frozen=True)
class Costs:
    """The parameters of the model. Processor seconds a message of a task, a primary and a secondary; messages a second
    that one lane moves alone; seconds that a round takes besides its budget.

    Tasks have cores of their own and so has every namespace. A lane is held up by its round trips, a task by its core,
    a namespace by the one core that its message brokers decide on: whichever is least is the rate. Every pair has its
    own two namespaces, and all of them the same load. Networks cost nothing.
    """

    task_s: float
    primary_s: float
    secondary_s: float
    lane_rate: float
    round_s: float

    def rate(self, cores: int, pairs: int, queues: int) -> tuple[float, str]:
        limits = {
            "cores": min(cores, pairs * queues) / self.task_s,
            "lanes": pairs * queues * self.lane_rate,
            "primaries": pairs / self.primary_s,
            "secondaries": pairs / self.secondary_s,
        }
        name = min(limits, key=lambda each: limits[each])
        return limits[name] * BUDGET_S_DEFAULT / (BUDGET_S_DEFAULT + self.round_s), name

    def rate_here(self, tasks: int, cores: int) -> float:
        """Tasks and namespaces on the same cores."""
        return min(tasks / self.task_s, cores / (self.task_s + self.primary_s + self.secondary_s))


def spark_drain(spark: "SparkSession", scene: Scene, queues: Sequence[str], tasks: int, count: int) -> Figures:
    reports: list[LaneReport] = []
    settings = SyphonSettings(tasks_max=tasks)
    job = SyphonJob(spark, [scene.pair(queues)], settings, SteadyClock(), StopRequest(), on_round=reports.extend)
    started = time.perf_counter()
    job.run(until_empty=True)
    took = time.perf_counter() - started
    assert sum(report.moved for report in reports) == count
    drained = max(each.finished_at for each in reports) - min(each.started_at for each in reports)
    return Figures(count * 1000 / drained, count / took)


def cpu_s(namespace: NamespaceProcess) -> float:
    taken = processor_seconds(namespace.pid)
    assert taken is not None
    return taken


def in_process(scene: Scene, count: int) -> tuple[float, tuple[float, float, float]]:
    """Messages a second, and processor seconds a message of syphon, primary and secondary."""
    before = cpu_s(scene.primary), cpu_s(scene.secondary)
    moved, took_s, busy_s = asyncio.run(drain(scene.primary, scene.secondary, scene.queues, count))
    primary_s, secondary_s = cpu_s(scene.primary) - before[0], cpu_s(scene.secondary) - before[1]
    return moved / took_s, (busy_s / moved, primary_s / moved, secondary_s / moved)


@contextmanager
def scene_of(queue_count: int, destination_count: int) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory() as folder, KeyFolder() as keys:
        primary = NamespaceProcess(Path(folder), "primary")
        secondary = NamespaceProcess(Path(folder), "secondary")
        try:
            queues = [secondary.create_queue(max_size_in_megabytes=5120) for _ in range(queue_count)]
            yield Scene(primary, secondary, queues, [primary.create_queue() for _ in range(destination_count)], keys)
        finally:
            primary.kill()
            secondary.kill()


def measure(spark: "SparkSession", scene: Scene, rounds: int, count: int) -> Costs:
    rates: list[float] = []
    costs: list[tuple[float, float, float]] = []
    figures: dict[int, list[Figures]] = {tasks: [] for tasks in TASKS}
    lane_rates: list[float] = []
    for _ in range(rounds):
        scene.fill(scene.queues, count)
        rate, cost = in_process(scene, count)
        rates.append(rate)
        costs.append(cost)
        for tasks in TASKS:
            scene.fill(scene.queues, count)
            figures[tasks].append(spark_drain(spark, scene, scene.queues, tasks, count))
        alone = count // len(scene.queues)
        scene.fill(scene.queues[:1], alone)
        lane_rates.append(spark_drain(spark, scene, scene.queues[:1], 1, alone).drain)
    print(f"{'in-process':>24}  {statistics.median(rates):8,.0f}/s")
    for tasks, found in figures.items():
        drained, job = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{f'Spark, tasks: {tasks}, drain':>24}  {drained:8,.0f}/s      job {job:8,.0f}/s")
    task_s, primary_s, secondary_s = (statistics.median(column) for column in zip(*costs, strict=True))
    last = figures[TASKS[-1]][-1]
    round_s = max(0.0, count / last.job - count / last.drain)
    return Costs(task_s, primary_s, secondary_s, statistics.median(lane_rates), round_s)


def show_model(costs: Costs, queues: int) -> None:
    print(
        f"\nA message costs a task {costs.task_s * 1e6:.0f} us, its primary {costs.primary_s * 1e6:.0f} us and its "
        f"secondary {costs.secondary_s * 1e6:.0f} us; one lane alone moves {costs.lane_rate:,.0f}/s; a round takes "
        f"{costs.round_s:.1f} s besides its budget of {BUDGET_S_DEFAULT:g} s."
    )
    cores = os.cpu_count() or 1
    here = ", ".join(f"tasks: {tasks} {costs.rate_here(tasks, cores):,.0f}/s" for tasks in TASKS)
    print(f"The model for this machine, tasks and namespaces on the same {cores} cores: {here}.")
    print(f"\nThe model, messages a second and what limits them, {queues} backlog queues a pair:\n")
    print("cores  " + "  ".join(f"{f'pairs: {pairs}':>22}" for pairs in MODEL_PAIRS))
    for count in MODEL_CORES:
        found = [costs.rate(count, pairs, queues) for pairs in MODEL_PAIRS]
        print(f"{count:5}  " + "  ".join(f"{f'{rate:,.0f} {name}':>22}" for rate, name in found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--queues", type=int, default=10)
    parser.add_argument("--destinations", type=int, default=20)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    with scene_of(given.queues, given.destinations) as scene:
        started = time.perf_counter()
        spark = spark_session("bench", master=given.master)
        session_s = time.perf_counter() - started
        scene.fill(scene.queues, WARM_UP_COUNT)
        spark_drain(spark, scene, scene.queues, max(TASKS), WARM_UP_COUNT)
        print(f"Spark: session {session_s:.1f} s, with its first round {time.perf_counter() - started:.1f} s\n")
        costs = measure(spark, scene, given.rounds, given.count)
        spark.stop()
    show_model(costs, given.queues)


if __name__ == "__main__":
    main()
