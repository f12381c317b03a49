"""Creates, changes and deletes entities: descriptions go in, and what exists afterwards is both durable and running.

    check  ->  every fragment (the brokers)  ->  catalog  ->  answer

The order makes a crash harmless: fragments without a catalog entry are never found, since their id is not given out
again, and a catalog entry whose fragments are gone creates them again, empty. Changes to one entity (a topic with
all that is below it) wait for one another; changes to different ones do not.

What is deleted because nobody uses it goes the other way: it leaves the catalog first, and then every fragment goes. Nobody has asked for
it, so nothing in it may be lost if it stays, and it stays unless the catalog says that it is gone, whatever fails. Until then all
processes refuse to have it used; a crash behind that leaves fragments that are never found.

Several processes may serve one namespace (`peers`): the one that is asked makes the change, and the others follow the catalog.

Lives on the event loop. Waiting for the disk happens on a thread of its own.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from twinbus.broker.replies import Reply
from twinbus.clock import Clock
from twinbus.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    MessagingError,
)
from twinbus.management.catalog import Catalog, Entry, path_of
from twinbus.management.forward_targets import check_forwarding
from twinbus.management.own_process import OwnProcess
from twinbus.management.peers import NO_PEERS, Peers
from twinbus.management.quotas import check_room_for_entity, check_room_for_rules, check_room_for_subscription
from twinbus.management.runtime import Counting, Placed, Runtime
from twinbus.management.validation import DEFAULT_RULES, check_description, check_rule, check_update
from twinbus.management.waiting import Turns
from twinbus.model.descriptions import (
    CorrelationFilter,
    EntityDescription,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.paths import parse_address, path_key, subscription_path

log = logging.getLogger(__name__)

T = TypeVar("T")
Create: TypeAlias = Callable[[int, Any, int, Reply[Any], Collection[int] | None], None]

CREATION = "$creation"
"""No entity has this name."""
WAIT_FOR_TURN_S = 30.0


class ControlPlane:
    def __init__(
        self,
        catalog: Catalog,
        runtime: Runtime,
        clock: Clock,
        peers: Peers = NO_PEERS,
        counting: Counting | None = None,
    ) -> None:
        """`counting` counts entities of which other processes have a part."""
        self.catalog = catalog
        self.peers = peers
        self.counting = counting or runtime
        self.runtime = runtime
        self.clock = clock
        self._turns = Turns(WAIT_FOR_TURN_S)
        self._submitted: set[asyncio.Task[None]] = set()
        self._being_made: dict[str, QueueDescription | TopicDescription] = {}
        self._own = OwnProcess(catalog, runtime, clock, self._turn_of)

    def close(self) -> None:
        """Before the catalog."""
        self._own.close()

    async def create_queue(self, description: QueueDescription) -> Entry:
        return await self._create(description, self.runtime.create_queue)

    async def create_topic(self, description: TopicDescription) -> Entry:
        return await self._create(description, self.runtime.create_topic)

    async def _create(self, description: Any, create: Create) -> Entry:
        check_description(description)
        # The second turn is that of the quota: no two processes fill the last place.
        async with self._turn_of(description.name), self.peers.turn(CREATION):
            self._check_name_is_free(description)
            check_room_for_entity(self.catalog, description, self._being_made.values())
            check_forwarding(self.catalog, description)
            await self._own.delete(description.name, None)  # what an earlier deletion could not reach
            self._being_made[description.name] = description
            try:
                return await self._make(description, create)
            finally:
                del self._being_made[description.name]

    async def _make(self, description: Any, create: Create) -> Entry:
        elsewhere = await self.peers.available_stores()
        entity_id = await self._write(self.catalog.new_id)
        created: Placed = await self._own.ask(
            lambda reply: create(entity_id, description, self.clock.now(), reply, elsewhere)
        )
        first_store = created.first_store
        try:
            entry = await self._write(
                lambda: self.catalog.add(entity_id, description, self.clock.now(), first_store=first_store)
            )
            await self._followed_everywhere(description.name)
        except MessagingError:
            await self._undo_creation(description.name)
            raise
        return entry

    async def create_subscription(
        self, description: SubscriptionDescription, rules: Sequence[RuleDescription] = DEFAULT_RULES
    ) -> Entry:
        """With these rules from the first moment."""
        check_description(description)
        rules = tuple(replace(rule, created_at=self.clock.now()) for rule in rules)
        for rule in rules:
            check_rule(rule)
        async with self._turn_of(description.topic):
            topic = self.topic(description.topic)
            description = replace(description, topic=topic.name)
            self._check_name_is_free(description)
            check_room_for_subscription(self.catalog, topic.name)
            check_room_for_rules(self.catalog, topic.name, rules)
            check_forwarding(self.catalog, description)
            await self._own.delete(path_of(description), None)  # what an earlier deletion could not reach
            elsewhere = await self.peers.available_stores()
            entity_id = await self._write(self.catalog.new_id)
            now = self.clock.now()
            create = self.runtime.create_subscription
            await self._own.ask(lambda reply: create(entity_id, description, rules, now, reply, elsewhere))
            try:
                entry = await self._write(lambda: self.catalog.add(entity_id, description, now, rules))
                await self._followed_everywhere(path_of(description))
            except MessagingError:
                await self._undo_creation(path_of(description))
                raise
            return entry

    async def update(self, description: EntityDescription) -> Entry:
        return await self.change(path_of(description), lambda _: description)

    async def change(self, path: str, change: Callable[[Entry], EntityDescription]) -> Entry:
        """Make an entity what `change` makes of it.

        `change` is called with the entity as it is once no other change to it is under way, so what it keeps was not
        changed meanwhile. A description that was read before would undo what others have done since.
        """
        async with self._turn_of(parse_address(path).path):
            entry = self.catalog.get(path)
            before, description = entry.description, change(entry)
            check_description(description)
            if type(before) is not type(description):
                raise EntityAlreadyExists(
                    f"'{path_of(before)}' is of another kind and cannot be updated as this one. Choose another name."
                )
            # The name stays as it was first written, however this request spells it.
            after = _spelt_as(before, description)
            check_update(before, after)
            check_forwarding(self.catalog, after, before)
            elsewhere = await self.peers.available_stores()
            await self._own.ask(lambda reply: self.runtime.update(after, self.clock.now(), reply, elsewhere))
            try:
                entry = await self._write(lambda: self.catalog.update(after, self.clock.now()))
                await self._followed_everywhere(path_of(after))
            except MessagingError:
                await self._own.ask(lambda reply: self.runtime.update(before, self.clock.now(), reply, None))
                if self.catalog.get(path).description is not before:
                    await self._write(lambda: self.catalog.update(before, self.clock.now()))
                    await self._followed_anyway(path_of(before))
                raise
            return entry

    async def delete(self, path: str) -> None:
        """A queue, or a topic with everything below it."""
        async with self._turn_of(path):
            entry = self.catalog.get(path)
            if isinstance(entry.description, SubscriptionDescription):
                raise EntityNotFound.at(path)
            await self._delete(path, await self.peers.available_stores())

    async def delete_subscription(self, topic: str, name: str) -> None:
        async with self._turn_of(topic):
            path = subscription_path(topic, name)
            self.catalog.get(path)
            await self._delete(path, await self.peers.available_stores())

    async def delete_if_idle(self, path: str) -> bool:
        """Whether it was deleted. It is looked at here, since it may have been used, or deleted and created again, while its turn was
        waited for."""
        async with self._turn_of(parse_address(path).path):
            elsewhere = await self.peers.available_stores()
            # What is used somewhere is closed nowhere.
            if self.catalog.find(path) is None or not await self.peers.is_idle(path):
                return False
            is_gone = False
            try:
                if await self.peers.close_if_idle(path) and self.runtime.close_if_idle(path, self.clock.now()):
                    self.runtime.check_all_available(path, elsewhere)
                    await self._write(lambda: self.catalog.remove(path))
                    is_gone = True
            finally:
                if not is_gone:
                    await self._followed_anyway(path)
            if is_gone:
                await self._own.followed(path)
                await self.peers.follow(path)
        return is_gone

    async def _delete(self, path: str, elsewhere: Collection[int]) -> None:
        """If that fails in the middle, what is gone comes back empty, and deleting again deletes it."""
        if self.runtime.name_at(path) is not None:
            self.runtime.check_all_available(path, elsewhere)
        try:
            # Those last that are here: they know where the others have to be gone.
            await self._own.delete(path, await self.peers.delete(path))
            await self._write(lambda: self.catalog.remove(path))
        except MessagingError:
            await self._followed_anyway(path)
            raise
        await self.peers.follow(path)

    async def _followed_everywhere(self, path: str) -> None:
        """Of something that runs here. Raises FragmentUnavailable too if nobody has followed for a store in which it has fragments."""
        self.runtime.check_all_available(path, await self.peers.follow(path))

    async def _undo_creation(self, path: str) -> None:
        """Of an entity that could not be created everywhere. Without a catalog entry it would accept messages and lose them at the next
        start."""
        try:
            if self.catalog.find(path) is not None:
                await self._write(lambda: self.catalog.remove(path))
        finally:
            await self._followed_anyway(path)

    async def _followed_anyway(self, path: str) -> None:
        """After a failure, whatever was done: all processes have what the catalog says. One that cannot be told now is told by the catalog
        when it starts again."""
        await self._own.follow_anyway(path)
        try:
            await self.peers.follow(path)
        except MessagingError as fault:
            log.warning("change_not_followed", extra={"fields": {"path": path, "reason": str(fault)}})

    async def create_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        check_rule(rule)
        rule = replace(rule, created_at=self.clock.now())
        async with self._turn_of_rule(topic, subscription, rule.name) as entry:
            if entry.rules.find(rule.name) is not None:
                raise EntityAlreadyExists(f"The rule '{rule.name}' exists already. Choose another name or update it.")
            check_room_for_rules(self.catalog, topic, [rule])
            await self._change_rule(entry, None, rule)
        return rule

    async def update_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        check_rule(rule)
        async with self._turn_of_rule(topic, subscription, rule.name) as entry:
            before = self.rule(topic, subscription, rule.name)
            after = replace(rule, name=before.name, created_at=before.created_at)
            if isinstance(after.filter, CorrelationFilter) is not isinstance(before.filter, CorrelationFilter):
                check_room_for_rules(self.catalog, topic, [after])
            await self._change_rule(entry, before, after)
        return after

    async def delete_rule(self, topic: str, subscription: str, name: str) -> None:
        async with self._turn_of_rule(topic, subscription, name) as entry:
            await self._change_rule(entry, self.rule(topic, subscription, name), None)

    def subscription(self, topic: str, name: str) -> Entry:
        self.topic(topic)
        return self.catalog.get(subscription_path(topic, name))

    def rule(self, topic: str, subscription: str, name: str) -> RuleDescription:
        found = self.subscription(topic, subscription).rules.find(name)
        if found is None:
            raise EntityNotFound.at(f"{subscription_path(topic, subscription)}/Rules/{name}")
        return found

    def submit(self, change: Coroutine[Any, Any, T], reply: Reply[T]) -> None:
        """Run one of the changes above for a caller that does not wait; `reply` gets the result."""

        async def run() -> None:
            try:
                result: T | MessagingError = await change
            except MessagingError as error:
                result = error
            reply(result)

        task = asyncio.get_running_loop().create_task(run())
        # The loop holds only weak references to tasks.
        self._submitted.add(task)
        task.add_done_callback(self._submitted.discard)

    async def _change_rule(self, entry: Entry, before: RuleDescription | None, after: RuleDescription | None) -> None:
        """Durable first: the memory cannot fail after that, since the rule was compiled and there is room for it."""
        assert isinstance(entry.description, SubscriptionDescription)
        topic, name, path = entry.description.topic, entry.description.name, path_of(entry.description)
        elsewhere = await self.peers.available_stores()
        check = self.runtime.check_rules_can_change
        await self._own.ask(lambda reply: check(topic, name, self.clock.now(), reply, elsewhere))
        if after is not None:
            await self._write(lambda: self.catalog.set_rule(path, after))
        elif before is not None:
            await self._write(lambda: self.catalog.remove_rule(path, before.name))
        removed = [] if before is None else [before.name]
        added = [] if after is None else [after]
        change = self.runtime.change_rules
        await self._own.ask(lambda reply: change(topic, name, removed, added, self.clock.now(), reply))
        await self._followed_everywhere(path)

    def topic(self, name: str) -> TopicDescription:
        entry = self.catalog.get(name)
        if not isinstance(entry.description, TopicDescription):
            raise EntityNotFound.at(name)
        return entry.description

    def _check_name_is_free(self, description: EntityDescription) -> None:
        path = path_of(description)
        if self.catalog.find(path) is not None:
            raise EntityAlreadyExists(f"'{path}' exists already. Choose another name or update it.")

    @asynccontextmanager
    async def _turn_of(self, name: str) -> AsyncIterator[None]:
        """Of this process first: its changes wait here, and one of them for those of the others."""
        async with self._turns.of(name), self.peers.turn(path_key(name)):
            if self.catalog.is_shared:
                await self._write(lambda: self.catalog.check_known(name))
            yield

    @asynccontextmanager
    async def _turn_of_rule(self, topic: str, subscription: str, name: str) -> AsyncIterator[Entry]:
        """That of the topic. Gives the subscription."""
        async with self._turn_of(topic):
            entry = self.subscription(topic, subscription)
            if self.catalog.is_shared:
                await self._write(lambda: self.catalog.check_rule_known(path_of(entry.description), name))
            yield entry

    async def _write(self, change: Callable[[], T]) -> T:
        return await asyncio.to_thread(change)


def _spelt_as(before: EntityDescription, after: EntityDescription) -> EntityDescription:
    if isinstance(after, SubscriptionDescription):
        assert isinstance(before, SubscriptionDescription)
        return replace(after, topic=before.topic, name=before.name)
    return replace(after, name=before.name)
