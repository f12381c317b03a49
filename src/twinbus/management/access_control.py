"""Creates, shows and deletes SAS rules of a namespace and of its queues and topics, and gives them new keys.

Whatever happens to a rule, clients that are connected stay so until their tokens run out: a token is checked when it is put.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TypeAlias

from twinbus.clock import Clock
from twinbus.errors import EntityAlreadyExists, EntityNotFound, NotAllowed
from twinbus.management.catalog import Catalog, Entry
from twinbus.management.control_plane import ControlPlane
from twinbus.management.validation import check_access_rules
from twinbus.model.descriptions import AuthorizationRule, QueueDescription, Right, TopicDescription, WhichKey

ROOT_RULE_NAME = "RootManageSharedAccessKey"
ACCESS = "$access"
"""The name of the turn for changes to the rules of the namespace; no entity has it."""

Rules: TypeAlias = tuple[AuthorizationRule, ...]
RootKeyChange: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""Given the primary key of the root rule, it writes it where the namespace reads it at its next start; entered before the
key is valid, so that a crash between the two leaves one key, and left when it is."""


class AccessControl:
    """An entity path of "" is the namespace itself."""

    def __init__(
        self,
        control: ControlPlane,
        new_key: Callable[[], str],
        clock: Clock,
        root_key_change: RootKeyChange = lambda _: nullcontext(),
    ) -> None:
        self._control = control
        self._catalog: Catalog = control.catalog
        self._new_key = new_key
        self._root_key_change = root_key_change
        self._clock = clock
        # For the rules of the namespace; those of an entity are changed in the turn of the entity.
        self._turn = asyncio.Lock()

    def rules(self, entity: str) -> Rules:
        if not entity:
            return tuple(self._catalog.namespace_rules())
        return _owner(self._catalog.get(entity)).authorization_rules

    async def create(
        self, entity: str, name: str, rights: Collection[Right], primary_key: str | None, secondary_key: str | None
    ) -> AuthorizationRule:
        """Keys that are not given are generated. Manage includes the other two rights."""
        now = self._clock.now()
        granted = frozenset(Right) if Right.MANAGE in rights else frozenset(rights)
        keys = primary_key or self._new_key(), secondary_key or self._new_key()
        created = AuthorizationRule(name, *keys, granted, now, now)

        def with_it(rules: Rules) -> Rules:
            if any(rule.name == name for rule in rules):
                raise EntityAlreadyExists(f"The access rule '{name[:64]}' exists already. Choose another name.")
            # The one that comes with the namespace may have a single key.
            check_access_rules((*(replace(each, secondary_key=each.secondary_key or "-") for each in rules), created))
            return (*rules, created)

        await self._change(entity, with_it)
        return created

    async def regenerate(self, entity: str, name: str, which: WhichKey) -> AuthorizationRule:
        """Replace one of the two keys; the other one stays valid."""
        key, now = self._new_key(), self._clock.now()

        def with_new_key(rules: Rules) -> Rules:
            before = _named(rules, name)
            if which is WhichKey.PRIMARY:
                after = replace(before, primary_key=key, modified_at=now)
            else:
                after = replace(before, secondary_key=key, modified_at=now)
            return tuple(after if rule is before else rule for rule in rules)

        return _named(await self._change(entity, with_new_key), name)

    async def delete(self, entity: str, name: str) -> None:
        def without_it(rules: Rules) -> Rules:
            gone = _named(rules, name)
            if not entity and name == ROOT_RULE_NAME:
                raise NotAllowed(f"{name} cannot be deleted: without it nobody could manage the namespace.")
            return tuple(rule for rule in rules if rule is not gone)

        await self._change(entity, without_it)

    async def _change(self, entity: str, change: Callable[[Rules], Rules]) -> Rules:
        """Returns the rules as they are afterwards."""
        if not entity:
            async with self._turn, self._control.peers.turn(ACCESS):
                if self._catalog.is_shared:
                    await asyncio.to_thread(self._catalog.reread_access_rules)
                changed_rules = await asyncio.to_thread(self._set_namespace_rules, change(self.rules("")))
                await self._control.peers.follow_access_rules()
            return changed_rules

        def changed(entry: Entry) -> QueueDescription | TopicDescription:
            owner = _owner(entry)
            return replace(owner, authorization_rules=change(owner.authorization_rules))

        return _owner(await self._control.change(entity, changed)).authorization_rules

    def _set_namespace_rules(self, rules: Rules) -> Rules:
        before = self.rules("")
        for rule in rules:
            if rule not in before:
                is_root = rule.name == ROOT_RULE_NAME
                with self._root_key_change(rule.primary_key) if is_root else nullcontext():
                    self._catalog.set_namespace_rule(rule)
        for name in {rule.name for rule in before} - {rule.name for rule in rules}:
            self._catalog.remove_namespace_rule(name)
        return rules


def _named(rules: Rules, name: str) -> AuthorizationRule:
    found = next((rule for rule in rules if rule.name == name), None)
    if found is None:
        raise EntityNotFound(f"There is no access rule '{name[:64]}' here. List the rules to see which there are.")
    return found


def _owner(entry: Entry) -> QueueDescription | TopicDescription:
    if not isinstance(entry.description, QueueDescription | TopicDescription):
        raise NotAllowed("A subscription has no access rules of its own. Use those of its topic.")
    return entry.description
