"""GET /metrics: Prometheus metrics of a namespace, computed from its counters and counts when they are scraped.

Nothing on the way of a message knows of this module.
"""

from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.placement import Detour
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.broker.replies import QueueCounts
from twinbus.gateway.namespace_view import Traffic
from twinbus.http.own.health import StoreHealth
from twinbus.meter.operation import Cause
from twinbus.model.paths import subscription_path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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


class NamespaceMetrics(Collector):
    def __init__(
        self,
        namespace: str,
        traffic: Traffic,
        stores: Sequence[StoreHealth],
        entities: Entities,
        connections: Sized,
        operations: Mapping[Cause, int],
    ) -> None:
        self._namespace = namespace
        self._traffic = traffic
        self._stores = stores
        self._entities = entities
        self._connections = connections
        self._operations = operations
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    async def show(self, _: Request) -> Response:
        return Response(generate_latest(self._registry), headers={"content-type": CONTENT_TYPE})

    def collect(self) -> Iterator[Metric]:
        yield from self._of_gateway()
        yield from self._of_entities()
        yield from self._of_queues()
        yield self._of_placement()
        yield self._of_the_bill()
        up = GaugeMetricFamily("twinbus_store_up", "Whether the messaging store works", labels=["namespace", "store"])
        for store in self._stores:
            up.add_metric([self._namespace, f"{store.index:02}"], float(store.is_up))
        yield up

    def _of_gateway(self) -> Iterator[Metric]:
        labels, values = ["namespace"], [self._namespace]
        open_now = GaugeMetricFamily("twinbus_connections", "Open AMQP connections", labels=labels)
        open_now.add_metric(values, len(self._connections))
        yield open_now
        for name, help_text in [
            ("connections_opened", "AMQP connections opened"),
            ("tokens_accepted", "Tokens accepted on $cbs"),
            ("tokens_refused", "Tokens refused on $cbs"),
        ]:
            counter = CounterMetricFamily(f"twinbus_{name}", help_text, labels=labels)
            counter.add_metric(values, getattr(self._traffic, name))
            yield counter

    def _of_the_bill(self) -> Metric:
        family = CounterMetricFamily(
            "twinbus_operations", "Operations in the operations log", labels=["namespace", "cause"]
        )
        for cause, count in self._operations.items():
            family.add_metric([self._namespace, cause.value], count)
        return family

    def _of_entities(self) -> Iterator[Metric]:
        for name, help_text in _TRAFFIC:
            family = CounterMetricFamily(f"twinbus_entity_{name}", help_text, labels=["namespace", "entity"])
            for entity, traffic in self._traffic.entities.items():
                family.add_metric([self._namespace, entity], getattr(traffic, name))
            yield family

    def _of_queues(self) -> Iterator[Metric]:
        labels = ["namespace", "entity", "sub_queue"]
        rows = list(self._sub_queues())
        for name, help_text in _COUNTS:
            family = GaugeMetricFamily(f"twinbus_queue_{name}", help_text, labels=labels)
            for entity, sub_queue, counts in rows:
                if not counts.is_unknown:
                    family.add_metric([self._namespace, entity, sub_queue], getattr(counts, name))
            yield family
        limited = GaugeMetricFamily("twinbus_queue_limited", "Whether a fragment is unavailable", labels=labels)
        for entity, sub_queue, counts in rows:
            limited.add_metric([self._namespace, entity, sub_queue], float(counts.is_limited))
        yield limited

    def _of_placement(self) -> Metric:
        text = "Messages without a key that were tried in another fragment than the one whose turn it was"
        family = CounterMetricFamily("twinbus_entity_rerouted", text, labels=["namespace", "entity", "cause"])
        entities: list[QueueEntity | TopicEntity] = [*self._entities.queues(), *self._entities.topics()]
        for entity in entities:
            if entity.settings.is_partitioned:
                for detour in Detour:
                    labels = [self._namespace, entity.description.name, detour.value]
                    family.add_metric(labels, entity.placement.detours[detour])
        return family

    def _sub_queues(self) -> Iterator[SubQueueCounts]:
        for queue in self._entities.queues():
            yield from _sub_queues_of(queue.description.name, queue)
        for topic in self._entities.topics():
            for subscription in topic.subscriptions.values():
                path = subscription_path(topic.description.name, subscription.description.name)
                yield from _sub_queues_of(path, subscription)


def _sub_queues_of(path: str, entity: QueueEntity | SubscriptionEntity) -> Iterator[SubQueueCounts]:
    yield SubQueueCounts(path, "main", entity.main.counts())
    yield SubQueueCounts(path, "dead_letter", entity.dead_letter.counts())
    yield SubQueueCounts(path, "transfer_dead_letter", entity.transfer_dead_letter.counts())
