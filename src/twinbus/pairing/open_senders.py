"""The senders of a pair that somebody still holds: to watch their deadlines, and to close them with the pair."""

import threading
import weakref
from typing import Generic, TypeVar

Sender = TypeVar("Sender")


class OpenSenders(Generic[Sender]):
    """Any thread may add one while another looks at all."""

    def __init__(self) -> None:
        self._senders: weakref.WeakSet[Sender] = weakref.WeakSet()
        self._lock = threading.Lock()

    def add(self, sender: Sender) -> None:
        with self._lock:
            self._senders.add(sender)

    def all(self) -> list[Sender]:
        with self._lock:
            return list(self._senders)
