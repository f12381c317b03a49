"""A script of faults: what goes wrong with which namespace or sender, when, and for how long. Values only; `fault_player` plays them.

Times are seconds since the first message was due. In each of the two namespaces faults come one after the other: while one is
in force no other starts there, so that whatever happens then has one cause.
"""

from collections.abc import Callable, Mapping, Sequence
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
BLINK_S = 0.6
"""Less than the failover interval of a rehearsal, however long it is."""
STORE_COUNT = 8
"""Messaging stores of each temporary namespace: enough that one of them is only a part."""


class Where(StrEnum):
    PRIMARY = "primary"
    SECONDARY = "secondary"
    SENDER = "sender"


class FaultKind(StrEnum):
    KILL = "kill"
    HANG = "hang"
    STORE_DOWN = "store-down"
    SLOW_STORE = "slow-store"
    DISCONNECT = "disconnect"
    COMMAND = "command"
    RESTART = "restart"

    @property
    def is_momentary(self) -> bool:
        """Nothing has to be undone afterwards."""
        return self in (FaultKind.DISCONNECT, FaultKind.RESTART)

    @property
    def is_of_the_process(self) -> bool:
        """Only who started the namespace can do this to it."""
        return self in (FaultKind.KILL, FaultKind.HANG)


@dataclass(frozen=True, slots=True)
class Fault:
    """`store` is None for every messaging store of the namespace; only faults of stores use it. `begin` and `end`: what is run for a
    COMMAND, as its words; `name`: what it does."""

    kind: FaultKind
    at_s: float
    duration_s: float = 0.0
    store: int | None = None
    slow_ms: int = SLOW_MS_DEFAULT
    where: Where = Where.PRIMARY
    name: str = ""
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()

    @property
    def end_s(self) -> float:
        return self.at_s + self.duration_s

    def __str__(self) -> str:
        which = "every messaging store" if self.store is None else f"messaging store {self.store}"
        whose = "" if self.where is Where.PRIMARY else f" of the {self.where}"
        match self.kind:
            case FaultKind.KILL:
                return f"the {self.where} is killed for {self.duration_s:.3g} s"
            case FaultKind.HANG:
                return f"the {self.where} hangs for {self.duration_s:.3g} s"
            case FaultKind.STORE_DOWN:
                return f"{which}{whose} is down for {self.duration_s:.3g} s"
            case FaultKind.SLOW_STORE:
                return f"{which}{whose} is {self.slow_ms} ms slower for {self.duration_s:.3g} s"
            case FaultKind.DISCONNECT:
                return f"every connection to the {self.where} is dropped"
            case FaultKind.RESTART:
                return "the paired sender is restarted"
            case FaultKind.COMMAND:
                return f"{self.name or ' '.join(self.begin)}, for {self.duration_s:.3g} s"


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
        for where in Where:
            for fault, following in pairwise(self.faults_of(where)):
                _require(
                    fault.end_s <= following.at_s,
                    f"'{following.kind}' at {following.at_s:g} s starts before '{fault.kind}' has ended. Only one fault "
                    "of a namespace may be in force at a time.",
                )
        last = max((fault.end_s for fault in self.faults), default=0.0)
        _require(last <= self.duration_s, f"The last fault ends at {last:g} s; the duration must be at least that.")

    def faults_of(self, where: Where) -> list[Fault]:
        return [fault for fault in self.faults if fault.where is where]

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
    return _in_proportion(
        duration_s,
        Fault(FaultKind.KILL, 5, 20),
        Fault(FaultKind.STORE_DOWN, 31, 5, store=1),
        Fault(FaultKind.SLOW_STORE, 41, 5, store=3),
    )


def dead_store(duration_s: float) -> Script:
    """The store of the ordinary queue and of some fragments of the partitioned one; then all of them."""
    return _in_proportion(
        duration_s,
        Fault(FaultKind.STORE_DOWN, 5, 18, store=1),
        Fault(FaultKind.STORE_DOWN, 30, 10),
    )


def hung(duration_s: float) -> Script:
    """Connections stay and are taken, and nothing is answered: the outage that only timeouts show."""
    return _in_proportion(duration_s, Fault(FaultKind.HANG, 5, 25))


