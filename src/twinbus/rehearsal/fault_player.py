"""Plays the script: starts each fault on time, ends it after its duration, and records when that actually happened."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from twinbus.rehearsal.interruption import WaitedThread
from twinbus.rehearsal.script import Fault, FaultKind, Script
from twinbus.rehearsal.sends import Span
from twinbus.rehearsal.stage import Stage

Tell = Callable[[Fault, bool], None]
"""Called with a fault, and whether it ends now rather than starts."""


@dataclass(frozen=True, slots=True)
class PlayedFault:
    """`span` is measured: the fault of a killed namespace ends when it serves again."""

    fault: Fault
    span: Span


class FaultPlayer:
    """Runs from `start` until `wait` returns or `stop` is called. A fault in force at that time is ended. `restart` restarts
    the paired sender, which may have to wait for a namespace: on a thread of its own."""

    def __init__(self, stage: Stage, script: Script, tell: Tell, restart: Callable[[], None]) -> None:
        self.played: list[PlayedFault] = []
        self._stage = stage
        self._script = script
        self._tell = tell
        self._restart = restart
        self._restarts: list[WaitedThread] = []
        self._stopping = threading.Event()
        self._broken: BaseException | None = None
        self._thread = WaitedThread(target=self._guard, name="fault-player")

    def start(self, started_at: float) -> None:
        self._started_at = started_at
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.wait_end()
        for restart in self._restarts:
            restart.wait_end()

    def wait(self) -> None:
        """Wait until the last fault is over. Raises the error if a fault could not be played."""
        self.join()
        if self._broken is not None:
            raise self._broken

    def _guard(self) -> None:
        """From one moment to the next. Faults of the two namespaces overlap; whatever happens, each that began is ended."""
        begun: dict[Fault, float] = {}
        try:
            for at_s, is_end, fault in sorted(_moments(self._script.faults), key=lambda moment: moment[:2]):
                # A namespace takes a while to start again; what comes after it is late, and not shorter.
                due_s = begun[fault] + fault.duration_s if is_end else at_s
                if self._stopping.wait(max(0.0, due_s - self._now())):
                    break
                if is_end:
                    self._end(fault, begun.pop(fault))
                else:
                    begun[fault] = self._begin(fault)
            for fault in list(begun):
                self._end(fault, begun.pop(fault))
        except BaseException as broken:
            self._broken = broken

    def _begin(self, fault: Fault) -> float:
        begin_s = self._now()
        if fault.kind is FaultKind.RESTART:
            self._restarts.append(restart := WaitedThread(target=self._guarded_restart, name="sender-restart"))
            restart.start()
        else:
            self._stage.begin(fault)
        self._tell(fault, False)
        return begin_s

    def _end(self, fault: Fault, begin_s: float) -> None:
        if not fault.kind.is_momentary:
            self._stage.mend(fault)
        self.played.append(PlayedFault(fault, Span(begin_s, self._now())))
        self.played.sort(key=lambda each: each.span.begin_s)
        if not fault.kind.is_momentary:
            self._tell(fault, True)

    def _guarded_restart(self) -> None:
        try:
            self._restart()
        except BaseException as broken:
            self._broken = broken

    def _now(self) -> float:
        return time.monotonic() - self._started_at


def _moments(faults: Iterable[Fault]) -> Iterator[tuple[float, bool, Fault]]:
    """When each begins and ends; `True` for an end."""
    for fault in faults:
        yield fault.at_s, False, fault
        yield fault.end_s, True, fault
