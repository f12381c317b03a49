"""A messaging store as the rest of the server sees it, wherever it runs: the port of its message broker, and switches.

    loop thread                                        the store's thread, here or in another process (`worker`)
    commit, query, switch --requests, in order-->      all that waits is taken together
    done, done, ...       <--events, in the same order--'

Order. Answers do not name their request: each belongs to the oldest request without an answer. This holds because a line
keeps order both ways, one thread serves it, and every commit and query gets exactly one answer, whether it succeeds or not;
switches get none. Adjacent commits are joined into one call of the store, which is whole or nothing, and `Done` says how many
requests it answers. A request that is dropped, or answered twice, shifts every later answer to the wrong caller.

After a failure. A failed commit may have been applied or not: the sync may have failed after the write, or the answer may be
lost. So nothing may build on it: the store is closed, and everything that was asked of it fails until its broker has forgotten
its state and loads again from what is durable. Two rules make that safe:

  * `Lost` comes before the failures it causes, so the broker has left its epoch when their `done` is called.
  * The store is opened again only after `loss_told`, which stands behind everything that was asked in the old epoch. Without
    it, a commit that was decided on top of the lost state could reach the store that has just been opened.

If the line itself goes (`disconnect`), the same happens here: the loss first, then the failure of everything that waits.

Switches break a store on purpose: `down` and `up` are those of `twinbus store`; `slow` makes every call take longer, and
`lose_acks` lets the next commits happen and still fail, as when the reply to a commit is lost.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from twinbus.broker.store_port import ALWAYS_HELD, StoreLease
from twinbus.broker.telling import tell
from twinbus.errors import ArgumentError, RequestRefused, StoreUnavailable
from twinbus.store.changes import Change
from twinbus.store.medium import kept_in_database
from twinbus.store.reads import Read

T = TypeVar("T")
log = logging.getLogger(__name__)

REQUESTS_MAX = 65_536
BYTES_MAX = 256 << 20
"""Limits of what may wait for one store, beside the largest commit of all: the copies of one large message for the
subscriptions of its topic have more bytes than this. Brokers refuse messages long before."""
STOP_WAIT_S = 30.0
SLOW_S_MAX = 60.0
LOST_ACKS_MAX = 1_000
SILENT_FAULT = "its database does not renew the lease: check the server and its synchronous standby"
FULL_FAULT = "its disk is nearly full: it takes no messages until some are received or space is freed"


class StoreCondition(Enum):
    OPENING = "opening"
    UP = "up"
    LOST = "lost"  # failed by itself; it is being reopened
    DOWN = "down"  # switched off; of several machines none owns it then
    TAKEN = "taken"  # another process owns it
    FOREIGN = "foreign"  # another node of the namespace owns it
    SILENT = "silent"  # its database does not renew the lease, so nothing is handed over; only ever reported


class Done(NamedTuple):
    """This many commits are durable."""

    commits: int


class Answer(NamedTuple):
    """The result of a query."""

    result: Any


class Failed(NamedTuple):
    """One commit or query failed."""

    reason: str


class Lost(NamedTuple):
    """The store is closed. Everything asked before `loss_told` fails; then it may be opened again."""

    condition: StoreCondition
    fault: str
    acks_to_lose: int


class Opening(NamedTuple):
    """The store is being opened from now on: what comes of it is told when that is known, and a disk that hangs says nothing."""


class Returned(NamedTuple):
    """The store is open. `set_aside`: what it found damaged and serves without, each with its file and place."""

    set_aside: Sequence[str] = ()
    kept_in: str = ""
    epoch: int = 0


class Pressed(NamedTuple):
    """The store has begun, or ceased, to fall behind (`MessagingStore.is_pressed`)."""

    is_pressed: bool


class Full(NamedTuple):
    """The store has no room for more messages any more, or has some again (`RoomLeft.NONE`)."""

    is_full: bool


Event: TypeAlias = Done | Answer | Failed | Lost | Opening | Returned | Pressed | Full


class Line(Protocol):
    """The way to the store's thread. Requests arrive in order, or not at all if the thread is gone."""

    def commit(self, changes: list[Change], /, *, is_awaited: bool = True) -> int:
        """Returns how many bytes wait because of them. `is_awaited`: they have to arrive soon."""
        ...

    def query(self, read: Read[Any], /) -> None: ...

    def switch(self, name: str, /, *arguments: float) -> None: ...


OnLost: TypeAlias = Callable[[int, StoreUnavailable], None]
"""The store with this index is lost: called before the requests that it did not finish fail."""
OnReturned: TypeAlias = Callable[[int], None]


