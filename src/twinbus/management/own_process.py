"""What runs in this process, as the control plane needs it, beside that of the others (`peers`): it is registered with the brokers when the
process starts, asked for what is changed, and made what the catalog says again when a change has failed.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from twinbus.broker.entity.entities import Entities
from twinbus.broker.replies import Reply
from twinbus.clock import Clock, Millis
from twinbus.errors import EntityNotFound, InternalError, MessagingError
from twinbus.management.catalog import Catalog, Entry, path_of
from twinbus.management.runtime import Runtime
from twinbus.management.waiting import answer_of
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.paths import parse_address

log = logging.getLogger(__name__)

AGAIN_S = 5.0
"""Until it is tried again to follow the catalog, after a failure."""
WAIT_FOR_FRAGMENTS_S = 60.0


class OwnProcess:
    """`turn`: of a name. Whoever calls has it."""

    def __init__(
        self,
        catalog: Catalog,
        runtime: Runtime,
        clock: Clock,
        turn: Callable[[str], AbstractAsyncContextManager[None]],
    ) -> None:
        self._catalog = catalog
        self._runtime = runtime
        self._clock = clock
        self._turn = turn
        self._not_followed: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Nothing is served here any more. What could not be followed is what the catalog says when it is served again."""
        self._is_closed = True
        for task in self._not_followed.values():
            task.cancel()

    async def ask(self, request: Callable[[Reply[Any]], None]) -> Any:
        late = InternalError("A messaging store did not answer in time. Look at its state and try again.")
        return await answer_of(request, WAIT_FOR_FRAGMENTS_S, late)

    async def delete(self, path: str, elsewhere: Collection[int] | None) -> None:
        """If it runs."""
        address, now = parse_address(path), self._clock.now()
        with suppress(EntityNotFound):
            if address.subscription is None:
                await self.ask(lambda reply: self._runtime.delete(path, now, reply, elsewhere))
            else:
                topic, name = address.path, address.subscription
                await self.ask(lambda reply: self._runtime.delete_subscription(topic, name, now, reply, elsewhere))

    async def follow_anyway(self, path: str) -> None:
        """A change failed, and nobody knows how much of it was done: what is gone comes back empty, and what should not be there goes. If
        that cannot be done now, it is done later."""
        try:
            await asyncio.to_thread(self._catalog.reread, path)  # the answer to a change may have been lost
        except MessagingError as fault:
            _not_followed(path, fault)
            if self._catalog.find(path) is None:
                await self.followed(path)  # it would accept messages and lose them at the next start
            self._follow_later(path)
        else:
            await self.followed(path)

    async def followed(self, path: str) -> None:
        """What is there, or not there any more, is what the catalog is known to say: now or later."""
        try:
            await self._follow(path)
        except MessagingError as fault:
            _not_followed(path, fault)
            self._follow_later(path)

    async def _follow(self, path: str) -> None:
        entry = self._catalog.find(path)
        if entry is None:
            await self.delete(path, None)
            return
        for each in [entry, *self._catalog.subscriptions(path)]:
            if self._runtime.name_at(path_of(each.description)) is None:
                restore_entity(each, self._runtime, self._clock.now())
        self._runtime.reopen(path)

    def _follow_later(self, path: str) -> None:
        if path not in self._not_followed and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self._follow_until_done(path))
            self._not_followed[path] = task
            task.add_done_callback(lambda _: self._not_followed.pop(path))

    async def _follow_until_done(self, path: str) -> None:
        is_followed = False
        while not is_followed:
            await asyncio.sleep(AGAIN_S)
            with suppress(MessagingError):
                async with self._turn(parse_address(path).path):
                    await asyncio.to_thread(self._catalog.reread, path)
                    await self._follow(path)
                    is_followed = True


def _not_followed(path: str, fault: MessagingError) -> None:
    log.warning("change_not_followed", extra={"fields": {"path": path, "reason": str(fault)}})


def restore(catalog: Catalog, entities: Entities, now: Millis, changing: Iterable[str] = ()) -> None:
    """Register what exists with the brokers at start, before they load their fragments. Topics come before what is below them.

    `changing`: names whose turn another process has. It may be deleting for want of use what is used here from now on, so that is closed
    until this process has followed.
    """
    for kind in (QueueDescription, TopicDescription, SubscriptionDescription):
        for entry in catalog.entries(kind):
            restore_entity(entry, entities, now)
    for name in changing:
        with suppress(EntityNotFound):
            entities.close(name)


def restore_entity(entry: Entry, entities: Runtime, now: Millis) -> None:
    match entry.description:
        case QueueDescription() as queue:
            entities.restore_queue(entry.id, queue, now, entry.first_store)
        case TopicDescription() as topic:
            entities.restore_topic(entry.id, topic, now, entry.first_store)
        case SubscriptionDescription() as subscription:
            entities.restore_subscription(entry.id, subscription, entry.rules, now)
