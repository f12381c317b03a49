"""SAS rules of a namespace and of its queues and topics: made, shown, given new keys, and removed.

Whoever is connected stays so until its token runs out, whatever happens to the rule: a token is checked when it is put.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeAlias

from twinbus.clock import Clock
from twinbus.errors import EntityAlreadyExists, EntityNotFound, NotAllowed
from twinbus.management.catalog import Catalog
from twinbus.management.control_plane import ControlPlane
from twinbus.management.validation import check_access_rules
from twinbus.model.descriptions import AuthorizationRule, QueueDescription, Right, TopicDescription, WhichKey

ROOT_RULE_NAME = "RootManageSharedAccessKey"

Rules: TypeAlias = tuple[AuthorizationRule, ...]


class AccessControl:
    """An entity path of "" is the namespace itself."""

    def __init__(self, control: ControlPlane, new_key: Callable[[], str], clock: Clock) -> None:
        self._control = control
        self._catalog: Catalog = control.catalog
        self._new_key = new_key
        self._clock = clock
        # A rule is added to those that are there: two changes at once must not forget one.
        self._turn = asyncio.Lock()

    def rules(self, entity: str) -> Rules:
        if not entity:
            return tuple(self._catalog.namespace_rules())
        return self._description(entity).authorization_rules

    def rule(self, entity: str, name: str) -> AuthorizationRule:
        found = next((rule for rule in self.rules(entity) if rule.name == name), None)
        if found is None:
            raise EntityNotFound(f"There is no access rule '{name[:64]}' here. List the rules to see which there are.")
        return found

    async def create(
        self, entity: str, name: str, rights: Collection[Right], primary_key: str | None, secondary_key: str | None
    ) -> AuthorizationRule:
        """Keys that are not given are drawn. Manage includes the other two rights."""
        async with self._turn:
            rules, now = self.rules(entity), self._clock.now()
            if any(rule.name == name for rule in rules):
                raise EntityAlreadyExists(f"The access rule '{name[:64]}' exists already. Choose another name.")
            granted = frozenset(Right) if Right.MANAGE in rights else frozenset(rights)
            keys = primary_key or self._new_key(), secondary_key or self._new_key()
            rule = AuthorizationRule(name, *keys, granted, now, now)
            # The one that comes with the namespace may have a single key.
            check_access_rules((*(replace(each, secondary_key=each.secondary_key or "-") for each in rules), rule))
            await self._store(entity, (*rules, rule), rule)
        return rule

    async def regenerate(self, entity: str, name: str, which: WhichKey) -> AuthorizationRule:
        """A new key in the place of one of the two; the other one goes on to work."""
        async with self._turn:
            before = self.rule(entity, name)
            if not entity and name == ROOT_RULE_NAME and which is WhichKey.PRIMARY:
                raise NotAllowed(
                    f"The primary key of {name} is in the file 'key' of the namespace's data folder. Stop the namespace, "
                    "remove the file, and start it again for a new one."
                )
            drawn, now = self._new_key(), self._clock.now()
            if which is WhichKey.PRIMARY:
                after = replace(before, primary_key=drawn, modified_at=now)
            else:
                after = replace(before, secondary_key=drawn, modified_at=now)
            rules = tuple(after if rule is before else rule for rule in self.rules(entity))
            await self._store(entity, rules, after)
        return after

    async def delete(self, entity: str, name: str) -> None:
        async with self._turn:
            gone = self.rule(entity, name)
            if entity:
                rules = tuple(rule for rule in self.rules(entity) if rule is not gone)
                await self._control.update(replace(self._description(entity), authorization_rules=rules))
            elif name == ROOT_RULE_NAME:
                raise NotAllowed(f"{name} cannot be deleted: without it nobody could manage the namespace.")
            else:
                await asyncio.to_thread(self._catalog.remove_namespace_rule, name)

    def _description(self, entity: str) -> QueueDescription | TopicDescription:
        description = self._catalog.get(entity).description
        if not isinstance(description, QueueDescription | TopicDescription):
            raise NotAllowed("A subscription has no access rules of its own. Use those of its topic.")
        return description

    async def _store(self, entity: str, rules: Rules, changed: AuthorizationRule) -> None:
        if entity:
            await self._control.update(replace(self._description(entity), authorization_rules=rules))
        else:
            await asyncio.to_thread(self._catalog.set_namespace_rule, changed)
