"""Two clients that work for one syphon: when one goes, what becomes of the other and of the pumps.

both open --one faults--> fault the other at once, stop the pumps
both open --one closes--> 5 s grace --the other closes too--> over
                                    --grace ends----------> fault the open one, stop the pumps
"""

from dataclasses import dataclass, field
from enum import Enum

from twinbus.clock import NEVER, Millis


class Partner(Enum):
    PRIMARY = "primary"
    SECONDARY = "secondary"

    @property
    def other(self) -> "Partner":
        return Partner.SECONDARY if self is Partner.PRIMARY else Partner.PRIMARY


class PartnerState(Enum):
    OPEN = "open"
    CLOSED = "closed"
    FAULTED = "faulted"


@dataclass(frozen=True, slots=True)
class FaultPartner:
    partner: Partner


@dataclass(frozen=True, slots=True)
class StopPumps:
    pass


Effect = FaultPartner | StopPumps


@dataclass(slots=True)
class Partnership:
    """Told what happened to a client; returns what is to be done about the other. Each effect comes once."""

    grace: Millis
    states: dict[Partner, PartnerState] = field(default_factory=lambda: dict.fromkeys(Partner, PartnerState.OPEN))
    grace_ends_at: Millis = NEVER

    def faulted(self, partner: Partner) -> list[Effect]:
        if self.states[partner] is PartnerState.FAULTED:
            return []
        was_first = PartnerState.FAULTED not in self.states.values()
        self.states[partner] = PartnerState.FAULTED
        return [*self._fault_other(partner), *([StopPumps()] if was_first else [])]

    def closed(self, partner: Partner, now: Millis) -> list[Effect]:
        if self.states[partner] is not PartnerState.OPEN:
            return []
        self.states[partner] = PartnerState.CLOSED
        if self.states[partner.other] is PartnerState.OPEN:
            self.grace_ends_at = now + self.grace
            return []
        is_first_end = self.states[partner.other] is PartnerState.CLOSED
        self.grace_ends_at = NEVER
        return [StopPumps()] if is_first_end else []

    def advance(self, now: Millis) -> list[Effect]:
        if now < self.grace_ends_at:
            return []
        self.grace_ends_at = NEVER
        closed = next(partner for partner, state in self.states.items() if state is PartnerState.CLOSED)
        return [*self._fault_other(closed), StopPumps()]

    def _fault_other(self, partner: Partner) -> list[Effect]:
        if self.states[partner.other] is not PartnerState.OPEN:
            return []
        self.states[partner.other] = PartnerState.FAULTED
        self.grace_ends_at = NEVER
        return [FaultPartner(partner.other)]
