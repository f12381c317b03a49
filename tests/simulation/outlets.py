"""Where messages go into a landscape of entities and where they come out, and what is known of them there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from twinbus.broker.consumer import ReceiveMode, SessionLock, TakenMessage
from twinbus.broker.outcomes import COMPLETE, RELEASE, Abandon, Outcome
from twinbus.clock import NEVER, Millis
from twinbus.errors import MessagingError, StoreUnavailable
from twinbus.testing.auditor import Auditor
from twinbus.testing.messages import message_id_of
from twinbus.testing.simulation import SimReceiver, Simulation


@dataclass
class Mouth:
    path: str
    outlets: Callable[[str], Sequence[str]]  # by the color of a message
    is_unique: bool = False  # it detects duplicates, and is sent some
    has_sessions: bool = False
    time_to_live: Millis | None = None
    is_scheduling: bool = False


@dataclass
class Outlet:
    path: str  # of a queue, or topic/subscription
    mode: ReceiveMode = ReceiveMode.PEEK_LOCK
    is_unique: bool = False
    is_claimed_from: bool = False
    auditor: Auditor = field(default_factory=Auditor)
    receivers: list["OutletReceiver"] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    settling: list["OutletSettling"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.auditor.detects_duplicates = self.is_unique


class OutletReceiver(SimReceiver):
    def __init__(self, outlet: Outlet, sim: Simulation, credit: int, session: SessionLock | None) -> None:
        super().__init__(credit, outlet.mode, session)
        self.held: dict[bytes, TakenMessage] = {}
        self._outlet = outlet
        self._sim = sim

    def deliver(self, deliveries: list[TakenMessage]) -> None:
        auditor = self._outlet.auditor
        for delivery in deliveries:
            name, number = message_id_of(delivery.message.content), delivery.message.sequence_number
            auditor.delivered(name, number, self._sim.now)
            if self.session is not None and auditor.records[name].session_id is not None:
                held = {message_id_of(each.message.content) for each in self.held.values()}
                auditor.delivered_in_session(name, held | self._outlet.excused, self._sim.now)
            if self.mode is ReceiveMode.PEEK_LOCK:
                self.held[delivery.lock_token] = delivery
            else:
                auditor.completed(name, number)


class OutletSettling:
    """How one settlement went, for the auditor."""

    def __init__(self, outlet: Outlet, deliveries: Sequence[TakenMessage], outcome: Outcome) -> None:
        self._outlet = outlet
        self._outcome = outcome
        self._messages = [(message_id_of(each.message.content), each.message.sequence_number) for each in deliveries]
        self._open = set(range(len(deliveries)))
        outlet.excused.update(name for name, _ in self._messages)
        outlet.settling.append(self)

    def settled(self, indexes: Sequence[int], now: Millis) -> None:
        for index in indexes:
            self._open.remove(index)
            name, number = self._messages[index]
            if self._outcome == COMPLETE:
                self._outlet.auditor.completed(name, number)
            elif self._outcome in (Abandon(), RELEASE):
                self._outlet.excused.discard(name)

    def failed(self, index: int, error: MessagingError, now: Millis) -> None:
        self._open.remove(index)
        if self._outcome == COMPLETE:
            self._outlet.auditor.completion_failed(self._messages[index][0])

    def crashed(self) -> None:
        for index in list(self._open):
            self.failed(index, StoreUnavailable("the process ended"), NEVER)
