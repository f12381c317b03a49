"""How a namespace is doing over time: asked again and again while someone looks, and not at all otherwise.

A twinbus namespace answers with the few metrics that are needed. How long it takes decides how soon it is asked again, so that
watching costs it well under a hundredth of a core however many entities it has. Elsewhere rates are not known.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from twinbus.errors import NotImplementedHere
from twinbus.model.paths import path_key
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.namespaces.metrics_text import read_metrics
from twinbus.portal.namespaces.sentences import sentence_of

INTERVAL_S = 2.0
COST_SHARE = 1 / 200
"""Of the time, at most this much is spent on answering us."""
INTERVAL_MAX_S = 60.0
KEPT_COUNT = 90
STALE_S = 20.0
MESSAGES_IN, MESSAGES_OUT = "twinbus_entity_messages_in_total", "twinbus_entity_messages_out_total"
LOCKS_LOST, RECEIVERS = "twinbus_entity_locks_lost_total", "twinbus_entity_receivers"
WANTED = (
    MESSAGES_IN,
    MESSAGES_OUT,
    "twinbus_connections",
    LOCKS_LOST,
    RECEIVERS,
    "twinbus_store_up",
)
"""Of entities only those that are used have any of these, so asking for them costs little however many there are."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer. `problem` says why there is none."""

    at_s: float
    health: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    problem: str | None = None
    is_elsewhere: bool = False  # not twinbus: it reports neither health nor rates

    def of(self, name: str, path: str) -> float:
        """Of an entity; traffic is counted by its path in lower case, and the rest by the path as it was created."""
        found = self.metrics.get(name, {})
        return found.get(path, found.get(path_key(path), 0.0))

    def sum(self, name: str) -> float:
        return sum(self.metrics.get(name, {}).values())


class Watch:
    def __init__(self, bus: Bus, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._now = monotonic
        self._lookers = 0
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._readings: deque[Reading] = deque(maxlen=KEPT_COUNT)

    @property
    def last(self) -> Reading | None:
        return self._readings[-1] if self._readings else None

    async def now(self) -> Reading:
        """A reading that is not older than a few seconds."""
        last = self.last
        if last is None or self._now() - last.at_s > STALE_S:
            await self._read()
            last = self.last
        assert last is not None
        return last

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """While this is open the namespace is watched."""
        self._lookers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._lookers -= 1
            if self._lookers == 0:
                self._task.cancel()

    async def changed(self) -> Reading:
        """The next reading."""
        await self._changed.wait()
        last = self.last
        assert last is not None
        return last

    def rates(self, name: str, entity: str | None = None) -> list[float]:
        """Of a counter, a second, from one reading to the next; the newest last."""
        found = []
        readings = list(self._readings)
        for before, after in pairwise(readings):
            if before.problem is None and after.problem is None and after.at_s > before.at_s:
                # Negative after a restart, when counters begin at zero.
                found.append(
                    max(0.0, (_value(after, name, entity) - _value(before, name, entity)) / (after.at_s - before.at_s))
                )
            else:
                found.append(0.0)
        return found

    def growth(self, name: str) -> dict[str, float]:
        """By entity, since the first reading that is kept."""
        readings = [each for each in self._readings if each.problem is None]
        if len(readings) < 2:
            return {}
        first, last = readings[0].metrics.get(name, {}), readings[-1].metrics.get(name, {})
        return {
            entity: value - first.get(entity, 0.0) for entity, value in last.items() if value > first.get(entity, 0.0)
        }

    async def _watch(self) -> None:
        while True:
            before = self._now()
            await self._read()
            took = self._now() - before
            await asyncio.sleep(min(INTERVAL_MAX_S, max(INTERVAL_S, took / COST_SHARE)))

    async def _read(self) -> None:
        try:
            health = await self._bus.health()
            text = await self._bus.text("/metrics?" + "&".join(f"name[]={name}" for name in WANTED))
            reading = Reading(self._now(), health, read_metrics(text))
        except NotImplementedHere:
            reading = Reading(self._now(), is_elsewhere=True)
        except Exception as error:  # whatever it is, a page has to say it instead of breaking
            said = sentence_of(error) or f"The response of the namespace was unexpected: {error!r}."
            reading = Reading(self._now(), problem=said)
        self._readings.append(reading)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _value(reading: Reading, name: str, entity: str | None) -> float:
    return reading.sum(name) if entity is None else reading.of(name, entity)
