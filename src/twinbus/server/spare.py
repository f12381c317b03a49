"""A namespace in PostgreSQL that another process serves: wait until it does not, and take it over.

A spare takes over when it reaches more than half of the stores and nobody owns any of those it reaches. So an owner that has
lost one of several databases is left alone, and two spares that are cut from each other cannot both begin. Who begins is decided
by the lease of the catalog, which only one of them gets; that nothing is lost or given out twice, by the fence of each store.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from twinbus.errors import ArgumentError, StoreUnavailable

if TYPE_CHECKING:
    from twinbus.store.postgres.lease import LeaseState
    from twinbus.store.postgres.place import Owner, PostgresPlace

POLL_S = 0.5

log = logging.getLogger(__name__)


class Spare:
    """Waits for one namespace, as often as need be. The first look raises ArgumentError for what does not get better by
    waiting."""

    def __init__(self, places: "Sequence[PostgresPlace]", owner: "Owner") -> None:
        self._places = places
        self._owner = owner
        self._said = ""
        self.has_waited = False
        """The addresses are right then: what cannot be reached now could be reached before, or will be."""

    async def wait(self, stop: asyncio.Event) -> bool:
        """True when the namespace may be taken over; False if `stop` was set before."""
        while not stop.is_set():
            states, fault = await asyncio.to_thread(self._look)
            if fault is not None and not self.has_waited and (not fault.is_transient or not states):
                raise ArgumentError(str(fault)) from fault
            owners = {state.owner for state in states} - {""}
            if not owners and 2 * len(states) > len(self._places):
                return True
            self.has_waited = True
            self._say(sorted(owners), len(states))
            await self.pause(stop)
        return False

    async def pause(self, stop: asyncio.Event) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), POLL_S)

    def _say(self, owners: list[str], reached: int) -> None:
        text = f"{'; '.join(owners)} {reached}"
        if text != self._said:
            self._said = text
            log.info("waiting_as_spare", extra={"fields": {"owner": "; ".join(owners), "stores_reached": reached}})

    def _look(self) -> "tuple[list[LeaseState], StoreUnavailable | None]":
        from twinbus.store.postgres.lease import lease_states

        states: list[LeaseState] = []
        fault: StoreUnavailable | None = None
        for dsn in dict.fromkeys(place.dsn for place in self._places):
            try:
                states += lease_states(dsn, [place for place in self._places if place.dsn == dsn], self._owner)
            except StoreUnavailable as error:
                fault = fault or error
        return states, fault
