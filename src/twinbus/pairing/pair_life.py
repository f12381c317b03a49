"""The life of a pair without colour: is it live, what becomes of its partners, how are its entities.

The clients for threads and for asyncio ask it and do what it says; neither decides anything. Any thread may ask.
"""

import threading
import uuid
from random import Random

from twinbus.clock import Clock, Millis
from twinbus.model.pairing_limits import PARTNER_CLOSE_GRACE
from twinbus.pairing.courier import Courier
from twinbus.pairing.errors import PairFaulted
from twinbus.pairing.events import EventKind, PairingEvent, PairState, tell
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions, millis
from twinbus.pairing.partnership import Effect, FaultPartner, Partner, Partnership
from twinbus.pairing.send_availability import SendAvailability


class PairLife:
    def __init__(
        self,
        options: SendAvailabilityPairedNamespaceOptions,
        backlog_queues: dict[int, str],
        clock: Clock,
        *,
        has_syphon: bool,
    ) -> None:
        self.availability = SendAvailability(options, backlog_queues, Random())
        self.has_syphon = has_syphon
        self._options = options
        self._clock = clock
        self._fault: PairFaulted | None = None
        self._is_closed = False
        self._partnership = Partnership(millis(PARTNER_CLOSE_GRACE))
        self._lock = threading.Lock()

    def courier(self, path: str) -> Courier:
        """For a new sender to this entity."""
        return Courier(path, self.availability, self._clock, lambda: str(uuid.uuid4()))

    def state(self) -> PairState:
        self.availability.advance_failovers(self._clock.now())
        return self.availability.state()

    def mark_healthy(self, path: str) -> None:
        self.availability.mark_healthy(path, self._clock.now())

    def check_live(self) -> None:
        """Raises what a call on a pair that is over gets."""
        if self._fault is not None:
            # The one error for every call: what each of them added to its traceback would stay.
            raise self._fault.with_traceback(None)
        if self._is_closed:
            raise ValueError("The paired client has been closed. Pair the namespaces again for a new one.")

    def begin_close(self) -> bool:
        """False if it is closed already, or being closed."""
        with self._lock:
            was_open, self._is_closed = not self._is_closed, True
        return was_open

    def partner_faulted(self, partner: Partner) -> list[Effect]:
        """Where a syphon runs, the other goes with it."""
        with self._lock:
            return [FaultPartner(partner), *(self._partnership.faulted(partner) if self.has_syphon else [])]

    def partner_closed(self, partner: Partner) -> list[Effect]:
        with self._lock:
            return [] if self._is_closed else self._partnership.closed(partner, self._clock.now())

    def advance(self, now: Millis) -> list[Effect]:
        with self._lock:
            return self._partnership.advance(now)

    def note_fault(self, partner: Partner, error: BaseException | None) -> None:
        """From now on every call raises it."""
        self._fault = PairFaulted(f"The {partner.value} of the pair is faulted: {error}", error=error)
        tell(self._options.on_event, PairingEvent(EventKind.FAULTED, self._clock.now(), error=error))
