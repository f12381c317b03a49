"""Receivers on the primary, as an application has them. What they receive goes into the ledger and is completed.

Whatever ends a receiver, the next one takes its place: receiving stops with the primary and continues with it.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from twinbus.model.paths import subscription_path
from twinbus.rehearsal.entities import SESSIONS, SUBSCRIPTIONS, EntityKind, RehearsedEntity
from twinbus.rehearsal.interruption import WaitedThread
from twinbus.rehearsal.ledger import Arrival, Ledger

BATCH_MAX = 20
# Without prefetch the official client gives back what arrives between two receives, and gets it again at once: each time is
# a billed operation.
PREFETCH = 20
WAIT_S = 0.5
AGAIN_S = 0.3
RECEIVE_FAILURES = (ServiceBusError, AzureError, OSError, ValueError)

OpenReceiver = Callable[[], ServiceBusReceiver]


class Receivers:
    """A thread for every queue, subscription and message session, from `start` until `stop`."""

    def __init__(self, client: ServiceBusClient, entities: Iterable[RehearsedEntity], ledger: Ledger) -> None:
        self._ledger = ledger
        self._stopping = threading.Event()
        self._broken: list[BaseException] = []
        self._threads = [
            WaitedThread(target=self._guard, args=(path, make), name=f"receiver-{path}")
            for entity in entities
            for path, make in _openers(client, entity)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when all have ended."""
        self._stopping.set()
        for thread in self._threads:
            thread.wait_end()

    def check(self) -> None:
        """Raises an error that no receiver should raise, if there was one."""
        if self._broken:
            raise self._broken[0]

    def _guard(self, path: str, make: OpenReceiver) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._receive(path, make)
                except RECEIVE_FAILURES:
                    self._stopping.wait(AGAIN_S)
        except BaseException as broken:
            self._broken.append(broken)

    def _receive(self, path: str, make: OpenReceiver) -> None:
        with make() as receiver:
            while not self._stopping.is_set():
                for message in receiver.receive_messages(max_message_count=BATCH_MAX, max_wait_time=WAIT_S):
                    self._ledger.delivered(path, arrival(message))
                    receiver.complete_message(message)


def arrival(message: ServiceBusReceivedMessage) -> Arrival:
    return Arrival(
        message.message_id or "",
        message.sequence_number or 0,
        message.session_id,
        message.partition_key,
        b"".join(message.body),
    )


def _openers(client: ServiceBusClient, entity: RehearsedEntity) -> list[tuple[str, OpenReceiver]]:
    path = entity.path
    if entity.kind is EntityKind.TOPIC:
        subscription = partial(client.get_subscription_receiver, path, prefetch_count=PREFETCH)
        return [(subscription_path(path, name), partial(subscription, name)) for name in SUBSCRIPTIONS]
    queue = partial(client.get_queue_receiver, path, prefetch_count=PREFETCH)
    if entity.kind is EntityKind.SESSIONS:
        return [(path, partial(queue, session_id=session)) for session in SESSIONS]
    return [(path, queue)]