def flapping(duration_s: float) -> Script:
    """Down for less than a failover interval, again and again, and then once for longer: only that is worth a failover."""
    short = min(1.0, BLINK_S * DURATION_DEFAULT_S / duration_s)
    blinks = [Fault(FaultKind.STORE_DOWN, 4 + 2.5 * number, short) for number in range(10)]
    return _in_proportion(duration_s, *blinks, Fault(FaultKind.STORE_DOWN, 32, 9), jitter_s=0.0)


def slow(duration_s: float) -> Script:
    """Late is not down: slower by more than the failover interval, and by less than a send may take."""
    return _in_proportion(duration_s, Fault(FaultKind.SLOW_STORE, 5, 30, slow_ms=1_500))


def secondary_fails(duration_s: float) -> Script:
    """The spare itself is away while it is needed, and then one of its stores is."""
    return _in_proportion(
        duration_s,
        Fault(FaultKind.KILL, 5, 30),
        Fault(FaultKind.KILL, 14, 4, where=Where.SECONDARY),
        Fault(FaultKind.STORE_DOWN, 24, 5, store=1, where=Where.SECONDARY),
    )


def sender_restarts(duration_s: float) -> Script:
    """What sends is restarted in the middle of an outage, and again while its sessions catch up."""
    return _in_proportion(
        duration_s,
        Fault(FaultKind.KILL, 5, 20),
        Fault(FaultKind.RESTART, 14, where=Where.SENDER),
        Fault(FaultKind.RESTART, 32, where=Where.SENDER),
    )


SCRIPTS: Mapping[str, Callable[[float], Script]] = {
    "outage": default_script,
    "dead-store": dead_store,
    "hung": hung,
    "flapping": flapping,
    "slow": slow,
    "secondary-fails": secondary_fails,
    "sender-restarts": sender_restarts,
}
"""Those that come with it, by name."""


def _in_proportion(duration_s: float, *faults: Fault, jitter_s: float = JITTER_DEFAULT_S) -> Script:
    """Faults for the default duration, stretched or shortened to another."""
    share = duration_s / DURATION_DEFAULT_S
    stretched = (replace(each, at_s=each.at_s * share, duration_s=each.duration_s * share) for each in faults)
    return Script(duration_s, tuple(stretched), jitter_s=jitter_s * share)


def jittered(script: Script, random: Random) -> Script:
    """Each fault starts up to `jitter_s` later, but still ends before the next one of its namespace starts."""
    moved: list[Fault] = []
    for where in Where:
        faults = script.faults_of(where)
        begins = [*(fault.at_s for fault in faults[1:]), script.duration_s]
        moved += [
            replace(fault, at_s=fault.at_s + random.random() * min(script.jitter_s, following - fault.end_s))
            for fault, following in zip(faults, begins, strict=False)
        ]
    return replace(script, faults=tuple(sorted(moved, key=lambda fault: fault.at_s)))


def _check_fault(fault: Fault) -> None:
    where = f"'{fault.kind}' at {fault.at_s:g} s"
    _require(fault.at_s >= 0, f"{where} starts before the rehearsal does.")
    if not fault.kind.is_momentary:
        _require(fault.duration_s > 0, f"{where} must last longer than zero seconds.")
    _require(
        (fault.kind is FaultKind.RESTART) == (fault.where is Where.SENDER),
        f"{where}: a sender is restarted, and nothing else can be done to it.",
    )
    _require(fault.store is None or fault.store >= 0, f"{where}: messaging stores are numbered from 0.")
    if fault.kind is FaultKind.COMMAND:
        _require(bool(fault.begin), f"{where} needs 'begin', the command that causes it.")
    else:
        _require(not (fault.begin or fault.end or fault.name), f"{where} has no commands and no name.")
    if fault.kind is FaultKind.SLOW_STORE:
        _require(0 < fault.slow_ms <= SLOW_MS_MAX, f"{where} must have from 1 to {SLOW_MS_MAX} ms.")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ArgumentError(otherwise)
