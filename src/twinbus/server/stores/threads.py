"""The messaging stores of a namespace on threads of its own process, for tests and embedded namespaces."""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from twinbus.server.stores.leases import held_for_good
from twinbus.server.stores.served_store import STOP_WAIT_S, Event, OnLost, OnReturned, ServedStore
from twinbus.server.stores.worker import Commit, Query, Request, StoreWorker, Switch
from twinbus.store.changes import Change, contents_size
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.reads import Read

OpenStore = Callable[[Path], MessagingStore]


class ThreadLine:
    """Both ends of a line. `to_loop` calls a function on the loop thread from any other thread."""

    def __init__(self, to_loop: Callable[..., object], told: Callable[[Sequence[Event]], None]) -> None:
        self._to_loop = to_loop
        self._told = told
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()

    def commit(self, changes: list[Change], /, *, is_awaited: bool = True) -> int:
        self._requests.put(Commit(changes))
        return contents_size(changes)

    def query(self, read: Read[Any], /) -> None:
        self._requests.put(Query(read))

    def switch(self, name: str, /, *arguments: float) -> None:
        self._requests.put(Switch(name, arguments))

    def receive(self, timeout_s: float | None) -> list[Request]:
        taken: list[Request] = []
        try:
            taken.append(self._requests.get(timeout=timeout_s))
            while True:
                taken.append(self._requests.get_nowait())
        except queue.Empty:
            return taken

    def send(self, events: Sequence[Event]) -> None:
        try:
            self._to_loop(self._told, events)
        except RuntimeError:
            # The loop is closed: the process ends, and nobody waits for these any more.
            return


class StoreThreads:
    def __init__(
        self,
        paths: Sequence[Path],
        open_store: OpenStore,
        loop: asyncio.AbstractEventLoop,
        on_lost: OnLost,
        on_returned: OnReturned,
    ) -> None:
        self.stores = [ServedStore(index, on_lost, on_returned) for index in range(len(paths))]
        self.leases = held_for_good(len(paths))
        self._threads = []
        for store, path in zip(self.stores, paths, strict=True):
            line = ThreadLine(loop.call_soon_threadsafe, store.told)
            store.connect(line, loop.call_soon)
            worker = StoreWorker(store.index, partial(open_store, path), commit_changes, line)
            name = f"store-{store.index:02}"
            self._threads.append(threading.Thread(target=worker.run, name=name, daemon=True))

    async def start(self) -> None:
        for thread in self._threads:
            thread.start()

    async def stop(self) -> None:
        self.abandon()
        await asyncio.to_thread(self._join)

    def abandon(self) -> None:
        for store in self.stores:
            store.stop()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(STOP_WAIT_S)


def commit_changes(store: MessagingStore, changes: list[Change]) -> None:
    store.commit(changes)
