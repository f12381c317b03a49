"""What the thread of one messaging store does: requests in, blocking calls on the store, events out.

Batches form by themselves: what arrives while a sync runs is taken together when it ends, and adjacent commits are one call.
A query is never moved past a commit, so it sees every commit that was asked for before it. A store that hangs blocks its own
thread and nothing else.

A store that raises is closed at once, since whether the call was applied is unknown. `Lost` goes out before the failures that
follow from it, everything received before `loss_told` fails without touching the store, and the store is reopened after a
pause, again and again until it opens (`served_store` says why that order matters).

The thread ends in one of two ways: by the switch `stop`, after everything received before it was served, or by EOFError from
its line, when the namespace is gone and nobody is left to answer.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from twinbus.errors import StoreTaken, StoreUnavailable
from twinbus.server.stores.served_store import (
    Answer,
    Done,
    Event,
    Failed,
    Full,
    Lost,
    Opening,
    Pressed,
    Returned,
    StoreCondition,
)
from twinbus.store.messaging_store import MessagingStore
from twinbus.store.reads import Read, carry_out
from twinbus.store.room import RoomLeft

Store = TypeVar("Store", bound=MessagingStore)
Result = TypeVar("Result")
Part = TypeVar("Part")
"""What a commit consists of: changes, or changes that are already encoded."""

PARTS_PER_COMMIT_MAX = 4_096
EVENTS_TOGETHER_MAX = 16
REOPEN_PAUSE_S = 1.0
DAMAGED_PAUSE_S = 30.0
"""Longer, because each try reads the whole journal and cannot succeed before a person has repaired it."""
PRESSED_S = 0.01
"""How long a store that falls behind waits for requests before it looks whether it still does."""
MAKE_ROOM_S = {RoomLeft.NONE: 1.0, RoomLeft.LITTLE: 5.0}
"""How often a store makes some, and looks whether there is some again."""
IDLE_S = 20.0
"""How long nothing is asked of a store before it tidies up."""
IDLE_STEP_S = 0.5
"""How much later the next store does: most of them fall silent together."""

log = logging.getLogger(__name__)


class Commit(NamedTuple):
    parts: Sequence[Any]


class Query(NamedTuple):
    read: Read[Any]


class Unwritable(NamedTuple):
    """A commit that cannot be encoded. The store is lost as if it had raised itself, so that nothing asked for later is done
    before its broker has started again from what is durable."""

    reason: str


class Switch(NamedTuple):
    name: str
    arguments: Sequence[float] = ()


Request: TypeAlias = Commit | Query | Unwritable | Switch


class WorkerEnd(Protocol):
    """The store's end of the line to its `ServedStore`."""

    def receive(self, timeout_s: float | None) -> Sequence[Request]:
        """All requests that have arrived, waiting for at least one; none after the timeout."""
        ...

    def send(self, events: Sequence[Event]) -> None: ...


class _AckLost(StoreUnavailable):
    """The commit happened, and its answer is lost on purpose."""


