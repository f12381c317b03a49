"""GET /metrics: Prometheus metrics of a namespace, computed from its counters and counts when they are scraped.

A namespace that several processes serve has one page: the process that is asked gets the sums over all of them (`metrics_text`).

Nothing on the way of a message knows of this module. A namespace may have ten thousand entities, so a scrape is made in steps, and the
loop goes on between them. Who asks meanwhile gets the same scrape. `?name[]=METRIC`, any number of times, asks for those alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.runs import Detour
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.broker.replies import QueueCounts
from twinbus.gateway.namespace_view import Traffic
from twinbus.http.own.nodes import NodeFigures, Nodes
from twinbus.http.own.store_records import UP, StoreRecord, StoreRecords, is_full
from twinbus.http.pace import Pace
from twinbus.meter.operation import Cause
from twinbus.model.paths import subscription_path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SAMPLES_TOGETHER = 50
WANTED = "name[]"
WANTED_COUNT_MAX = 50
QUEUE_METRIC = "twinbus_queue_"
METRICS = "metrics"
"""The question for the metrics of a node."""

_TRAFFIC = [
    ("messages_in", "Messages sent to the entity and accepted for processing"),
    ("bytes_in", "Bytes of messages sent to the entity"),
    ("refused", "Messages the entity refused"),
    ("messages_out", "Messages handed to receivers"),
    ("bytes_out", "Bytes handed to receivers"),
    ("settled", "Messages settled by receivers"),
    ("requests", "Requests to the management node"),
]
_COUNTS = [
    ("active", "Messages ready to be received or locked"),
    ("deferred", "Deferred messages"),
    ("scheduled", "Scheduled messages"),
    ("size_bytes", "Bytes of all messages"),
]


class SubQueueCounts(NamedTuple):
    entity: str
    sub_queue: str
    counts: QueueCounts


class Family(NamedTuple):
    kind: type[CounterMetricFamily | GaugeMetricFamily]
    name: str
    help_text: str
    labels: Sequence[str]


AskForAll: TypeAlias = Callable[[Sequence[str], Sequence[StoreRecord]], Awaitable[bytes]]
"""For the sums over all processes: the names of the metrics that are wanted, if not all are, and all stores."""
Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""Values of labels, and what was counted."""


