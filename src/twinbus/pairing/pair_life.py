"""The life of a pair, written once for threads and for asyncio: whether it is live, its senders, what happens to its partners.

The two clients ask it and do what it says; neither decides anything. Any thread may ask.
"""

import os
import threading
import uuid
import weakref
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from twinbus.client.connecting.trust import share_trust
from twinbus.clock import Clock, Millis
from twinbus.model.durations import millis_of
from twinbus.model.pairing_limits import PARTNER_CLOSE_GRACE
from twinbus.model.paths import path_key
from twinbus.pairing.backlog.links import BacklogLinks, SharedLink
from twinbus.pairing.backlog.provision import Backlog
from twinbus.pairing.courier import Courier
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.errors import PairFaulted
from twinbus.pairing.events import EventKind, PairingEvent, PairState, tell
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.partnership import Effect, FaultPartner, Partner, Partnership
from twinbus.pairing.stock.failures import FailureKind

Sender = TypeVar("Sender")
Guarded = TypeVar("Guarded", bound=SharedLink)


class RunningSyphon(Protocol):
    """A syphon inside an application, whatever it runs on."""

    def start(self) -> None: ...

    def stop(self) -> None:
        """Blocks until the current passes are finished; seconds at most."""
        ...

    def recovered(self, path: str) -> None:
        """The pair's pings found that this entity works again. From any thread."""
        ...

    def interrupt_if_late(self, now: Millis) -> None:
        """Called a few times a second: ends calls that are past their deadlines."""
        ...


class OpenSenders(Generic[Sender]):
    """The senders that somebody still holds. Any thread may add one while another looks at all."""

    def __init__(self) -> None:
        self._senders: weakref.WeakSet[Sender] = weakref.WeakSet()
        self._lock = threading.Lock()

    def add(self, sender: Sender) -> None:
        with self._lock:
            self._senders.add(sender)

    def all(self) -> list[Sender]:
        with self._lock:
            return list(self._senders)

    def after_fork(self) -> None:
        """Whoever held the lock exists in the parent only."""
        self._lock = threading.Lock()