class StoreWorker(Generic[Store, Part]):
    """Lives on the store's thread."""

    def __init__(
        self, index: int, open_store: Callable[[], Store], commit: Callable[[Store, list[Part]], None], line: WorkerEnd
    ) -> None:
        self._name = f"messaging store {index}"
        self._open_store = open_store
        self._commit = commit
        self._line = line
        self._store: Store | None = None
        self._condition = StoreCondition.OPENING
        self._fault = ""
        self._ahead: list[Request] = []  # received while the store was slow on purpose
        self._events: list[Event] = []
        self._is_wanted_up = False  # until the switch says so
        self._is_loss_told = True
        self._is_stopping = False
        self._reopen_at = 0.0
        self._rest_after_s = IDLE_S + index * IDLE_STEP_S
        self._idle_s: float | None = self._rest_after_s  # until the store may rest; None once it wants no more of it
        self._is_pressed = False
        self._room_left = RoomLeft.ENOUGH
        self._made_room_at = 0.0
        self._is_behind = False  # a long commit is applied in steps, between which others are served
        self._delay_s = 0.0
        self._acks_to_lose = 0

    def run(self) -> None:
        """Returns after `stop`."""
        while not self._is_stopping:
            if self._store is None and self._wait_to_open() == 0.0:
                self._open()
            requests, self._ahead = self._ahead, []
            requests = requests or self._receive(self._wait_s())
            if self._store is not None and self._room_left in MAKE_ROOM_S:
                self._make_room(self._store)
            elif requests or self._store is None or self._is_pressed or self._is_behind:
                self._idle_s = self._rest_after_s
            else:
                self._idle_s = self._rest_after_s if self._try(self._store, self._store.rest) else None
            self._serve(requests)
        if self._store is not None:
            self._close(self._store)

    def _wait_s(self) -> float | None:
        """How long to wait for requests; None: as long as there are none."""
        if self._store is None:
            return self._wait_to_open()
        if self._is_behind:
            return 0.0
        if self._is_pressed:
            return PRESSED_S
        return MAKE_ROOM_S.get(self._room_left, self._idle_s)

    def _make_room(self, store: Store) -> None:
        """However much is asked of it meanwhile."""
        self._idle_s = self._rest_after_s
        if time.monotonic() >= self._made_room_at + MAKE_ROOM_S[self._room_left]:
            self._made_room_at = time.monotonic()
            self._try(store, store.rest)

    def _receive(self, timeout_s: float | None) -> list[Request]:
        """Handles `slow` at once: queued behind everything that waits for a slow store, its end would come hours late."""
        requests: list[Request] = []
        for request in self._line.receive(timeout_s):
            if isinstance(request, Switch) and request.name == "slow":
                self._delay_s = request.arguments[0]
            else:
                requests.append(request)
        return requests

    def _wait_to_open(self) -> float | None:
        """How long until the store may be opened; None while it must stay closed.

        It stays closed while it is switched off, and until its broker knows of the loss: until then, requests that arrive
        were decided on the state that is lost.
        """
        if self._is_wanted_up and self._is_loss_told:
            return max(0.0, self._reopen_at - time.monotonic())
        return None

    def _open(self) -> None:
        self._events.append(Opening())
        self._send()
        try:
            self._store, returned = self._opened()
        except StoreTaken as fault:
            self._not_opened(str(fault), REOPEN_PAUSE_S, StoreCondition.TAKEN)
        except StoreUnavailable as fault:
            self._not_opened(str(fault), REOPEN_PAUSE_S if fault.is_transient else DAMAGED_PAUSE_S)
        except Exception as broken:  # a bug; requests that wait must still be answered
            log.exception("store_not_opened")
            self._not_opened(f"{self._name} cannot be opened: {broken!r}", REOPEN_PAUSE_S)
        else:
            self._condition, self._fault = StoreCondition.UP, ""
            self._events.append(returned)
            self._report_strain()
        self._send()

    def _opened(self) -> tuple[Store, Returned]:
        """The store, and what there is to say of it. One that cannot say it, since its database went away again, is not open."""
        store = self._open_store()
        try:
            return store, Returned([str(damage) for damage in store.damage()], store.kept_in(), store.epoch())
        except BaseException:
            self._close(store)
            raise

    def _not_opened(self, fault: str, pause_s: float, condition: StoreCondition = StoreCondition.LOST) -> None:
        self._reopen_at = time.monotonic() + pause_s
        if (condition, fault) != (self._condition, self._fault):
            # Also another reason than before: what has to be done may be something else.
            self._report_lost(condition, fault)

    def _serve(self, requests: Sequence[Request]) -> None:
        position = 0
        while position < len(requests):
            position = self._serve_run(requests, position)
            if len(self._events) >= EVENTS_TOGETHER_MAX:
                self._send()
        self._send()
        store = self._store
        self._is_behind = store is not None and bool(self._try(store, store.catch_up))
        self._report_strain()
        self._send()

    def _report_strain(self) -> None:
        store = self._store
        is_pressed = store is not None and store.is_pressed()
        if is_pressed is not self._is_pressed:
            self._is_pressed = is_pressed
            self._events.append(Pressed(is_pressed))
        was_full = self._room_left is RoomLeft.NONE
        self._room_left = RoomLeft.ENOUGH if store is None else store.room_left()
        is_full = self._room_left is RoomLeft.NONE
        if is_full is not was_full:
            self._events.append(Full(is_full))

    def _serve_run(self, requests: Sequence[Request], start: int) -> int:
        """Serve one switch or query, or a run of commits as one. Returns where the next run starts."""
        first = requests[start]
        if isinstance(first, Switch):
            getattr(self, f"_{first.name}")(*first.arguments)
            return start + 1
        end = start + 1
        if isinstance(first, Commit):
            count = len(first.parts)
            while end < len(requests) and isinstance(request := requests[end], Commit):
                count += len(request.parts)
                if count > PARTS_PER_COMMIT_MAX:
                    break
                end += 1
        if self._store is None:
            reason = self._fault or f"{self._name} is not open"
            self._events += [Failed(reason)] * (end - start)
        else:
            self._use(self._store, requests[start:end])
        return end

    def _use(self, store: Store, run: Sequence[Request]) -> None:
        if self._delay_s:
            self._linger()
        event = self._try(store, partial(self._call, store, run))
        self._events += [Failed(self._fault)] * len(run) if event is None else [event]

    def _try(self, store: Store, call: Callable[[], Result]) -> Result | None:
        """None if the call fails, and then the store is lost."""
        try:
            return call()
        except StoreUnavailable as fault:
            self._lose(store, str(fault))
            if isinstance(fault, _AckLost):
                # Nothing is wrong with the store itself.
                self._reopen_at = 0.0
        except Exception as broken:  # a bug: the store starts again from what is durable
            log.exception("store_broken")
            self._lose(store, f"{self._name} broke: {broken!r}")
        return None

    def _call(self, store: Store, run: Sequence[Request]) -> Event:
        first = run[0]
        if isinstance(first, Query):
            return Answer(carry_out(first.read, store))
        if isinstance(first, Unwritable):
            raise ValueError(f"a commit cannot be encoded: {first.reason}")
        parts = [part for request in run if isinstance(request, Commit) for part in request.parts]
        if parts:
            self._commit(store, parts)
            if self._acks_to_lose:
                self._acks_to_lose -= 1
                raise _AckLost(f"{self._name} lost the reply to a commit, on purpose")
        return Done(len(run))

    def _linger(self) -> None:
        """Be slow on purpose, until the delay is over or switched off."""
        since = time.monotonic()
        while self._delay_s and (left_s := since + self._delay_s - time.monotonic()) > 0.0:
            self._ahead += self._receive(left_s)

    def _lose(self, store: Store, fault: str) -> None:
        self._close(store)
        self._store = None
        self._reopen_at = time.monotonic() + REOPEN_PAUSE_S
        self._report_lost(StoreCondition.LOST, fault)

    def _report_lost(self, condition: StoreCondition, fault: str) -> None:
        self._condition, self._fault = condition, fault
        self._is_loss_told = False
        self._events.append(Lost(condition, fault, self._acks_to_lose))

    def _close(self, store: Store) -> None:
        try:
            store.close()
        except Exception as fault:  # what is durable stays so, and requests that wait must be answered
            log.warning("store_not_closed", extra={"fields": {"reason": str(fault) or repr(fault)}})

    def _send(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._line.send(events)

    # Switches

    def _down(self) -> None:
        self._is_wanted_up = False
        if self._store is not None:
            self._close(self._store)
            self._store = None
        self._report_lost(StoreCondition.DOWN, f"{self._name} is switched off")

    def _rest(self) -> None:
        """It will be closed soon: write what can be written before, while it still serves."""
        if self._store is not None:
            self._try(self._store, self._store.rest)

    def _release(self) -> None:
        """Another node of the namespace is to own it."""
        self._is_wanted_up = False
        if self._store is not None:
            self._close(self._store)
            self._store = None
        self._report_lost(StoreCondition.FOREIGN, f"{self._name} is owned by another node")

    def _up(self) -> None:
        self._is_wanted_up = True
        self._reopen_at = 0.0
        if self._store is None:
            # Whoever switched it on learns of it if it cannot be opened.
            self._condition = StoreCondition.OPENING

    def _recall(self) -> None:
        if self._store is not None:
            self._lose(self._store, f"{self._name} is owned by another process")

    def _lose_acks(self, count: float) -> None:
        self._acks_to_lose = int(count)

    def _loss_told(self) -> None:
        self._is_loss_told = True

    def _stop(self) -> None:
        self._is_stopping = True
