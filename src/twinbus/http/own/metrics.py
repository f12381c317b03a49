"""Prometheus metrics of a namespace, made from its counters and counts at the moment somebody asks.

Nothing on the way of a message knows of this module.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twinbus.broker.replies import QueueCounts
from twinbus.gateway.namespace_view import Traffic
from twinbus.meter.operation import Cause
from twinbus.server.stores.served_store import ServedStore, StoreCondition

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
        stores: Sequence[ServedStore],
        counts: Callable[[], Iterable[SubQueueCounts]],
        connection_count: Callable[[], int],
        operations: Mapping[Cause, int],
    ) -> None:
        self._namespace = namespace
        self._traffic = traffic
        self._stores = stores
        self._counts = counts
        self._connection_count = connection_count
        self._operations = operations
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        yield from self._of_gateway()
        yield from self._of_entities()
        yield from self._of_queues()
        yield self._of_the_bill()
        up = GaugeMetricFamily("twinbus_store_up", "Whether the messaging store works", labels=["namespace", "store"])
        for store in self._stores:
            up.add_metric([self._namespace, f"{store.index:02}"], float(store.condition is StoreCondition.UP))
        yield up

    def _of_gateway(self) -> Iterator[Metric]:
        labels, values = ["namespace"], [self._namespace]
        open_now = GaugeMetricFamily("twinbus_connections", "Open AMQP connections", labels=labels)
        open_now.add_metric(values, self._connection_count())
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
        rows = list(self._counts())
        for name, help_text in _COUNTS:
            family = GaugeMetricFamily(f"twinbus_queue_{name}", help_text, labels=labels)
            for entity, sub_queue, counts in rows:
                family.add_metric([self._namespace, entity, sub_queue], getattr(counts, name))
            yield family
        limited = GaugeMetricFamily("twinbus_queue_limited", "Whether a fragment is unavailable", labels=labels)
        for entity, sub_queue, counts in rows:
            limited.add_metric([self._namespace, entity, sub_queue], float(counts.is_limited))
        yield limited
