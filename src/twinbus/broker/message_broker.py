"""A message broker: a set of fragments and the one messaging store that remembers them.

    loading --everything read--> available --a failure, or no answer--> lost --the store is back--> loading

Fragments decide at once, on the loop thread; what they decided takes effect when the store has it. When the store
fails, every fragment drops what it holds in memory and everybody who waits is answered with an error: whether the last
changes were made is not known, and the next load shows it. What keeps this right:

* **Every request is answered once.** It has a ticket until it is answered, and the answer removes the ticket
  first. After a loss no ticket is left: what the store still answers to requests from before belongs to nobody, and
  must not reach memory that has been dropped or loaded since. An answer that skipped the tickets would admit rows to
  lanes which already have them from the load.
* **Answers come in the order of the requests**, which the store port promises. `Fragment` relies on it.
* **One load counts.** A load is asked for under an epoch, and every loss and every load begins a new one: an answer to
  an older load is dropped. Otherwise a slow answer would put the counts of an older state under newer decisions.
* **Loading asks the port itself, past the tickets**: the broker is not available meanwhile, so nothing else is asked,
  and what is decided later is asked for behind it.
* **The clock is read here and nowhere else in the broker.** Callers from outside bring the time, and so does a
  wakeup; when the store answers, the time of the call has passed, so it is read and passed on.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from twinbus.broker.consumer import SessionLock
from twinbus.broker.forwarding_gate import ForwardingGate
from twinbus.broker.held_contents import HeldContents
from twinbus.broker.moved_locks import MovedLocks
from twinbus.broker.session_preparations import SessionPreparations
from twinbus.broker.store_port import ALWAYS_HELD, StoreLease, StorePort
from twinbus.broker.telling import tell
from twinbus.broker.wakeups import Deadlines, LongWork, OneByOne, Wakeups
from twinbus.broker.wide_lanes import WideLanes
from twinbus.clock import Clock, Millis
from twinbus.errors import FragmentUnavailable, OutcomeUnknown, RequestRefused, ServerBusy, StoreUnavailable
from twinbus.meter.operation import NO_METER, Meter
from twinbus.store.changes import Change, FragmentCreated, FragmentDeleted, FragmentKey
from twinbus.store.reads import FragmentMemory, Load, MemoryWanted, Read

log = logging.getLogger(__name__)

T = TypeVar("T")

Effect = Callable[[Millis], None]
"""What was asked for is durable; with the time at which the store answered."""
Failed = Callable[[FragmentUnavailable, Millis], None]
"""It was not done, or after OutcomeUnknown it may have been."""

# A store that is silent for this long is given up, so that messages without a key can go elsewhere while their
# sender still waits (contract, Numbers: operation timeout).
SILENCE_MAX: Millis = 15_000
TICK_INTERVAL_MAX: Millis = 100
WAITING_BYTES_MAX = 128 << 20
"""That may wait for the store; with more its fragments take no messages. A connection that waits for its answers is held
back by its own limit, which is much lower, but there may be thousands of them."""


class ServedFragment(Protocol):
    """`twinbus.broker.fragment.fragment.Fragment`, as far as its message broker has to know."""

    @property
    def key(self) -> FragmentKey: ...

    @property
    def is_loaded(self) -> bool: ...

    @property
    def what_to_remember(self) -> MemoryWanted: ...

    def load(self, memory: FragmentMemory | None, now: Millis, moved: MovedLocks | None = None) -> None: ...

    def move_out(self, travels: Callable[[SessionLock], bool]) -> MovedLocks: ...

    def clock_stepped(self, by: Millis) -> None: ...

    def stop(self) -> None: ...

    def drop(self) -> None: ...


class _Part(NamedTuple):
    """Of a joint commit."""

    changes: list[Change]
    effect: Effect | None
    failed: Failed | None


class MessageBroker:
    """`clock` is read when the store answers; `random` salts lock tokens; all brokers of a namespace share `long_work`,
    `wide_lanes`, `held_contents` and `forwarding_gate`; without the lease nothing is handed over."""

    def __init__(
        self,
        index: int,
        port: StorePort,
        clock: Clock,
        random: Random,
        long_work: LongWork,
        wide_lanes: WideLanes | None = None,
        lease: StoreLease = ALWAYS_HELD,
        held_contents: HeldContents | None = None,
        forwarding_gate: ForwardingGate | None = None,
    ) -> None:
        self.index = index
        self.long_work = long_work
        self.wide_lanes = WideLanes() if wide_lanes is None else wide_lanes
        self.held_contents = HeldContents() if held_contents is None else held_contents
        self.is_available = False
        self.is_foreign = False
        """Another process owns the store: it is not available here, and that is no failure."""
        self.database: int | None = None
        """Which of several its store is in. Those of one database fail together."""
        self.when_loaded: Callable[[], None] = _nothing
        """Called when it has become available, before it hands anything over: messages are read from the store first."""
        self._clock = clock
        self.random = random
        self.lease = lease
        self.wakeups = Wakeups()
        self.transaction_deadlines = Deadlines(self.wakeups)
        self.upkeep = OneByOne()
        self.session_lists = SessionPreparations(self.query)
        self.meter: Meter = NO_METER  # counts what the fragments do without a client
        self._port = port
        self._fragments: dict[FragmentKey, ServedFragment] = {}
        self.leaving: set[FragmentKey] = set()  # fragments that are being deleted
        self.forwarding: set[FragmentKey] = set()
        """Fragments of which messages are on their way to another entity, a run of each: what comes of it is written here."""
        self.may_forward = True
        self.forwarding_gate = ForwardingGate() if forwarding_gate is None else forwarding_gate
        self._last_ticket = 0
        self._waiting: dict[int, Failed | None] = {}
        self._ticks: deque[tuple[int, Millis]] = deque()
        """Of the ticks since the oldest request that waits was asked for: the last ticket given out by then, and when."""
        self._epoch = 0
        self._is_silent = False
        self._is_lease_over = False
        self._has_refused = False  # to hand something over, since the last load
        self._joint: list[_Part] | None = None
        self._moved_in: dict[FragmentKey, MovedLocks] = {}
        self._is_retired = False
        self._has_moved_out = False  # so its fragments have nothing to lose
        self.fault = ""  # why the store was lost last

    def start(self) -> None:
        """Load what the store remembers; available when that is here. Entities are to be restored before."""
        self._load()

    def tick(self, now: Millis) -> Millis:
        """Do what has become due; returns when to call again."""
        if self._waiting and now - self._waits_since(now) > SILENCE_MAX:
            self._is_silent = True
            self._lose(f"messaging store {self.index} has not answered for {SILENCE_MAX // 1000} s")
        if self.is_available and (self._has_refused or not self.lease.is_held()):
            self._lose(f"the lease on messaging store {self.index} has ended")
            self._is_lease_over = True
            log.warning("lease_over", extra={"fields": {"store": self.index}})
        if self._is_lease_over and self.lease.is_held():
            log.info("lease_renewed", extra={"fields": {"store": self.index}})
            self._load()
        # What is decided between two ticks may be due soon, so the longest sleep is short.
        return min(self.wakeups.run(now), now + TICK_INTERVAL_MAX)

    def clock_stepped(self, by: Millis) -> None:
        """The clock was set by this much, and `now` with it: what lasts a while still lasts that long. To be called before the next tick."""
        self._ticks = deque([(ticket, at + by) for ticket, at in self._ticks])
        self.wakeups.clock_stepped(by)
        self.transaction_deadlines.clock_stepped(by)
        for moved in self._moved_in.values():
            moved.clock_stepped(by)
        for fragment in self._fragments.values():
            tell(fragment.clock_stepped, by)

    def _waits_since(self, now: Millis) -> Millis:
        """The time of the first tick after the oldest request that waits: with no clock read for each of them, no more
        than a tick later than it was asked for."""
        oldest, ticks = next(iter(self._waiting)), self._ticks
        while ticks and ticks[0][0] < oldest:
            ticks.popleft()
        if not ticks or ticks[-1][0] < self._last_ticket:
            ticks.append((self._last_ticket, now))
        return ticks[0][1]

    def store_lost(self, error: StoreUnavailable) -> None:
        self._lose(str(error))

    def store_returned(self) -> None:
        self._load()

    def finish_forwarding(self) -> None:
        """The store is about to move: no message begins its way to another entity, where it may stay for a while."""
        self.may_forward = False

    def retire(self) -> None:
        """Decide nothing more: the store is about to be owned by another node. What it was asked for is still answered."""
        self._epoch += 1  # a load that is under way does not count
        # Nor is there another one when the lease is renewed, or when a store that was silent speaks again.
        self.is_available = self._is_lease_over = self._is_silent = False
        self._is_retired = True
        self.fault = f"messaging store {self.index} moves to another node"

    @property
    def is_given_away(self) -> bool:
        """Another node owns the store, or is about to: locks that are not known here, or not any more, may be good there."""
        return self.is_foreign or self._is_retired

    @property
    def has_open_work(self) -> bool:
        """Whether somebody is in the middle of something that takes several commits, or is not decided yet."""
        return len(self.transaction_deadlines) > 0 or len(self.long_work) > 0

    @property
    def is_at_rest(self) -> bool:
        return not self._waiting

    def move_out(self, travels: Callable[[SessionLock], bool]) -> dict[FragmentKey, MovedLocks]:
        """Of a broker that is retired and at rest: forget everything, and return the locks for the next owner, who gets them by
        `expect`. `travels`: whether whoever holds a message session can go on there."""
        assert not self.is_available
        assert self.is_at_rest
        moved = {fragment.key: fragment.move_out(travels) for fragment in self._fragments.values()}
        self._has_moved_out = True
        return {key: locks for key, locks in moved.items() if locks.messages or locks.sessions}

    def expect(self, moved: Mapping[FragmentKey, MovedLocks]) -> None:
        """The next load finds these locked: the owner before gave them, and nobody has owned the store since."""
        self._moved_in = dict(moved)

    # For fragments and entities

    def add(self, fragments: Sequence[ServedFragment]) -> None:
        """Serve these from now on: at once if the broker is available, otherwise when it has loaded."""
        for fragment in fragments:
            self._fragments[fragment.key] = fragment
        if self.is_available:
            self._read(fragments, self._epoch)

    def adopt(self, fragments: Sequence[ServedFragment], now: Millis) -> None:
        """Serve these, which have just been created in the store and are empty. If the store was lost since, another owner may have put
        something into them by the time it is back."""
        for fragment in fragments:
            self._fragments[fragment.key] = fragment
            if self.is_available:
                fragment.load(None, now)

    def part_with(self, fragments: Sequence[ServedFragment]) -> None:
        """They are about to be deleted: `remove` follows, or `keep` if that fails.

        Nothing that is decided about them from now on is written, for it would come behind their deletion, and a store
        that is given rows of a fragment which it does not have is taken to be broken.
        """
        for fragment in fragments:
            fragment.stop()
            self.leaving.add(fragment.key)

    def keep(self, fragments: Sequence[ServedFragment]) -> None:
        """Their deletion failed: serve them from what the store has, which may be nothing."""
        left = [fragment for fragment in fragments if not fragment.is_loaded]
        for fragment in left:
            tell(fragment.drop)
        self.add(left)

    def remove(self, fragments: Sequence[ServedFragment]) -> None:
        for fragment in fragments:
            self._fragments.pop(fragment.key, None)
            self.leaving.discard(fragment.key)
            tell(fragment.drop)

    def commit(
        self, changes: list[Change], effect: Effect | None, failed: Failed | None, *, is_awaited: bool = True
    ) -> None:
        """Calls one of the two: at once only if the store is known to be lost, otherwise when it has answered."""
        if self._joint is not None:
            self._joint.append(_Part(changes, effect, failed))
            return
        if not self.is_available:
            self._fail([failed])
            return
        if self.leaving:
            changes = [change for change in changes if self._is_wanted(change)]
        self._last_ticket = ticket = self._last_ticket + 1
        self._waiting[ticket] = failed
        self._port.commit(changes, partial(self._committed, ticket, effect), is_awaited=is_awaited)

    def _is_wanted(self, change: Change) -> bool:
        return change.fragment not in self.leaving or isinstance(change, FragmentDeleted)

    @contextmanager
    def joined(self, effect: Effect, failed: Failed) -> Iterator[None]:
        """Whatever is committed inside is one commit, made at the end: the store has all of it or none. `effect` and
        `failed` are those of the whole, called behind those of its parts.

        If something is raised inside, the store has none of it. The fragments may have followed what they decided,
        so they are read again.
        """
        assert self._joint is None, "a joint commit is not part of another"
        parts: list[_Part] = []
        self._joint = parts
        try:
            yield
        except BaseException:
            self._joint = None
            self._fail([part.failed for part in parts])
            self._load()
            raise
        self._joint = None
        parts.append(_Part([], effect, failed))
        changes = [change for part in parts for change in part.changes]
        self.commit(changes, partial(_effect_of_all, parts), partial(_failure_of_all, parts))

    def query(self, read: Read[T], done: Callable[[T | FragmentUnavailable, Millis], None]) -> None:
        """`done` gets the answer and the time at which it came. At once only if the store is known to be lost."""
        if not self.is_available:
            self._fail([done])
            return
        self._last_ticket = ticket = self._last_ticket + 1
        self._waiting[ticket] = done
        self._port.query(read, partial(self._answered, ticket, done))

    # Answers of the store

    def _committed(self, ticket: int, effect: Effect | None, error: StoreUnavailable | None) -> None:
        if error is None and ticket in self._waiting:
            del self._waiting[ticket]
            if effect is not None:
                effect(self._clock.now())
        else:
            self._not_awaited(ticket, error)

    def _answered(
        self, ticket: int, done: Callable[[T | FragmentUnavailable, Millis], None], answer: T | StoreUnavailable
    ) -> None:
        if isinstance(answer, StoreUnavailable):
            self._not_awaited(ticket, answer)
        elif ticket in self._waiting:
            del self._waiting[ticket]
            done(answer, self._clock.now())
        else:
            self._not_awaited(ticket, None)

    def _not_awaited(self, ticket: int, error: StoreUnavailable | None) -> None:
        """An answer that is an error, or that nobody waits for any more."""
        if ticket not in self._waiting:
            self._late_answer(error)
        elif error is not None:
            refused = [self._waiting.pop(ticket)] if isinstance(error, RequestRefused) else []
            self._lose(str(error))
            self._fail(refused)

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
        self._ticks.clear()
        self._moved_in.clear()
        for fragment in self._fragments.values() if not self._has_moved_out else ():
            tell(fragment.drop)
        self._fail(waiting.values(), self._unknown())

    def _fail(self, waiting: Iterable[Failed | None], error: FragmentUnavailable | None = None) -> None:
        error, now = error or self.unavailable(), self._clock.now()
        for failed in waiting:
            if failed is not None:
                tell(failed, error, now)

    def may_hand_over(self) -> bool:
        """Whether the store is still ours; asked once for each burst. If not, everything is dropped with the next tick."""
        if self.lease.is_held():
            return True
        self._has_refused = True
        return False

    @property
    def is_pressed(self) -> bool:
        return self._port.is_pressed

    @property
    def is_full(self) -> bool:
        return self._port.is_full

    @property
    def refusal(self) -> FragmentUnavailable | ServerBusy | None:
        """Why its fragments accept no messages now, if so. Settling continues while the store is behind or full: it makes room.

        Without the lease the next tick drops everything, and what was sent meanwhile would be in doubt for nothing. So it does if the
        lease was missed and has been renewed since."""
        if not self.is_available or self._has_refused or not self.lease.is_held():
            return self.unavailable()
        if self._port.is_full:
            return ServerBusy(
                f"The disk of messaging store {self.index} is nearly full: no messages are accepted until some are received or "
                "space is freed. Try again later."
            )
        if self._port.waiting_bytes <= WAITING_BYTES_MAX:
            return None
        return ServerBusy(
            f"Messaging store {self.index} is behind: more than {WAITING_BYTES_MAX >> 20} MB wait to be written. "
            "Try again later."
        )

    def unavailable(self) -> FragmentUnavailable:
        return FragmentUnavailable(
            f"Messaging store {self.index} is unavailable, and what lies in it cannot be reached. Try again later."
        )

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"Messaging store {self.index} became unavailable before it confirmed this: it may have been done. "
            "Try again later.",
            self.database,
        )

    # Loading

    def _load(self) -> None:
        if self.is_available or self._waiting:
            self._lose(f"messaging store {self.index} was opened again")
        self._epoch += 1
        self._is_silent = self._is_lease_over = self._has_refused = self._is_retired = self._has_moved_out = False
        self.may_forward = True
        self._read(list(self._fragments.values()), self._epoch)

    def _read(self, fragments: Sequence[ServedFragment], epoch: int) -> None:
        wanted = [fragment.what_to_remember for fragment in fragments]
        self._port.query(Load(wanted), partial(self._loaded, fragments, epoch))

    def _loaded(
        self,
        fragments: Sequence[ServedFragment],
        epoch: int,
        answer: list[FragmentMemory | None] | StoreUnavailable,
    ) -> None:
        if epoch != self._epoch:
            return
        if isinstance(answer, StoreUnavailable):
            self._lose(str(answer))
            return
        is_first, self.is_available = not self.is_available, True
        # Not what was deleted meanwhile; nor what was asked for twice and has been in use since.
        known = [item for item in zip(fragments, answer, strict=True) if item[0].key in self._fragments]
        loaded = [item for item in known if not item[0].is_loaded]
        self.leaving.difference_update([fragment.key for fragment, _ in loaded])
        # A fragment the catalog knows and the store does not: the process ended while the entity was being created.
        missing: list[Change] = [FragmentCreated(fragment.key) for fragment, memory in loaded if memory is None]
        if missing:
            # A failure drops all fragments, and the next load creates what is missing.
            self.commit(missing, None, None)
        now = self._clock.now()
        for fragment, memory in loaded:
            tell(fragment.load, memory, now, self._moved_in.pop(fragment.key, None))
        self._moved_in.clear()
        if is_first:
            self._read_what_came_meanwhile({fragment.key for fragment in fragments})
        tell(self.when_loaded)

    def _read_what_came_meanwhile(self, asked: Set[FragmentKey]) -> None:
        """Fragments that were added while the others were read."""
        known = self._fragments.values()
        missing = [each for each in known if each.key not in asked and each.key not in self.leaving]
        if missing:
            self._read(missing, self._epoch)


def _nothing() -> None:
    """Nobody has to know."""


def _effect_of_all(parts: Sequence[_Part], now: Millis) -> None:
    for part in parts:
        if part.effect is not None:
            tell(part.effect, now)


def _failure_of_all(parts: Sequence[_Part], error: FragmentUnavailable, now: Millis) -> None:
    for part in parts:
        if part.failed is not None:
            tell(part.failed, error, now)
