"""A message broker: a set of fragments and the one messaging store that remembers them.

    loading --everything read--> available --a failure, or no answer--> lost --the store is back--> loading

Fragments decide at once, on the loop thread; what they decided takes effect when the store has it. When the store
fails, every fragment drops what it holds in memory and everybody who waits is told: whether the last changes were
made is not known, and the next load shows it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from twinbus.broker.store_port import StorePort
from twinbus.broker.telling import tell
from twinbus.broker.wakeups import Deadlines, Wakeups
from twinbus.clock import Clock, Millis
from twinbus.errors import FragmentUnavailable, ServerBusy, StoreUnavailable
from twinbus.meter.operation import NO_METER, Meter
from twinbus.store.changes import Change, FragmentCreated, FragmentDeleted, FragmentKey
from twinbus.store.reads import FragmentMemory, Load, Read

if TYPE_CHECKING:
    from twinbus.broker.fragment.fragment import Fragment

T = TypeVar("T")

Done = Callable[[FragmentUnavailable | None], None]

# A store that is silent for so long is given up, so that messages without a key can go elsewhere while their
# sender still waits (contract, Numbers: operation timeout).
SILENCE_MAX: Millis = 15_000
TICK_INTERVAL_MAX: Millis = 100
WAITING_BYTES_MAX = 128 << 20
"""That may wait for the store; with more its fragments take no messages. A connection that waits for its answers is held
back by its own limit, which is much lower, but there may be thousands of them."""


class _Waiting(NamedTuple):
    since: Millis
    failed: Callable[[FragmentUnavailable], None]


class MessageBroker:
    """`clock` is read when the store answers, for by then the caller's time has passed; `random` salts lock tokens."""

    def __init__(self, index: int, port: StorePort, clock: Clock, random: Random) -> None:
        self.index = index
        self.is_available = False
        self.clock = clock
        self.random = random
        self.wakeups = Wakeups()
        self.transaction_deadlines = Deadlines(self.wakeups)
        self.meter: Meter = NO_METER  # told what the fragments do by themselves
        self._port = port
        self._fragments: dict[FragmentKey, Fragment] = {}
        self.leaving: set[FragmentKey] = set()  # fragments that are being deleted
        self._tickets = count()
        self._waiting: dict[int, _Waiting] = {}
        self._epoch = 0
        self._is_silent = False
        self._joint: list[tuple[list[Change], Done]] | None = None
        self.fault = ""  # why the store was lost last

    def start(self) -> None:
        """Load what the store remembers; available when that is here. Entities are to be restored before."""
        self._load()

    def tick(self, now: Millis) -> Millis:
        """Do what has become due; returns when to call again."""
        if self._waiting and now - next(iter(self._waiting.values())).since > SILENCE_MAX:
            self._is_silent = True
            self._lose(f"messaging store {self.index} has not answered for {SILENCE_MAX // 1000} s")
        # What is decided between two ticks may be due soon, so the longest sleep is short.
        return min(self.wakeups.run(now), now + TICK_INTERVAL_MAX)

    def store_lost(self, error: StoreUnavailable) -> None:
        self._lose(str(error))

    def store_returned(self) -> None:
        self._load()

    # For fragments and entities

    def add(self, fragments: Sequence["Fragment"]) -> None:
        """Serve these from now on: at once if the broker is available, otherwise when it has loaded."""
        for fragment in fragments:
            self._fragments[fragment.key] = fragment
        if self.is_available:
            self._read(fragments, self._epoch)

    def adopt(self, fragments: Sequence["Fragment"]) -> None:
        """Serve these, which have just been made in the store and are empty."""
        for fragment in fragments:
            self._fragments[fragment.key] = fragment
            fragment.load(None)

    def part_with(self, fragments: Sequence["Fragment"]) -> None:
        """They are about to be deleted: `remove` follows, or `keep` if that fails.

        Nothing that is decided about them from now on is written, for it would come behind their deletion, and a store
        that is given rows of a fragment which it does not have is taken to be broken.
        """
        for fragment in fragments:
            fragment.is_loaded = False
            self.leaving.add(fragment.key)

    def keep(self, fragments: Sequence["Fragment"]) -> None:
        """Their deletion failed: serve them from what the store has, which may be nothing."""
        left = [fragment for fragment in fragments if not fragment.is_loaded]
        for fragment in left:
            tell(fragment.drop)
        self.add(left)

    def remove(self, fragments: Sequence["Fragment"]) -> None:
        for fragment in fragments:
            self._fragments.pop(fragment.key, None)
            self.leaving.discard(fragment.key)
            tell(fragment.drop)

    def commit(self, changes: list[Change], done: Done) -> None:
        """`done(None)` when they are durable. Calls back at once only if the store is known to be lost."""
        if self._joint is not None:
            self._joint.append((changes, done))
            return
        if not self.is_available:
            done(self.unavailable())
            return
        if self.leaving:
            changes = [change for change in changes if self._is_wanted(change)]
        ticket = self._wait_for(done)
        self._port.commit(changes, partial(self._committed, ticket, done))

    def _is_wanted(self, change: Change) -> bool:
        return change.fragment not in self.leaving or isinstance(change, FragmentDeleted)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Whatever is committed inside is one commit, made at the end: the store has all of it or none.

        If something is raised inside, it has none, and since the fragments may have followed what they decided, they
        are read anew.
        """
        assert self._joint is None, "a joint commit is not part of another"
        parts: list[tuple[list[Change], Done]] = []
        self._joint = parts
        try:
            yield
        except BaseException:
            self._joint = None
            _tell_all(parts, self.unavailable())
            self._load()
            raise
        self._joint = None
        changes = [change for part, _ in parts for change in part]
        if changes:
            self.commit(changes, partial(_tell_all, parts))
        else:
            _tell_all(parts, None)

    def query(self, read: Read[T], done: Callable[[T | FragmentUnavailable], None]) -> None:
        if not self.is_available:
            done(self.unavailable())
            return
        ticket = self._wait_for(done)
        self._port.query(read, partial(self._answered, ticket, done))

    # Answers of the store

    def _wait_for(self, failed: Callable[[FragmentUnavailable], None]) -> int:
        ticket = next(self._tickets)
        self._waiting[ticket] = _Waiting(self.clock.now(), failed)
        return ticket

    def _committed(
        self, ticket: int, done: Callable[[FragmentUnavailable | None], None], error: StoreUnavailable | None
    ) -> None:
        if self._is_awaited(ticket, error):
            done(None)

    def _answered(
        self, ticket: int, done: Callable[[T | FragmentUnavailable], None], answer: T | StoreUnavailable
    ) -> None:
        if isinstance(answer, StoreUnavailable):
            self._is_awaited(ticket, answer)
        elif self._is_awaited(ticket, None):
            done(answer)

    def _is_awaited(self, ticket: int, error: StoreUnavailable | None) -> bool:
        """True for a good answer that somebody still waits for."""
        if ticket not in self._waiting:
            self._late_answer(error)
            return False
        if error is not None:
            self._lose(str(error))
            return False
        del self._waiting[ticket]
        return True

    def _late_answer(self, error: StoreUnavailable | None) -> None:
        """A store that was given up for its silence speaks again: it was slow, and is in order."""
        if self._is_silent and error is None:
            self._is_silent = False
            self._load()

    def _lose(self, reason: str) -> None:
        self._epoch += 1
        self.is_available = False
        self.fault = reason
        waiting, self._waiting = self._waiting, {}
        for fragment in self._fragments.values():
            tell(fragment.drop)
        error = self.unavailable()
        for waiter in waiting.values():
            tell(waiter.failed, error)

    @property
    def refusal(self) -> ServerBusy | None:
        """Why its fragments take no messages now, if so. Settling goes on while the store is behind: it makes room."""
        if not self.is_available:
            return self.unavailable()
        if self._port.waiting_bytes <= WAITING_BYTES_MAX:
            return None
        return ServerBusy(
            f"Messaging store {self.index} is behind: more than {WAITING_BYTES_MAX >> 20} MB wait to be written. "
            "Try again later."
        )

    def unavailable(self) -> FragmentUnavailable:
        return FragmentUnavailable(
            f"The part of the entity in messaging store {self.index} cannot be reached. Try again later, "
            "or send without session id and partition key so that another part can take the message."
        )

    # Loading

    def _load(self) -> None:
        if self.is_available or self._waiting:
            self._lose(f"messaging store {self.index} was opened anew")
        self._epoch += 1
        self._is_silent = False
        self._read(list(self._fragments.values()), self._epoch)

    def _read(self, fragments: Sequence["Fragment"], epoch: int) -> None:
        wanted = [fragment.what_to_remember for fragment in fragments]
        self._port.query(Load(wanted), partial(self._loaded, fragments, epoch))

    def _loaded(
        self,
        fragments: Sequence["Fragment"],
        epoch: int,
        answer: list[FragmentMemory | None] | StoreUnavailable,
    ) -> None:
        if epoch != self._epoch:
            return
        if isinstance(answer, StoreUnavailable):
            self._lose(str(answer))
            return
        self.is_available = True
        # Not what was deleted meanwhile; nor what was asked for twice and has been in use since.
        known = [item for item in zip(fragments, answer, strict=True) if item[0].key in self._fragments]
        loaded = [item for item in known if not item[0].is_loaded]
        self.leaving.difference_update([fragment.key for fragment, _ in loaded])
        # A fragment the catalog knows and the store does not: the process ended while the entity was being made.
        missing: list[Change] = [FragmentCreated(fragment.key) for fragment, memory in loaded if memory is None]
        if missing:
            self.commit(missing, _ignore)
        for fragment, memory in loaded:
            tell(fragment.load, memory)


def _tell_all(parts: Sequence[tuple[list[Change], Done]], error: FragmentUnavailable | None) -> None:
    for _, done in parts:
        tell(done, error)


def _ignore(_: FragmentUnavailable | None) -> None:
    """A failure drops all fragments, and the next load makes what is missing."""