class ServedStore:
    """Implements `StorePort`. Lives on the loop thread."""

    def __init__(self, index: int, on_lost: OnLost, on_returned: OnReturned) -> None:
        self.index = index
        self.condition = StoreCondition.OPENING
        self.lease: StoreLease = ALWAYS_HELD
        self.fault = ""  # why the store was lost
        self.set_aside: Sequence[str] = ()  # what it found damaged, as it was when it was opened
        self.kept_in = ""  # where, and whether another machine has it too
        self.epoch = 0  # of its owner, as it was when it was opened
        self.is_own = True
        """Whether this process is to own it: of a store that any of several machines may own, one does."""
        self.process = ""  # as which it is owned while it is open
        self.location = ""  # the folder or database that it is in, with others
        self._is_tried = False  # its thread has begun to open it
        self.delay_s = 0.0
        self.acks_to_lose = 0
        self._on_lost = on_lost
        self._on_returned = on_returned
        self.is_wanted_up = True
        """Nobody has switched it off. Of a store that any of several machines may own, the register says so."""
        self._line: Line | None = None
        self._waiting: deque[tuple[Callable[[Any], None], int]] = deque()
        self.waiting_bytes = 0
        self._largest_commit = 0  # since nothing waited
        self._later: Callable[..., object] | None = None
        self._is_overrun = False  # it refused a request, and refuses all until nothing waits any more
        self.is_pressed = False
        self.is_full = False
        self.on_progress: Callable[[ServedStore, int], None] = lambda *_: None
        """Called when something was answered, with the bytes that were written for it."""

    def connect(self, line: Line, later: Callable[..., object]) -> None:
        """Use this line from now on, and open the store behind it if it should be up. `later` is the loop's `call_soon`."""
        self._line, self._later = line, later
        line.switch("release" if not self.is_own else "up" if self.is_wanted_up else "down")
        if self.delay_s:
            line.switch("slow", self.delay_s)
        if self.acks_to_lose:
            line.switch("lose_acks", self.acks_to_lose)

    def disconnect(self, reason: str) -> None:
        """The line is gone, and with it the store's thread."""
        self._line, self._is_tried = None, False
        wanted = StoreCondition.LOST if self.is_wanted_up else StoreCondition.DOWN
        self._lose(wanted if self.is_own else StoreCondition.FOREIGN, reason)
        error, waiting = StoreUnavailable(reason), self._waiting
        self._waiting, self.waiting_bytes, self._largest_commit = deque(), 0, 0
        for done, _ in waiting:
            tell(done, error)
        self.on_progress(self, 0)

    @property
    def reported_condition(self) -> StoreCondition:
        """For operators: a store may be open, and its database hang."""
        if self.is_foreign and not self.is_wanted_up:
            return StoreCondition.DOWN
        is_silent = self.condition is StoreCondition.UP and not self.lease.is_held()
        return StoreCondition.SILENT if is_silent else self.condition

    @property
    def reported_fault(self) -> str:
        """For operators: why it is not up, or takes no messages."""
        if self.is_foreign and not self.is_wanted_up:
            return f"messaging store {self.index} is switched off"
        if self.is_full:
            return FULL_FAULT
        return SILENT_FAULT if self.reported_condition is StoreCondition.SILENT else self.fault

    @property
    def awaited(self) -> str:
        """For operators: what is still to come before it can be used, while it is being opened."""
        if self.condition is StoreCondition.UP:
            return "open, but not read yet"
        if not self._is_tried:
            return "the process that is to open it has not begun"
        return f"being opened, but {self.location or 'its disk'} has not answered yet"

    @property
    def is_foreign(self) -> bool:
        """This process does not have it."""
        return self.condition is StoreCondition.FOREIGN

    @property
    def is_up(self) -> bool:
        return self.reported_condition is StoreCondition.UP

    @property
    def owner(self) -> str:
        """Of a store that another process owns, `fault` says which."""
        return self.process if self.condition is StoreCondition.UP else ""

    # The port

    @property
    def is_idle(self) -> bool:
        """No request waits for its answer."""
        return not self._waiting

    @property
    def waiting_count(self) -> int:
        """Of requests without an answer."""
        return len(self._waiting)

    def commit(
        self, changes: list[Change], done: Callable[[StoreUnavailable | None], None], /, *, is_awaited: bool = True
    ) -> None:
        """Durable when `done(None)` is called."""
        if (line := self._open_line(done)) is not None:
            size = line.commit(changes, is_awaited=is_awaited)
            self.waiting_bytes += size
            self._largest_commit = max(self._largest_commit, size)
            self._waiting.append((done, size))

    def query(self, read: Read[T], done: Callable[[T | StoreUnavailable], None], /) -> None:
        if (line := self._open_line(done)) is not None:
            line.query(read)
            self._waiting.append((done, 0))

    def _open_line(self, done: Callable[[Any], None]) -> Line | None:
        # A store that hangs must not collect requests without limit: above it they fail as if the store were lost. Until
        # nothing waits any more all later ones fail too, or they would be applied without those refused before them.
        is_full = len(self._waiting) >= REQUESTS_MAX or self.waiting_bytes - self._largest_commit >= BYTES_MAX
        self._is_overrun = self._line is not None and (self._is_overrun or is_full)
        if self._line is not None and not self._is_overrun:
            return self._line
        reason = "too many requests wait for it" if self._is_overrun else self.fault or "it is not open"
        assert self._later is not None, "nothing is asked of a store before it was ever connected"
        self._later(done, RequestRefused(f"messaging store {self.index}: {reason}"))
        return None

    # Switches

    def down(self) -> None:
        """Switch the store off: it is closed, and everything asked of it fails until `up`."""
        self.is_wanted_up = False
        self._switch("down")

    def up(self) -> None:
        self.is_wanted_up = True
        if self.condition is not StoreCondition.UP:
            self.condition = StoreCondition.OPENING
        self._switch("up")

    def own(self) -> None:
        """Own the store as soon as nobody else does, and open it unless it is switched off."""
        self.is_own = True
        self.condition = StoreCondition.OPENING
        self._switch("up" if self.is_wanted_up else "down")

    def rest(self) -> None:
        """Write to the tables what is in the journal alone, while it serves: it will be closed soon, and then somebody waits."""
        self._switch("rest")

    def release(self) -> None:
        """Finish what was asked for, close the store and give its lease back: another node is to own it."""
        self.is_own = False
        self._switch("release")

    def slow(self, delay_s: float) -> None:
        """Make every call take this much longer; 0 ends it. Raises ArgumentError beyond the limit."""
        if not 0.0 <= delay_s <= SLOW_S_MAX:
            raise ArgumentError(f"A store can be made 0 to {SLOW_S_MAX * 1000:.0f} milliseconds slower.")
        self.delay_s = delay_s
        self._switch("slow", delay_s)

    def lose_acks(self, count: int) -> None:
        """Let the next commits happen, but answer each as failed, with the loss of the store that follows from it.

        Raises ArgumentError beyond the limit.
        """
        if not 0 <= count <= LOST_ACKS_MAX:
            raise ArgumentError(f"A store can lose the replies to 0 to {LOST_ACKS_MAX} commits.")
        self.acks_to_lose = count
        self._switch("lose_acks", count)

    def recall(self) -> None:
        """Another process owns the store by now: close it, and try to own it again."""
        self._switch("recall")

    def stop(self) -> None:
        """Finish what waits and close the store."""
        self._switch("stop")

    def _switch(self, name: str, *arguments: float) -> None:
        if self._line is not None:
            self._line.switch(name, *arguments)

    # What the store's process reports

    def found_replicated(self, is_replicated: bool) -> None:
        """Of a store in a database: whether a standby has what it acknowledges."""
        self.kept_in = kept_in_database(is_replicated)

    def told(self, events: Sequence[Event]) -> None:
        waited_bytes = self.waiting_bytes
        for event in events:
            if isinstance(event, Done):
                for _ in range(event.commits):
                    self._answer(None)
            elif isinstance(event, Answer):
                self._answer(event.result)
            elif isinstance(event, Failed):
                self._answer(StoreUnavailable(event.reason))
            elif isinstance(event, Lost):
                self.acks_to_lose = event.acks_to_lose
                self._lose(event.condition, event.fault)
                self._switch("loss_told")
            elif isinstance(event, Opening):
                self._is_tried = True
            elif isinstance(event, Pressed):
                self.is_pressed = event.is_pressed
            elif isinstance(event, Full):
                self.is_full = event.is_full
                level, what = (logging.WARNING, "store_full") if event.is_full else (logging.INFO, "store_has_room")
                log.log(level, what, extra={"fields": {"store": self.index}})
            else:
                self.condition, self.fault, self.set_aside = StoreCondition.UP, "", event.set_aside
                self.kept_in, self.epoch = event.kept_in, event.epoch
                tell(self._on_returned, self.index)
        if self._is_overrun and not self._waiting:
            # The broker took the refusal for a loss, and nothing else reports that the store can be used again.
            self._is_overrun = False
            tell(self._on_returned, self.index)
        self.on_progress(self, max(0, waited_bytes - self.waiting_bytes))

    def _answer(self, result: Any) -> None:
        done, size = self._waiting.popleft()
        self.waiting_bytes -= size
        if not self._waiting:
            self._largest_commit = 0
        tell(done, result)

    def _lose(self, condition: StoreCondition, fault: str) -> None:
        self.condition, self.fault = condition, fault
        self._is_overrun = False
        self.is_pressed = self.is_full = False
        tell(self._on_lost, self.index, StoreUnavailable(fault))


def foreign_store(index: int) -> ServedStore:
    """One that another node owns: nothing is ever asked of it here."""
    store = ServedStore(index, lambda _, __: None, lambda _: None)
    store.condition = StoreCondition.FOREIGN
    return store


class StoreKeeper(Protocol):
    """Runs the stores of a namespace that this process owns."""

    stores: list[ServedStore]

    @property
    def leases(self) -> Sequence[StoreLease]:
        """One for each store."""
        ...

    async def start(self) -> None:
        """Returns before the stores are open: see their conditions."""
        ...

    async def stop(self) -> None:
        """Finish what was asked of the stores and close them."""
        ...

    def abandon(self) -> None:
        """Drop everything at once, as if the process ended."""
        ...
