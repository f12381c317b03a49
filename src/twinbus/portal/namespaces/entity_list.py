"""All entities of a namespace: its administration API in, queues, topics and subscriptions out, in the order of their names."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote
from weakref import WeakKeyDictionary

from twinbus.errors import EntityNotFound
from twinbus.model.paths import parse_address, path_key
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.namespaces.entity_xml import Entity, EntityType, read_feed

API_VERSION = "2021-05"
PAGE = 100
PAGES_MAX = 200
AT_ONCE = 4
KEPT_S = 2.0
"""A listing is used again for this long, so that clicking around costs the namespace little."""


@dataclass(slots=True)
class EntityList:
    entities: list[Entity] = field(default_factory=list)
    is_all: bool = True  # False: the namespace has more than the portal reads

    def at(self, path: str) -> Entity:
        """Raises EntityNotFound."""
        wanted = path_key(path)
        for each in self.entities:
            if path_key(each.path) == wanted:
                return each
        raise EntityNotFound.at(path)

    def subscriptions(self, topic: str) -> list[Entity]:
        wanted = path_key(topic)
        return [each for each in self.entities if each.topic is not None and path_key(each.topic) == wanted]


class EntityLists:
    """Listings by namespace, each kept for a moment. One listing at a time is made for all who wait for it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now = monotonic
        self._kept: WeakKeyDictionary[Bus, tuple[float, EntityList]] = WeakKeyDictionary()
        self._first_dead: WeakKeyDictionary[Bus, dict[str, int]] = WeakKeyDictionary()
        self._listing: WeakKeyDictionary[Bus, asyncio.Task[EntityList]] = WeakKeyDictionary()

    async def of(self, bus: Bus) -> EntityList:
        at_s, kept = self._kept.get(bus, (float("-inf"), EntityList()))
        if self._now() - at_s < KEPT_S:
            return kept
        return await self.fresh(bus)

    async def fresh(self, bus: Bus) -> EntityList:
        """As it is now, or as a listing that is under way finds it."""
        task = self._listing.get(bus)
        if task is None or task.done():
            task = self._listing[bus] = asyncio.create_task(self._list(bus))
        return await asyncio.shield(task)

    def last(self, bus: Bus, path: str) -> Entity | None:
        """The entity as the last listing had it; None if it had none."""
        _, kept = self._kept.get(bus, (0.0, EntityList()))
        wanted = path_key(path)
        return next((each for each in kept.entities if path_key(each.path) == wanted), None)

    def new_dead_letters(self, bus: Bus) -> dict[str, int]:
        """By path: how many more there are than when the portal first looked."""
        _, kept = self._kept.get(bus, (0.0, EntityList()))
        first = self._first_dead.get(bus, {})
        counts = ((each.path, (each.dead_letters or 0) - first.get(each.path, 0)) for each in kept.entities)
        return {path: count for path, count in counts if count > 0}

    def changed(self, bus: Bus) -> None:
        """An entity was created, updated or deleted: read anew."""
        self._kept.pop(bus, None)

    async def _list(self, bus: Bus) -> EntityList:
        found = await list_entities(bus)
        self._kept[bus] = self._now(), found
        self._first_dead.setdefault(bus, {each.path: each.dead_letters or 0 for each in found.entities})
        return found


async def list_entities(bus: Bus) -> EntityList:
    queues, topics = await asyncio.gather(
        _feed(bus, "/$Resources/queues", EntityType.QUEUE), _feed(bus, "/$Resources/topics", EntityType.TOPIC)
    )
    turns = asyncio.Semaphore(AT_ONCE)

    async def subscriptions(topic: Entity) -> tuple[list[Entity], bool]:
        if topic.number("SubscriptionCount") == 0:
            return [], True
        async with turns:
            return await _feed(bus, f"/{quote(topic.name)}/Subscriptions", EntityType.SUBSCRIPTION, topic.name)

    below = await asyncio.gather(*map(subscriptions, topics[0]))
    entities = [*queues[0]]
    for topic, (found, _) in zip(topics[0], below, strict=True):
        entities += [topic, *found]
    return EntityList(entities, all((queues[1], topics[1], *(is_all for _, is_all in below))))


async def read_entity(bus: Bus, path: str) -> Entity:
    """One entity as it is now. Raises EntityNotFound."""
    address = parse_address(path)
    topic = address.path if address.subscription is not None else None
    kind = EntityType.SUBSCRIPTION if topic is not None else EntityType.QUEUE
    text = await bus.text(f"/{quote(address.entity_path)}", {"api-version": API_VERSION, "enrich": "False"})
    if topic is None and "<TopicDescription" in text:
        kind = EntityType.TOPIC
    found = read_feed(text, kind, topic)
    if len(found) != 1 or "<feed" in text[:200]:
        raise EntityNotFound.at(path)
    return found[0]


async def _feed(bus: Bus, path: str, kind: EntityType, topic: str | None = None) -> tuple[list[Entity], bool]:
    found: list[Entity] = []
    for page in range(PAGES_MAX):
        query = {"api-version": API_VERSION, "$skip": str(page * PAGE), "$top": str(PAGE)}
        part = read_feed(await bus.text(path, query), kind, topic)
        found += part
        if len(part) < PAGE:
            return found, True
    return found, False