class PairLife(Generic[Sender, Guarded]):
    """`guard` makes stock senders safe to share. `closing` returns what replaces the `close` of a partner, given the partner and its own close: the SDK has no event for
    a client that the application closes."""

    def __init__(
        self,
        clients: dict[Partner, Any],
        options: SendAvailabilityPairedNamespaceOptions,
        backlog: Backlog,
        clock: Clock,
        syphon: RunningSyphon | None,
        guard: Callable[[Callable[[], Any]], Guarded],
        closing: Callable[[Partner, Callable[[], Any]], Callable[[], Any]],
    ) -> None:
        self.availability = SendAvailability(options, backlog.queues, Random(), has_waiting=backlog.has_waiting)
        self.senders: OpenSenders[Sender] = OpenSenders()
        self.links: BacklogLinks[Guarded] = BacklogLinks(lambda index: guard(partial(self._open_backlog, index)))
        self._couriers: OpenSenders[Courier] = OpenSenders()
        self._guard = guard
        for client in clients.values():
            share_trust(client)
        self.has_syphon = False
        self._clients = clients
        self._options = options
        self._clock = clock
        self._syphon: RunningSyphon | None = None
        self._closing = closing
        self._fault: PairFaulted | None = None
        self._is_closed = False
        self._partnership = Partnership(millis_of(PARTNER_CLOSE_GRACE))
        self._lock = threading.Lock()
        self._restore_closes: list[Callable[[], None]] = []
        _lives.add(self)
        if syphon is not None:
            self.begin_syphon(syphon)

    def begin_syphon(self, syphon: RunningSyphon) -> None:
        """From now on the two clients belong together."""
        self.has_syphon = True
        self._syphon = syphon
        self.availability.on_recovered = syphon.recovered
        syphon.start()
        self._restore_closes = [
            _replace_close(each, self._closing(name, each.close)) for name, each in self._clients.items()
        ]

    def backlog_found(self, backlog: Backlog, syphon: RunningSyphon | None) -> bool:
        """An unprotected pair has found its backlog. False if it was closed in the meantime."""
        with self._lock:
            if self._is_closed:
                return False
        self.availability.protected(backlog.queues, self._clock.now(), has_waiting=backlog.has_waiting)
        with self._lock:
            if self._is_closed:
                return False
            # Under the lock: a close that comes now finds a syphon to stop, or none that starts later.
            if syphon is not None:
                self.begin_syphon(syphon)
        return True

    def backlog_missing(self, error: BaseException | None) -> None:
        self.availability.unprotected(error, self._clock.now())

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def after_fork(self) -> None:
        """In the child: its threads are gone, and its sockets are the parent's too."""
        self._lock = threading.Lock()
        self.availability.after_fork()
        self._syphon = None
        self._is_closed = True
        self._couriers.after_fork()
        for courier in self._couriers.all():
            courier.is_closed = True
        self._fault = PairFaulted(
            "This pair was made before the process was forked. It can be used in the parent only: neither its connections nor "
            "its pings and syphon exist in the child. Pair the namespaces again there."
        )

    def new_sender(
        self,
        create: Callable[[Guarded, BacklogLinks[Guarded], Courier], Sender],
        open_stock: Callable[[], Any],
    ) -> Sender:
        """A sender to the entity of the stock sender that `open_stock` opens."""
        self.check_live()
        primary: Any = self._guard(open_stock)
        path: str = primary.stock.entity_name
        courier = Courier(path, self.availability, self._clock, lambda: str(uuid.uuid4()), self.check_live)
        sender = create(primary, self.links, courier)
        self.senders.add(sender)
        self._couriers.add(courier)
        return sender

    def survey_due(self, now: Millis) -> dict[int, str] | None:
        """The backlog queues to look into now."""
        return None if self._is_closed else self.availability.start_survey(now)

    def surveyed(self, survey: Survey | None) -> bool:
        """True once nothing is left to look for."""
        self.availability.surveyed(survey, self._clock.now())
        return not self.availability.is_catching_up

    def links_to_open(self, now: Millis) -> list[tuple[int, Guarded]]:
        """Links that senders may need soon: where an entity fails, its senders choose their queues, and one is kept ready
        beside them."""
        failing = self.availability.failing_paths()
        if not failing:
            return []
        wanted = {
            courier.backlog.queue_ahead(now) for courier in self._couriers.all() if path_key(courier.path) in failing
        } - {None}
        if wanted:
            wanted.add(next((index for index in self.availability.backlog_queues if index not in wanted), None))
        return self.links.missing({index for index in wanted if index is not None})

    def link_failed(self, index: int, error: Exception, now: Millis) -> None:
        """A link that was opened ahead could not be opened."""
        if self.availability.kind_of(error) is not FailureKind.LOCAL:
            self.availability.queue_failed(index, error, now)

    def _open_backlog(self, index: int) -> Any:
        return self._clients[Partner.SECONDARY].get_queue_sender(self.availability.backlog_queues[index])

    def state(self) -> PairState:
        self.availability.advance_failovers(self._clock.now())
        return self.availability.state()

    def mark_healthy(self, path: str) -> None:
        self.availability.mark_healthy(path, self._clock.now())

    def check_live(self) -> None:
        """Raises the error for calls on a pair that is over."""
        if self._fault is not None:
            # Every call raises this one error, so what each of them adds to its traceback would stay.
            raise self._fault.with_traceback(None)
        if self._is_closed:
            raise ValueError("The paired client has been closed. Pair the namespaces again for a new one.")

    def begin_close(self) -> bool:
        """False if it is closed already, or being closed."""
        with self._lock:
            was_open, self._is_closed = not self._is_closed, True
        self.availability.end()
        return was_open

    def restore_closes(self) -> None:
        for restore in reversed(self._restore_closes):
            restore()

    def take_syphon(self) -> RunningSyphon | None:
        """The syphon, for the caller to stop; None once it was taken."""
        syphon, self._syphon = self._syphon, None
        return syphon

    def partner_faulted(self, partner: Partner, error: BaseException) -> list[Effect]:
        """With a syphon, the other partner is given up too."""
        with self._lock:
            effects = [FaultPartner(partner), *(self._partnership.faulted(partner) if self.has_syphon else [])]
        return self._noted(effects, error)

    def partner_closed(self, partner: Partner) -> list[Effect]:
        with self._lock:
            return [] if self._is_closed else self._partnership.closed(partner, self._clock.now())

    def advance(self, now: Millis) -> list[Effect]:
        if self._syphon is not None:
            self._syphon.interrupt_if_late(now)
        with self._lock:
            effects = self._partnership.advance(now)
        return self._noted(effects, TimeoutError("its partner was closed and the pair was not"))

    def _noted(self, effects: list[Effect], error: BaseException) -> list[Effect]:
        """From now on every call raises the fault."""
        for effect in effects:
            if isinstance(effect, FaultPartner):
                self.availability.end()
                self._fault = PairFaulted(f"The {effect.partner.value} of the pair is faulted: {error}", error=error)
                tell(self._options.on_event, PairingEvent(EventKind.FAULTED, self._clock.now(), error=error))
        return effects


_lives: "weakref.WeakSet[PairLife[Any, Any]]" = weakref.WeakSet()


def _after_fork() -> None:
    for life in list(_lives):
        life.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _replace_close(client: Any, replacement: Callable[[], Any]) -> Callable[[], None]:
    """On the one object, not on its class. Returns how to restore it."""
    client.close = replacement

    def restore() -> None:
        del client.close

    return restore
