"""Any messaging store, made to fail when a simulation or a test says so.

The store inside stands for the disk and outlives every FaultyStore around it; a FaultyStore is one
opening of it. A fault ends the opening, as `MessagingStore` has it: until it is opened again, all
calls are refused. Faults come one by one from a schedule that a seed decides, or by hand.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import Enum
from random import Random
from typing import TypeVar

from twinbus.clock import Millis
from twinbus.errors import RequestRefused, StoreUnavailable
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import Change, FragmentKey, StoredMessage
from twinbus.store.damage import CheckedPage, Damage
from twinbus.store.messaging_store import FragmentSummary, MessagingStore, RowFacts, SessionList, SessionSummary
from twinbus.store.room import RoomLeft

Result = TypeVar("Result")


class Fault(Enum):
    REFUSE = "nothing was applied, and the store says so"
    FAIL_BEFORE = "nothing was applied"
    LOSE_REPLY = "it was applied, and the reply is lost"


def random_faults(random: Random, share: float) -> Iterator[Fault | None]:
    """Endless: a fault for this share of the calls, of either kind."""
    assert 0 <= share <= 1
    while True:
        yield random.choice(list(Fault)) if random.random() < share else None


class FaultSwitch:
    """What a store will do wrong; shared by all openings of it."""

    def __init__(self, schedule: Iterable[Fault | None] = ()) -> None:
        """A schedule that ends is followed by calls that succeed."""
        self._schedule = iter(schedule)
        self._by_hand: deque[Fault] = deque()
        self.is_down = False  # while it is, the store cannot be opened and refuses every call

    def fail_next(self, fault: Fault) -> None:
        self._by_hand.append(fault)

    def heal(self) -> None:
        """No fault from now on, whatever was scheduled."""
        self._schedule = iter(())
        self._by_hand.clear()
        self.is_down = False

    def next_fault(self) -> Fault | None:
        return self._by_hand.popleft() if self._by_hand else next(self._schedule, None)


class FaultyStore:
    """See `MessagingStore`. Opening raises StoreUnavailable while the switch is down."""

    def __init__(self, store: MessagingStore, switch: FaultSwitch) -> None:
        self._store = store
        self._switch = switch
        self._is_usable = True
        self._must_be_up()

    def commit(self, changes: Sequence[Change]) -> None:
        self._call(lambda: self._store.commit(changes))

    def catch_up(self) -> bool:
        return self._store.catch_up()

    def rest(self) -> bool:
        return self._store.rest()

    def is_pressed(self) -> bool:
        return self._store.is_pressed()

    def room_left(self) -> RoomLeft:
        return self._store.room_left()

    def kept_in(self) -> str:
        return self._store.kept_in()

    def epoch(self) -> int:
        return self._store.epoch()

    def damage(self) -> list[Damage]:
        return self._store.damage()

    def check(self, after: int) -> CheckedPage:
        return self._call(lambda: self._store.check(after))

    def summaries(self) -> list[FragmentSummary]:
        return self._call(self._store.summaries)

    def scan(
        self,
        fragment: FragmentKey,
        after: int,
        count_max: int,
        bytes_max: int,
        states: Collection[MessageState],
        session_id: str | None = None,
        last: int | None = None,
    ) -> list[StoredMessage]:
        return self._call(lambda: self._store.scan(fragment, after, count_max, bytes_max, states, session_id, last))

    def read(
        self, fragment: FragmentKey, sequence_numbers: Sequence[int], bytes_max: int | None = None
    ) -> list[StoredMessage]:
        return self._call(lambda: self._store.read(fragment, sequence_numbers, bytes_max))

    def facts(self, fragment: FragmentKey, sequence_numbers: Sequence[int]) -> RowFacts:
        return self._call(lambda: self._store.facts(fragment, sequence_numbers))

    def facts_after(
        self,
        fragment: FragmentKey,
        after: int,
        count_max: int,
        states: Collection[MessageState],
        last: int | None = None,
    ) -> RowFacts:
        return self._call(lambda: self._store.facts_after(fragment, after, count_max, states, last))

    def due(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        return self._call(lambda: self._store.due(fragment, now, count_max))

    def expired(self, fragment: FragmentKey, now: Millis, count_max: int) -> tuple[list[int], Millis]:
        return self._call(lambda: self._store.expired(fragment, now, count_max))

    def sessions(self, fragment: FragmentKey) -> list[SessionSummary]:
        return self._call(lambda: self._store.sessions(fragment))

    def prepare_session_list(self, fragment: FragmentKey) -> bool:
        return self._call(lambda: self._store.prepare_session_list(fragment))

    def session_list(self, fragment: FragmentKey) -> SessionList:
        return self._call(lambda: self._store.session_list(fragment))

    def session_state(self, fragment: FragmentKey, session_id: str) -> bytes | None:
        return self._call(lambda: self._store.session_state(fragment, session_id))

    def duplicates(self, fragment: FragmentKey) -> list[tuple[str, Millis]]:
        return self._call(lambda: self._store.duplicates(fragment))

    def close(self) -> None:
        """Ends this opening; the store inside stays open for the next."""
        self._is_usable = False

    def _call(self, call: Callable[[], Result]) -> Result:
        if not self._is_usable:
            raise StoreUnavailable("this store failed or was closed. Open it again.")
        self._must_be_up()
        fault = self._switch.next_fault()
        if fault is Fault.REFUSE or fault is Fault.FAIL_BEFORE:
            raise self._failed(fault)
        result = call()
        if fault is Fault.LOSE_REPLY:
            raise self._failed(fault)
        return result

    def _must_be_up(self) -> None:
        if self._switch.is_down:
            self._is_usable = False
            raise StoreUnavailable("this store is down. Heal its switch and open it again.")

    def _failed(self, fault: Fault) -> StoreUnavailable:
        self._is_usable = False
        kind = RequestRefused if fault is Fault.REFUSE else StoreUnavailable
        return kind(f"an injected fault: {fault.value}. Open the store again.")