class NamespaceMetrics:
    def __init__(
        self,
        namespace: str,
        traffic: Traffic,
        stores: StoreRecords,
        entities: Entities,
        connections: Sized,
        operations: Mapping[Cause, int],
        of_all: AskForAll | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        """`of_all`: if several processes serve the namespace; `nodes`: of several machines each is scraped, so each shows what is its
        own."""
        self._nodes = nodes
        self._namespace = namespace
        self._traffic = traffic
        self._stores = stores
        self._entities = entities
        self._connections = connections
        self._operations = operations
        self._of_all = of_all
        self._scrapes: dict[frozenset[str], asyncio.Task[bytes]] = {}

    async def show(self, request: Request) -> Response:
        # Counters end in _total where they are shown, and not where they are named.
        wanted = frozenset(
            name.removesuffix("_total") for name in request.query_params.getlist(WANTED)[:WANTED_COUNT_MAX]
        )
        scrape = self._scrapes.get(wanted)
        if scrape is None:
            scrape = self._scrapes[wanted] = asyncio.create_task(self._scraped_everywhere(wanted))
            scrape.add_done_callback(lambda _: self._scrapes.pop(wanted))
        # A client that goes away must not take the scrape from the others.
        return Response(await asyncio.shield(scrape), headers={"content-type": CONTENT_TYPE})

    async def _scraped_everywhere(self, wanted: frozenset[str]) -> bytes:
        if self._nodes is not None:
            return await self.scraped(wanted, self._stores.own())
        stores = await self._stores.all()
        return await (self.scraped(wanted, stores) if self._of_all is None else self._of_all(sorted(wanted), stores))

    async def scraped(self, wanted: Collection[str], stores: Sequence[StoreRecord]) -> bytes:
        """Of this process, and of these stores."""
        pace, rows = Pace(), list[SubQueueCounts]()
        lost = {store["index"] for store in stores if store["condition"] != UP}
        # Entities may come and go between two steps.
        for each in list(self._with_messages()) if not wanted or any(QUEUE_METRIC in name for name in wanted) else ():
            rows += _sub_queues_of(*each, lost)
            await pace.rest()
        parts = list[bytes]()
        for family, samples in self._families(rows, stores):
            if wanted and family.name not in wanted:
                continue
            is_first = True
            for chunk in _chunks(samples):
                parts.append(_text(family, chunk, has_head=is_first))
                is_first = False
                await pace.rest()
            if is_first:
                parts.append(_text(family, [], has_head=True))
        parts += [_written(metric) for metric in self._histograms() if not wanted or metric.name in wanted]
        return b"".join(parts)

    def _histograms(self) -> Iterator[HistogramMetricFamily]:
        stopwatch = self._traffic.stopwatch
        for name, help_text, latencies in (
            ("twinbus_send_seconds", "From the arrival of a message to its acknowledgement", stopwatch.acknowledged),
            ("twinbus_time_in_queue_seconds", "From the enqueued time of a message to a delivery", stopwatch.waited),
        ):
            metric = HistogramMetricFamily(name, help_text, labels=("namespace",))
            metric.add_metric((self._namespace,), latencies.buckets(), latencies.total_s)
            yield metric

    def _families(
        self, rows: Sequence[SubQueueCounts], stores: Sequence[StoreRecord]
    ) -> Iterator[tuple[Family, Samples]]:
        yield from self._of_gateway()
        yield from self._of_entities()
        yield from self._of_queues(rows)
        if self._nodes is not None:
            yield from _of_node(self._namespace, self._nodes.figures())
        yield from self._of_receiving()
        yield self._of_placement()
        yield self._of_the_bill()
        yield (
            Family(GaugeMetricFamily, "twinbus_store_up", "Whether the messaging store works", ("namespace", "store")),
            [((self._namespace, f"{store['index']:02}"), float(store["condition"] == UP)) for store in stores],
        )
        yield (
            Family(
                GaugeMetricFamily,
                "twinbus_store_full",
                "Whether the messaging store takes no messages because its disk is nearly full",
                ("namespace", "store"),
            ),
            [((self._namespace, f"{store['index']:02}"), float(is_full(store))) for store in stores],
        )

    def _of_gateway(self) -> Iterator[tuple[Family, Samples]]:
        labels, values = ("namespace",), (self._namespace,)
        open_now = Family(GaugeMetricFamily, "twinbus_connections", "Open AMQP connections", labels)
        yield open_now, [(values, len(self._connections))]
        for name, help_text in [
            ("connections_opened", "AMQP connections opened"),
            ("tokens_accepted", "Tokens accepted on $cbs"),
            ("tokens_refused", "Tokens refused on $cbs"),
        ]:
            counter = Family(CounterMetricFamily, f"twinbus_{name}", help_text, labels)
            yield counter, [(values, getattr(self._traffic, name))]

    def _of_the_bill(self) -> tuple[Family, Samples]:
        text = "Operations in the operations log"
        return (
            Family(CounterMetricFamily, "twinbus_operations", text, ("namespace", "cause")),
            [((self._namespace, cause.value), count) for cause, count in self._operations.items()],
        )

    def _of_entities(self) -> Iterator[tuple[Family, Samples]]:
        known = list(self._traffic.entities.values())
        for name, help_text in _TRAFFIC:
            family = Family(CounterMetricFamily, f"twinbus_entity_{name}", help_text, ("namespace", "entity"))
            yield family, (((self._namespace, traffic.name), getattr(traffic, name)) for traffic in known)

    def _of_queues(self, rows: Sequence[SubQueueCounts]) -> Iterator[tuple[Family, Samples]]:
        labels = ("namespace", "entity", "sub_queue")
        for name, help_text in _COUNTS:
            yield (
                Family(GaugeMetricFamily, f"twinbus_queue_{name}", help_text, labels),
                (
                    ((self._namespace, entity, sub_queue), getattr(counts, name))
                    for entity, sub_queue, counts in rows
                    if not counts.is_unknown
                ),
            )
        yield (
            Family(GaugeMetricFamily, "twinbus_queue_limited", "Whether a fragment is unavailable", labels),
            (((self._namespace, entity, sub_queue), float(counts.is_limited)) for entity, sub_queue, counts in rows),
        )

    def _of_receiving(self) -> Iterator[tuple[Family, Samples]]:
        labels, text = ("namespace", "entity"), "Locks that ended before their message was settled"
        yield (
            Family(GaugeMetricFamily, "twinbus_entity_receivers", "Receivers that are attached", labels),
            self._counted(lambda queue: queue.receiver_count),
        )
        yield (
            Family(CounterMetricFamily, "twinbus_entity_locks_lost", text, labels),
            self._counted(lambda queue: sum(fragment.locks.lost_count for fragment in queue.fragments)),
        )

    def _counted(self, count: Callable[[MessageQueue], int]) -> Samples:
        """Only of entities that have something to tell: most have neither."""
        for path, entity in list(self._with_messages()):
            if found := count(entity.main):
                yield (self._namespace, path), found

    def _of_placement(self) -> tuple[Family, Samples]:
        text = "Messages without a key that were tried in another fragment than the one whose turn it was"
        entities: list[QueueEntity | TopicEntity] = [*self._entities.queues(), *self._entities.topics()]
        return (
            Family(CounterMetricFamily, "twinbus_entity_rerouted", text, ("namespace", "entity", "cause")),
            [
                ((self._namespace, entity.description.name, detour.value), entity.placement.detours[detour])
                for entity in entities
                if entity.settings.is_partitioned
                for detour in Detour
            ],
        )

    def _with_messages(self) -> Iterator[tuple[str, QueueEntity | SubscriptionEntity]]:
        for queue in self._entities.queues():
            yield queue.description.name, queue
        for topic in self._entities.topics():
            for subscription in topic.subscriptions.values():
                yield subscription_path(topic.description.name, subscription.description.name), subscription


def _sub_queues_of(
    path: str, entity: QueueEntity | SubscriptionEntity, lost: Collection[int]
) -> Iterator[SubQueueCounts]:
    for name, queue in (
        ("main", entity.main),
        ("dead_letter", entity.dead_letter),
        ("transfer_dead_letter", entity.transfer_dead_letter),
    ):
        counts = queue.counts()
        if lost and any(fragment.broker.index in lost for fragment in queue.fragments):
            counts = replace(counts, is_limited=True)
        yield SubQueueCounts(path, name, counts)


def _chunks(samples: Samples) -> Iterator[list[tuple[Sequence[str], float]]]:
    rest = iter(samples)
    while chunk := list(islice(rest, SAMPLES_TOGETHER)):
        yield chunk


def _text(family: Family, samples: Samples, *, has_head: bool) -> bytes:
    metric = family.kind(family.name, family.help_text, labels=family.labels)
    for values, value in samples:
        metric.add_metric(values, value)
    text = _written(metric)
    # The head is two lines: the help and the type.
    return text if has_head else text.split(b"\n", 2)[2]


def _written(metric: Metric) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(metric))
    return generate_latest(registry)


