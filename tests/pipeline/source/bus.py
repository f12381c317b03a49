"""Queues with names that no other test has, messages in them, and readers of them."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.pipeline.source.access.connections import Detect
from twinbus.pipeline.source.access.entity_access import EntityAccess
from twinbus.pipeline.source.batch_reader import ServiceBusBatchReader
from twinbus.pipeline.source.live_entity import detected
from twinbus.pipeline.source.option_table import BATCH, STREAM
from twinbus.pipeline.source.options import SourceOptions
from twinbus.pipeline.source.rows.columns import NAMES
from twinbus.pipeline.source.stream_reader import ServiceBusStreamReader
from twinbus.testing.local_namespace import LocalNamespace

T = TypeVar("T")
NOW = 1_767_355_200_000


class Bus:
    def __init__(self, namespace: LocalNamespace) -> None:
        self.namespace = namespace

    def queue(self, **properties: Any) -> str:
        return self.namespace.create_queue(f"q-{uuid.uuid4().hex[:8]}", **properties)

    def send(self, path: str, bodies: Iterable[str], **properties: Any) -> None:
        """Their message ids are their bodies, or the ends of them."""
        payloads = [encode_message(body, message_id=body[-100:], **properties) for body in bodies]
        with BlockingNamespace.connect(self.namespace.connection_string) as client:
            assert not any(client.sender(path).send_batches(payloads))

    def spread(self, path: str, bodies: Iterable[str]) -> None:
        """Over the fragments of a partitioned entity: to each its own key."""
        payloads = [encode_message(body, message_id=body, partition_key=body) for body in bodies]
        with BlockingNamespace.connect(self.namespace.connection_string) as client:
            assert not any(client.sender(path).send_batches(payloads))

    def take(self, path: str, count: int) -> list[str]:
        """Receive and complete, as somebody else would."""
        with BlockingNamespace.connect(self.namespace.connection_string) as client:
            receiver = client.receiver(path, credit=count)
            messages = receiver.collect(count, 5)
            assert not any(receiver.complete(messages))
            receiver.close()
            return [bytes(message.body).decode() for message in messages]

    def defer(self, path: str, count: int) -> None:
        with BlockingNamespace.connect(self.namespace.connection_string) as client:
            receiver = client.receiver(path, credit=count)
            assert not any(receiver.defer(receiver.collect(count, 5)))
            receiver.close()

    def options(self, path: str, used_by: str, **given: str) -> SourceOptions:
        named = {"connectionString": self.namespace.connection_string, "minPollInterval": "0", **given}
        if used_by == BATCH:
            del named["minPollInterval"]
        if not {"queues", "topic"} & named.keys():
            named["queue"] = path
        return SourceOptions.from_options(named, used_by)

    def stream(self, path: str, detect: Detect = detected, **given: str) -> ServiceBusStreamReader:
        return ServiceBusStreamReader(self.options(path, STREAM, **given), NAMES, detect)

    def batch(self, path: str = "", now: int = NOW, **given: str) -> ServiceBusBatchReader:
        return ServiceBusBatchReader(self.options(path, BATCH, **given), NAMES, now)

    def ask(self, path: str, work: Callable[[EntityAccess], Coroutine[Any, Any, T]], detect: Detect = detected) -> T:
        async def run() -> T:
            async with await Namespace.connect(self.namespace.connection_string) as namespace:
                return await work(await detect(namespace, path))

        return asyncio.run(run())

    def counts(self, path: str) -> tuple[int, int]:
        """Messages that are active, and those that are deferred."""
        heads = self.ask(path, lambda access: access.heads())
        return sum(head.waiting for head in heads), sum(head.deferred or 0 for head in heads)


def rows(reader: ServiceBusBatchReader | ServiceBusStreamReader, partitions: Sequence[Any]) -> list[dict[str, Any]]:
    return [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]


def bodies(found: Iterable[dict[str, Any]]) -> list[str]:
    return [row["body"].decode() for row in found]


def names(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]
