"""What a process does when another one has changed the catalog that they share: paths in, entities that run as it says out.

The catalog is the truth, and following it is the same whatever has happened: an entity was created, changed or deleted, or a
process ended in the middle of that. So it may be asked any number of times.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.topic_entity import SubscriptionEntity, TopicEntity
from twinbus.broker.fragment.fragment import Fragment
from twinbus.clock import Clock
from twinbus.errors import EntityNotFound, InternalError, MessagingError, OperationInProgress
from twinbus.management.access_control import ACCESS
from twinbus.management.catalog import Catalog, Entry, path_of
from twinbus.management.own_process import WAIT_FOR_FRAGMENTS_S, restore_entity
from twinbus.management.rule_set import is_same_rule
from twinbus.management.waiting import answer_of
from twinbus.model.descriptions import SubscriptionDescription, TopicDescription
from twinbus.model.paths import parse_address, path_key

log = logging.getLogger(__name__)

LOADED_WAIT_S = 10.0
LOADED_POLL_S = 0.002
RULES_TOGETHER = 100
"""Compared or changed in one turn of the loop: some milliseconds."""


class Follower:
    """Who asks has the turn of the name, so nothing else changes it meanwhile."""

    def __init__(self, catalog: Catalog, entities: Entities, clock: Clock) -> None:
        self._catalog = catalog
        self._entities = entities
        self._clock = clock
        # Paths of which the catalog is remembered, and what runs is something else.
        self._not_followed: set[str] = set()

    async def follow(self, path: str) -> None:
        """Raises FragmentUnavailable if a store that it takes is lost."""
        await asyncio.to_thread(self._catalog.reread, path)
        await self._follow_with_what_is_below(path)

    async def follow_all(self, turn: Callable[[str], AbstractAsyncContextManager[None]]) -> bool:
        """Whatever has changed since this process looked last: it may have missed some of it. In the `turn` of each name, as nobody has
        asked. False if some of it could not be followed, since a store is lost, or somebody is changing it: then it is to be asked again, as
        after an error."""
        changed = await asyncio.to_thread(self._catalog.changed_elsewhere)
        is_followed = True
        for path in sorted({*changed.paths, *self._not_followed}, key=path_key):
            try:
                async with turn(path_key(parse_address(path).path)):
                    await asyncio.to_thread(self._catalog.reread, path)
                    await self._try_to_follow(path)
            except OperationInProgress:
                is_followed = False  # he tells this process before his change is answered
        if changed.has_access_rules:
            try:
                async with turn(ACCESS):
                    await self.follow_access_rules()
            except OperationInProgress:
                is_followed = False
        return is_followed and not self._not_followed

    async def _try_to_follow(self, path: str) -> None:
        try:
            await self._follow_with_what_is_below(path)
        except MessagingError as fault:
            if path not in self._not_followed:
                log.warning("entity_not_followed", extra={"fields": {"path": path, "reason": str(fault)}})
            self._not_followed.add(path)
            if self._is_another(path):
                self._entities.close(path)  # what it takes until it can be deleted would be lost
        else:
            self._not_followed.discard(path)

    def _is_another(self, path: str) -> bool:
        """Whether what runs at this path is not what the catalog has there."""
        entry, running = self._catalog.find(path), self._running(path)
        return running is not None and (entry is None or entry.id != running.id)

    async def delete(self, path: str, *, is_closed: bool = False) -> None:
        """The fragments of this process; the catalog still has the entity, and `follow` decides what becomes of it. `is_closed`: raises
        OperationInProgress if it may have been used since it was closed."""
        if is_closed and self._running(path) is not None and not self._entities.is_leaving(path):
            raise OperationInProgress(f"'{path}' may have been used since it was found idle. It stays.")
        with suppress(EntityNotFound):
            await self._delete(path)

    async def follow_access_rules(self) -> None:
        await asyncio.to_thread(self._catalog.reread_access_rules)

    async def _follow_with_what_is_below(self, path: str) -> None:
        await self._follow_entry(path)
        entry = self._catalog.find(path)
        if entry is not None and isinstance(entry.description, TopicDescription):
            running = self._entities.topic(entry.description.name).subscriptions.values()
            known = {path_of(each.description) for each in self._catalog.subscriptions(path)}
            for each in known | {path_of(subscription.description) for subscription in running}:
                await self._follow_entry(each)

    async def _follow_entry(self, path: str) -> None:
        if self._is_another(path):
            await self._delete(path)
        entry, running = self._catalog.find(path), self._running(path)
        if entry is None:
            return
        if running is None:
            restore_entity(entry, self._entities, self._clock.now())
            created = self._running(path)
            assert created is not None
            # It was created just now, and not before this process was started: nobody has used it through this one.
            created.settings.last_used_at = 0
            await _loaded(created.fragments)
            return
        self._entities.reopen(path)  # if it was closed: it is not deleted after all
        if running.description != entry.description:
            update = self._entities.update
            await self._ask(lambda reply: update(entry.description, self._clock.now(), reply, None))
        if isinstance(running, SubscriptionEntity):
            await self._follow_rules(entry, running)

    async def _follow_rules(self, entry: Entry, running: SubscriptionEntity) -> None:
        """In steps, since there may be many thousand. Nobody else changes them meanwhile."""
        assert isinstance(entry.description, SubscriptionDescription)
        topic, name = entry.description.topic, entry.description.name
        wanted = {path_key(rule.name): rule for rule in entry.rules}
        before = dict(running.rules)
        for place, (key, rule) in enumerate(before.items(), 1):
            if not is_same_rule(wanted.get(key), rule):
                self._entities.remove_rule(topic, name, rule.name)
            if place % RULES_TOGETHER == 0:
                await asyncio.sleep(0)
        for place, (key, rule) in enumerate(wanted.items(), 1):
            if not is_same_rule(before.get(key), rule):
                self._entities.add_rule(topic, name, rule)
            if place % RULES_TOGETHER == 0:
                await asyncio.sleep(0)

    async def _delete(self, path: str) -> None:
        address = parse_address(path)
        if address.subscription is None:
            await self._ask(lambda reply: self._entities.delete(path, self._clock.now(), reply, None))
        else:
            topic, name = address.path, address.subscription
            delete = self._entities.delete_subscription
            await self._ask(lambda reply: delete(topic, name, self._clock.now(), reply, None))

    def _running(self, path: str) -> QueueEntity | TopicEntity | SubscriptionEntity | None:
        address = parse_address(path)
        if address.subscription is None:
            return self._entities.find(path)
        with suppress(EntityNotFound):
            return self._entities.subscription(address.path, address.subscription)
        return None

    async def _ask(self, request: Any) -> Any:
        late = InternalError("A messaging store did not answer in time. Look at its state and try again.")
        return await answer_of(request, WAIT_FOR_FRAGMENTS_S, late)


async def _loaded(fragments: Sequence[Fragment]) -> None:
    """Raises FragmentUnavailable if a store of this process is lost before its fragments are there."""
    own = [fragment for fragment in fragments if not fragment.broker.is_foreign]
    deadline = asyncio.get_running_loop().time() + LOADED_WAIT_S
    while not all(fragment.is_available for fragment in own):
        for fragment in own:
            if not fragment.broker.is_available or asyncio.get_running_loop().time() > deadline:
                raise fragment.broker.unavailable()
        await asyncio.sleep(LOADED_POLL_S)
