"""What clients of a namespace saw, kept by themselves, and the rules it has to obey.

Every client talks to one process with the official SDK, notes the moment before it asks and the moment it is answered, and tries
again whatever happens. Nothing here is read from twinbus or from its database.
"""

import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

PAUSE_S = 0.2
BATCH = 5


class Delivery(NamedTuple):
    number: int  # of a sent message there may be two: a message without a key goes elsewhere if a store does not answer
    process: int
    asked_at: float  # nothing can have been handed over before
    came_at: float


@dataclass
class Ledger:
    tried: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    deliveries: dict[str, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    completed_at: dict[tuple[str, int], float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    sent_last_at: float = 0.0

    @property
    def missing(self) -> set[str]:
        with self.lock:
            return self.acknowledged - self.deliveries.keys()

    def check(self, takeovers_max: int) -> None:
        assert not self.missing, f"acknowledged and lost: {sorted(self.missing)}"
        unknown = self.deliveries.keys() - self.tried
        assert not unknown, f"delivered and never sent: {sorted(unknown)}"
        for (body, number), completed_at in self.completed_at.items():
            again = [each for each in self.deliveries[body] if each.number == number and each.asked_at > completed_at]
            assert not again, f"{body} came again after it was completed: {again}"
        assert len(self.turns()) - 1 <= takeovers_max, f"two owners handed over at a time: {self.turns()}"

    def turns(self) -> list[Delivery]:
        """The first delivery of each time that a process handed over and no other did.

        Two that do so at the same time take turns with every message. What was asked for before the other one began was handed
        over in time, and read late.
        """
        turns: list[Delivery] = []
        for each in sorted((each for some in self.deliveries.values() for each in some), key=lambda each: each.came_at):
            is_late = turns and each.asked_at < turns[-1].came_at
            if not turns or (turns[-1].process != each.process and not is_late):
                turns.append(each)
        return turns


class Clients:
    """A sender and a receiver for each process; `connection_strings` by process."""

    def __init__(self, connection_strings: list[str], queue: str, prefix: str) -> None:
        self.ledger = Ledger()
        self._queue = queue
        self._prefix = prefix
        self._numbers = count()
        self._sends, self._is_over = threading.Event(), threading.Event()
        self._sends.set()
        self._senders, self._receivers = (
            [
                threading.Thread(target=work, args=(process, connection_string), daemon=True)
                for process, connection_string in enumerate(connection_strings)
            ]
            for work in (self._send, self._receive)
        )
        for thread in (*self._senders, *self._receivers):
            thread.start()

    def stop_sending(self) -> None:
        """Nothing is acknowledged any more when it returns, so that what is missing then can only become less."""
        self._sends.clear()
        for thread in self._senders:
            thread.join()

    def stop(self) -> None:
        self._is_over.set()
        self.stop_sending()
        for thread in self._receivers:
            thread.join(60)

    def _send(self, _: int, connection_string: str) -> None:
        while self._sends.is_set():
            with (
                suppress(ServiceBusError, ValueError, OSError),
                _client(connection_string) as client,
                client.get_queue_sender(self._queue) as sender,
            ):
                while self._sends.is_set():
                    bodies = [f"{self._prefix}-{next(self._numbers)}" for _ in range(BATCH)]
                    with self.ledger.lock:
                        self.ledger.tried.update(bodies)
                    sender.send_messages([ServiceBusMessage(body) for body in bodies], timeout=5)
                    with self.ledger.lock:
                        self.ledger.acknowledged.update(bodies)
                        self.ledger.sent_last_at = time.monotonic()
                    self._is_over.wait(0.02)
            self._is_over.wait(PAUSE_S)

    def _receive(self, process: int, connection_string: str) -> None:
        while not self._is_over.is_set():
            with (
                suppress(ServiceBusError, ValueError, OSError),
                _client(connection_string) as client,
                client.get_queue_receiver(self._queue) as receiver,
            ):
                while not self._is_over.is_set():
                    asked_at = time.monotonic()
                    messages = receiver.receive_messages(20, max_wait_time=1)
                    came_at = time.monotonic()
                    with self.ledger.lock:
                        for message in messages:
                            delivery = Delivery(message.sequence_number or 0, process, asked_at, came_at)
                            self.ledger.deliveries[str(message)].append(delivery)
                    for message in messages:
                        receiver.complete_message(message)
                        with self.ledger.lock:
                            self.ledger.completed_at.setdefault(
                                (str(message), message.sequence_number or 0), time.monotonic()
                            )
            self._is_over.wait(PAUSE_S)


def _client(connection_string: str) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(connection_string, retry_total=0)
