"""One OS thread for each messaging store: blocking calls go in from the event loop, results come back to it.

    loop thread                         store thread
    commit / query  --append-->  inbox --take all--> join adjacent commits, one store call for each run
    done, done, ... <-- one call_soon_threadsafe for everything that was taken --'

Batches form by themselves: what arrives while the previous sync runs is taken together when it ends. A store that
hangs holds up its own thread and nobody else. A store that raises is closed at once, everything that waits for it
fails, and it is opened anew after a pause, for as long as it takes.

`down` and `up` are the fault switch of `twinbus store`; `slow` makes every call take longer, and `lose_acks` lets the
next commits happen and fail all the same, as when the reply to a commit gets lost.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from twinbus.errors import StoreUnavailable
from twinbus.store.changes import Change
from twinbus.store.messaging_store import MessagingStore

T = TypeVar("T")

log = logging.getLogger(__name__)

CHANGES_PER_COMMIT_MAX = 4_096
INBOX_MAX = 65_536
REOPEN_PAUSE_S = 1.0
SLOW_S_MAX = 60.0
LOST_ACKS_MAX = 1_000

Done = Callable[[Any], None]
ToLoop = Callable[..., object]


class StoreCondition(Enum):
    OPENING = "opening"
    UP = "up"
    LOST = "lost"  # failed by itself; it is being opened anew
    DOWN = "down"  # switched off


class _AckLost(StoreUnavailable):
    """The commit happened and nobody is told so."""


class _Commit(NamedTuple):
    changes: Sequence[Change]
    done: Done


class _Query(NamedTuple):
    read: Callable[[MessagingStore], Any]
    done: Done


class StoreThread:
    """The store port of one message broker. Every method but the thread's own is called on the loop thread."""

    def __init__(
        self,
        index: int,
        open_store: Callable[[], MessagingStore],
        to_loop: ToLoop,
        *,
        on_lost: Callable[[StoreUnavailable], None],
        on_returned: Callable[[], None],
    ) -> None:
        self.index = index
        self.condition = StoreCondition.OPENING
        self.fault = ""  # what the store said when it was lost
        self._open_store = open_store
        self._to_loop = to_loop
        self._on_lost = on_lost
        self._on_returned = on_returned
        self._inbox: deque[_Commit | _Query] = deque()
        self._wake = threading.Condition()
        self._is_wanted_up = True
        self._is_stopping = False
        self.acks_to_lose = 0
        self._delay_s = 0.0
        self._reopen_at = 0.0
        self._is_loss_told = True
        self._thread = threading.Thread(target=self._run, name=f"store-{index:02}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def commit(self, changes: list[Change], done: Callable[[StoreUnavailable | None], None]) -> None:
        """Durable when `done(None)` is called. Order is kept between all commits and queries."""
        self._put(_Commit(changes, done))

    def query(self, read: Callable[[MessagingStore], T], done: Callable[[T | StoreUnavailable], None]) -> None:
        self._put(_Query(read, done))

    def _put(self, request: _Commit | _Query) -> None:
        if len(self._inbox) >= INBOX_MAX:
            # Only a store that hangs gets here: what it cannot take any more fails as if it were lost.
            error = StoreUnavailable(f"messaging store {self.index} has {INBOX_MAX} requests waiting")
            self._to_loop(request.done, error)
            return
        with self._wake:
            self._inbox.append(request)
            self._wake.notify()

    def down(self) -> None:
        """Switch the store off: it is closed, and everything asked of it fails until `up`."""
        self._switch(is_wanted_up=False)

    def up(self) -> None:
        self._switch(is_wanted_up=True)

    def slow(self, delay_s: float) -> None:
        """Make every call take this much longer; 0 ends it."""
        assert 0.0 <= delay_s <= SLOW_S_MAX
        self._delay_s = delay_s

    def lose_acks(self, count: int) -> None:
        """Let the next commits happen and answer them as failed, and everything after each as the store's loss."""
        assert 0 <= count <= LOST_ACKS_MAX
        self.acks_to_lose = count

    @property
    def delay_s(self) -> float:
        return self._delay_s

    def stop(self) -> None:
        """Finish what is waiting and close the store. `join` tells when that is done."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _switch(self, *, is_wanted_up: bool) -> None:
        with self._wake:
            self._is_wanted_up = is_wanted_up
            self._reopen_at = 0.0
            self._wake.notify()

    def _tell_loss(self, error: StoreUnavailable) -> None:
        self._on_lost(error)
        with self._wake:
            self._is_loss_told = True
            self._wake.notify()

    # Everything below runs on the store's own thread.

    def _run(self) -> None:
        store: MessagingStore | None = None
        while True:
            if store is None and self._may_open():
                store = self._open()
            requests = self._take(is_open=store is not None)
            if store is not None and not self._is_wanted_up:
                self._close(store)
                store = None
                self._report_lost(StoreCondition.DOWN, f"messaging store {self.index} is switched off")
            if store is None:
                self._refuse(requests)
            elif requests and not self._serve(store, requests):
                store = None
            if self._is_stopping and not self._inbox:
                if store is not None:
                    self._close(store)
                return

    def _may_open(self) -> bool:
        # Not before the broker knows of the loss: what it asked until then was meant for the store that is gone.
        return self._is_wanted_up and self._is_loss_told and time.monotonic() >= self._reopen_at

    def _open(self) -> MessagingStore | None:
        try:
            store = self._open_store()
        except StoreUnavailable as fault:
            self._reopen_at = time.monotonic() + REOPEN_PAUSE_S
            if self.condition is StoreCondition.OPENING:
                self._report_lost(StoreCondition.LOST, str(fault))
            self.condition, self.fault = StoreCondition.LOST, str(fault)
            return None
        self.condition, self.fault = StoreCondition.UP, ""
        self._call_loop(self._on_returned)
        return store

    def _take(self, *, is_open: bool) -> list[_Commit | _Query]:
        """Everything that waits. Sleeps while there is nothing to do; wakes by itself to try a lost store again."""
        with self._wake:
            is_settled = is_open == self._is_wanted_up
            if not self._inbox and is_settled and not self._is_stopping:
                self._wake.wait()
            elif not self._inbox and not is_open and not self._is_stopping:
                self._wake.wait(REOPEN_PAUSE_S)
            requests = list(self._inbox)
            self._inbox.clear()
        return requests

    def _serve(self, store: MessagingStore, requests: list[_Commit | _Query]) -> bool:
        """Answer them all; False if the store failed on the way and was closed."""
        answers: list[tuple[Done, Any]] = []
        position = 0
        try:
            while position < len(requests):
                position = self._serve_run(store, requests, position, answers)
        except StoreUnavailable as fault:
            self._lose(store, str(fault), requests, answers)
            if isinstance(fault, _AckLost):
                # Nothing is wrong with the store itself.
                self._reopen_at = 0.0
            return False
        except Exception as broken:  # a broken invariant ends this store's run; it starts anew from what is durable
            log.exception("store_broken index=%d", self.index)
            self._lose(store, f"messaging store {self.index} broke: {broken!r}", requests, answers)
            return False
        self._call_loop(_answer, answers)
        return True

    def _serve_run(
        self, store: MessagingStore, requests: list[_Commit | _Query], start: int, answers: list[tuple[Done, Any]]
    ) -> int:
        """Serve one query, or all commits up to the next query as one. Returns where the next run starts."""
        if self._delay_s:
            time.sleep(self._delay_s)
        first = requests[start]
        if isinstance(first, _Query):
            answers.append((first.done, first.read(store)))
            return start + 1
        changes: list[Change] = []
        end = start
        while end < len(requests) and isinstance(request := requests[end], _Commit):
            if changes and len(changes) + len(request.changes) > CHANGES_PER_COMMIT_MAX:
                break
            changes += request.changes
            end += 1
        if changes:
            store.commit(changes)
            if self.acks_to_lose:
                self.acks_to_lose -= 1
                raise _AckLost(f"messaging store {self.index} lost the reply to a commit, on purpose")
        answers += [(request.done, None) for request in requests[start:end]]
        return end

    def _lose(
        self, store: MessagingStore, fault: str, requests: list[_Commit | _Query], answers: list[tuple[Done, Any]]
    ) -> None:
        self._close(store)
        self._reopen_at = time.monotonic() + REOPEN_PAUSE_S
        # What was done before the fault is answered before the loss is told, as it happened.
        if answers:
            self._call_loop(_answer, answers)
        self._report_lost(StoreCondition.LOST, fault)
        self._refuse(requests[len(answers) :])

    def _refuse(self, requests: list[_Commit | _Query]) -> None:
        if requests:
            error = StoreUnavailable(self.fault or f"messaging store {self.index} is not open")
            self._call_loop(_answer, [(request.done, error) for request in requests])

    def _report_lost(self, condition: StoreCondition, fault: str) -> None:
        self.condition, self.fault = condition, fault
        self._is_loss_told = False
        self._call_loop(self._tell_loss, StoreUnavailable(fault))

    def _close(self, store: MessagingStore) -> None:
        try:
            store.close()
        except StoreUnavailable as fault:
            self.fault = str(fault)

    def _call_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._to_loop(function, *arguments)
        except RuntimeError:
            # The loop is closed: the process ends and nobody waits for this answer any more.
            return


def _answer(answers: Sequence[tuple[Done, Any]]) -> None:
    for done, result in answers:
        try:
            done(result)
        except Exception:  # a broken invariant of one who waits must not cost the others their answers
            log.exception("answer_broken")
