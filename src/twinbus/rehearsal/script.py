"""A script of faults: what goes wrong with the primary, when, and for how long. Values only; `fault_player` plays them.

Times are seconds since the first message was due. Faults come one after the other: while one is in force no other
starts, so that whatever happens then has one cause.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from random import Random

from twinbus.errors import ArgumentError

DURATION_DEFAULT_S = 50.0
DURATION_MAX_S = 24 * 3600.0
JITTER_DEFAULT_S = 1.0
SLOW_MS_DEFAULT = 80
SLOW_MS_MAX = 60_000
STORE_COUNT = 8
"""Messaging stores of each temporary namespace: enough that one of them is only a part."""


class FaultKind(StrEnum):
    KILL = "kill"
    STORE_DOWN = "store-down"
    SLOW_STORE = "slow-store"
    DISCONNECT = "disconnect"

    @property
    def is_momentary(self) -> bool:
        """Nothing has to be undone afterwards."""
        return self is FaultKind.DISCONNECT


@dataclass(frozen=True, slots=True)
class Fault:
    """`store` is None for every messaging store of the primary; only faults of stores use it."""

    kind: FaultKind
    at_s: float
    duration_s: float = 0.0
    store: int | None = None
    slow_ms: int = SLOW_MS_DEFAULT

    @property
    def end_s(self) -> float:
        return self.at_s + self.duration_s

    def __str__(self) -> str:
        which = "every messaging store" if self.store is None else f"messaging store {self.store}"
        match self.kind:
            case FaultKind.KILL:
                return f"the primary is killed for {self.duration_s:.3g} s"
            case FaultKind.STORE_DOWN:
                return f"{which} is down for {self.duration_s:.3g} s"
            case FaultKind.SLOW_STORE:
                return f"{which} is {self.slow_ms} ms slower for {self.duration_s:.3g} s"
            case FaultKind.DISCONNECT:
                return "every connection to the primary is dropped"


@dataclass(frozen=True, slots=True)
class Script:
    """`jitter_s`: by how much the seed may delay each fault."""

    duration_s: float
    faults: tuple[Fault, ...] = ()
    jitter_s: float = JITTER_DEFAULT_S

    def __post_init__(self) -> None:
        _require(
            0 < self.duration_s <= DURATION_MAX_S,
            f"The duration must be more than 0 and at most {DURATION_MAX_S:.0f} seconds.",
        )
        _require(self.jitter_s >= 0, "The jitter of a script cannot be negative.")
        for fault in self.faults:
            _check_fault(fault)
        for fault, following in pairwise(self.faults):
            _require(
                fault.end_s <= following.at_s,
                f"'{following.kind}' at {following.at_s:g} s starts before '{fault.kind}' has ended. Only one fault "
                "may be in force at a time.",
            )
        last = max((fault.end_s for fault in self.faults), default=0.0)
        _require(last <= self.duration_s, f"The last fault ends at {last:g} s; the duration must be at least that.")

    @property
    def kinds(self) -> frozenset[FaultKind]:
        return frozenset(fault.kind for fault in self.faults)

    def only(self, allowed: Sequence[FaultKind]) -> "Script":
        return replace(self, faults=tuple(fault for fault in self.faults if fault.kind in allowed))


def default_script(duration_s: float = DURATION_DEFAULT_S) -> Script:
    """An outage, then one messaging store down, then a slow one; in proportion, whatever the duration.

    In a new namespace entities are in stores 1, 2, 3 … in the order of their creation: the ordinary queue is in the store that
    goes down, the queue with message sessions in the slow one.
    """
    share = duration_s / DURATION_DEFAULT_S
    return Script(
        duration_s,
        (
            Fault(FaultKind.KILL, 5 * share, 20 * share),
            Fault(FaultKind.STORE_DOWN, 31 * share, 5 * share, store=1),
            Fault(FaultKind.SLOW_STORE, 41 * share, 5 * share, store=3),
        ),
        jitter_s=JITTER_DEFAULT_S * share,
    )


def jittered(script: Script, random: Random) -> Script:
    """Each fault starts up to `jitter_s` later, but still ends before the next starts."""
    begins = [*(fault.at_s for fault in script.faults[1:]), script.duration_s]
    faults = tuple(
        replace(fault, at_s=fault.at_s + random.random() * min(script.jitter_s, following - fault.end_s))
        for fault, following in zip(script.faults, begins, strict=False)
    )
    return replace(script, faults=faults)


def _check_fault(fault: Fault) -> None:
    where = f"'{fault.kind}' at {fault.at_s:g} s"
    _require(fault.at_s >= 0, f"{where} starts before the rehearsal does.")
    if not fault.kind.is_momentary:
        _require(fault.duration_s > 0, f"{where} must last longer than zero seconds.")
    _require(fault.store is None or fault.store >= 0, f"{where}: messaging stores are numbered from 0.")
    if fault.kind is FaultKind.SLOW_STORE:
        _require(0 < fault.slow_ms <= SLOW_MS_MAX, f"{where} must have from 1 to {SLOW_MS_MAX} ms.")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArgumentError(otherwise)
