"""Deletes entities that nobody has used for their auto-delete duration: brokers say which, the control plane deletes them."""

import logging
from collections.abc import Callable, Iterable

from twinbus.clock import Millis
from twinbus.errors import MessagingError
from twinbus.management.catalog import path_of
from twinbus.management.control_plane import ControlPlane
from twinbus.model.descriptions import EntityDescription

log = logging.getLogger(__name__)

SWEEP_EVERY: Millis = 15_000


class IdleSweep:
    def __init__(self, control: ControlPlane, idle: Callable[[Millis], Iterable[EntityDescription]]) -> None:
        self._control = control
        self._idle = idle
        self._due: Millis = 0
        self._leaving: set[str] = set()

    def tick(self, now: Millis) -> Millis:
        """Returns when to call it again; calling it more often does no harm. If the clock was set back, it starts over."""
        if self._due - SWEEP_EVERY <= now < self._due:
            return self._due
        self._due = now + SWEEP_EVERY
        if not self._control.peers.is_first:
            return self._due
        for path in map(path_of, self._idle(now)):
            if path not in self._leaving:
                self._delete(path)
        return self._due

    def _delete(self, path: str) -> None:
        self._leaving.add(path)

        def answered(result: bool | MessagingError) -> None:
            self._leaving.discard(path)
            # After a failure the next sweep tries again.
            if result is not False:
                outcome = "deleted" if result is True else str(result)
                log.info("idle_entity", extra={"fields": {"path": path, "outcome": outcome}})

        self._control.submit(self._control.delete_if_idle(path), answered)