class _Once(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def _of_node(namespace: str, figures: NodeFigures) -> Iterator[tuple[Family, Samples]]:
    labels = ("namespace", "node")
    of_stores: tuple[tuple[str, str, Mapping[int, float]], ...] = (
        ("twinbus_store_epoch", "How often the messaging store has changed hands; shown by its owner", figures.epochs),
        ("twinbus_store_lease_seconds", "For how long its owner still trusts the lease", figures.trusted_s),
    )
    for name, help_text, by_store in of_stores:
        yield (
            Family(GaugeMetricFamily, name, help_text, (*labels, "store")),
            [((namespace, figures.node, f"{store:02}"), float(value)) for store, value in by_store.items()],
        )
    yield (
        Family(
            GaugeMetricFamily, "twinbus_node_round_trip_seconds", "Of a question to another node", (*labels, "peer")
        ),
        [((namespace, figures.node, peer), seconds) for peer, seconds in figures.round_trips_s.items()],
    )
    for name, help_text, value in (
        ("twinbus_node_takeovers", "Messaging stores that this node has taken", figures.takeovers),
        ("twinbus_node_moves", "Messaging stores that this node has handed over", figures.moves),
        ("twinbus_node_fenced", "Times that the others took this node for dead", figures.times_fenced),
        ("twinbus_node_sent_bytes", "Written to other nodes", figures.sent_bytes),
        ("twinbus_node_received_bytes", "Read from other nodes", figures.received_bytes),
    ):
        yield Family(CounterMetricFamily, name, help_text, labels), [((namespace, figures.node), float(value))]
