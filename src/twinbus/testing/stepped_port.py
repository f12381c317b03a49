"""A store port without a thread: work waits in line until a test lets it happen.

As with the real one, order is kept, commits next to each other are joined, and after a failure nothing works until
the store has been opened again. Unlike it, the test says when each step happens and how it goes wrong.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from twinbus.errors import RequestRefused, StoreUnavailable
from twinbus.store.changes import Change
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.reads import Read, carry_out
from twinbus.testing.faulty_store import Fault

T = TypeVar("T")


class _Work(NamedTuple):
    changes: list[Change] | None  # None: a query
    read: Read[Any] | None
    done: Callable[[Any], None]


class SteppedPort:
    """`is_down` while the store is lost; `is_hung` while it answers nothing at all."""

    def __init__(self, store: MessagingStore) -> None:
        self.store = store
        self.is_down = False
        self.is_hung = False
        self.next_fault: Fault | None = None
        self.waiting_bytes, self.is_pressed, self.is_full = 0, False, False  # what a test says
        self.commit_count = 0
        self.failure_count = 0  # answers that leave open what was done
        self.query_count = 0
        self.unawaited_count = 0  # commits that nobody waits for
        self._inbox: deque[_Work] = deque()

    def __len__(self) -> int:
        return len(self._inbox)

    def commit(
        self, changes: list[Change], done: Callable[[StoreUnavailable | None], None], *, is_awaited: bool = True
    ) -> None:
        self.unawaited_count += not is_awaited
        self._inbox.append(_Work(changes, None, done))

    def query(self, read: Read[T], done: Callable[[T | StoreUnavailable], None]) -> None:
        self._inbox.append(_Work(None, read, done))

    def step(self, joined_max: int = 64) -> bool:
        """Do one query, or up to this many commits as one; false if there is nothing to do."""
        if not self._inbox or self.is_hung:
            return False
        works = [self._inbox.popleft()]
        while works[0].changes is not None and self._inbox and len(works) < joined_max:
            if self._inbox[0].changes is None:
                break
            works.append(self._inbox.popleft())
        try:
            answer = self._serve(works)
        except StoreUnavailable as error:
            self.is_down = True
            self.failure_count += not isinstance(error, RequestRefused) or len(works) > 1 or len(self._inbox) > 0
            answer = error
        for work in works:
            work.done(answer)
        return True

    def run(self, step_max: int = 100_000) -> int:
        """Work until nothing is left; returns how many steps that took."""
        steps = 0
        while self.step():
            steps += 1
            assert steps < step_max, "the port never comes to rest"
        return steps

    def reopen(self) -> None:
        self.is_down = False

    def _serve(self, works: list[_Work]) -> object:
        if self.is_down:
            raise StoreUnavailable("the store is down")
        if works[0].read is not None:
            self.query_count += 1
            return carry_out(works[0].read, self.store)
        fault, self.next_fault = self.next_fault, None
        if fault is Fault.REFUSE:
            raise RequestRefused("the store refused to write")
        if fault is Fault.FAIL_BEFORE:
            raise StoreUnavailable("the store failed before it wrote")
        self.commit_count += 1
        self.store.commit([change for work in works for change in work.changes or ()])
        if fault is Fault.LOSE_REPLY:
            raise StoreUnavailable("the store wrote and lost the reply")
        return None
