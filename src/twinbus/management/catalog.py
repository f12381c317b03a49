"""What exists in a namespace: descriptions go in, and every one of them survives the process.

A small database (`catalog_file`, or `catalog_postgres` where the messaging stores are in PostgreSQL), a transaction for each
change, and a copy in memory that all reads are answered from: so a catalog whose database is down stops changes and nothing
else. Entity ids are handed out once and never again, so that what is left in a messaging store of an entity long gone is
never taken for that of a new one.

Writes block on the disk and may come from any thread, one after another. Reads never block; they see each change whole.
"""

import threading
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from twinbus.clock import Millis
from twinbus.errors import EntityAlreadyExists, EntityNotFound, InternalError
from twinbus.management.catalog_file import CatalogFile
from twinbus.management.records import (
    read_authorization_rule,
    read_entity,
    read_rule,
    write_authorization_rule,
    write_entity,
    write_rule,
)
from twinbus.management.rule_set import NO_RULES, RuleSet, is_same_rule
from twinbus.model.descriptions import (
    AuthorizationRule,
    EntityDescription,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.paths import parse_address, path_key, subscription_path

KINDS: dict[str, type[EntityDescription]] = {
    "queue": QueueDescription,
    "topic": TopicDescription,
    "subscription": SubscriptionDescription,
}
KIND_NAMES = {kind: name for name, kind in KINDS.items()}

NEXT_ID = "UPDATE namespace SET last_entity_id = last_entity_id + 1 RETURNING last_entity_id"
ADD_ENTITY = "INSERT INTO entities (id, key, kind, description, created_at, updated_at, first_store) VALUES (?, ?, ?, ?, ?, ?, ?)"
UPDATE_ENTITY = "UPDATE entities SET description = ?, updated_at = ? WHERE id = ?"
FORGET_ENTITY = "DELETE FROM entities WHERE key = ?"
REMOVE_ENTITY = "DELETE FROM entities WHERE id = ?"
ADD_RULE = "INSERT INTO rules (subscription, key, description) VALUES (?, ?, ?)"
UPDATE_RULE = "UPDATE rules SET description = ? WHERE subscription = ? AND key = ?"
REMOVE_RULE = "DELETE FROM rules WHERE subscription = ? AND key = ?"
SET_ACCESS_RULE = "INSERT INTO access_rules (key, description) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET description = excluded.description"
REMOVE_ACCESS_RULE = "DELETE FROM access_rules WHERE key = ?"


NAMESPACE = "SELECT name, created_at, modified_at FROM namespace"
RULES = "SELECT subscription, description FROM rules ORDER BY position"
ENTITIES = "SELECT id, kind, description, created_at, updated_at, first_store FROM entities"
ENTITY_AND_BELOW = f"{ENTITIES} WHERE key = ? OR (key > ? AND key < ?) ORDER BY id"
ENTITY_AND_BELOW_AS_IT_IS = "SELECT id, updated_at FROM entities WHERE key = ? OR (key > ? AND key < ?)"
RULES_OF = "SELECT description FROM rules WHERE subscription = ? ORDER BY position"
RULE = "SELECT description FROM rules WHERE subscription = ? AND key = ?"
ACCESS_RULES = "SELECT key, description FROM access_rules ORDER BY key"

Execute: TypeAlias = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]


class CatalogDatabase(Protocol):
    """Where a catalog is kept. Statements have a question mark for each value."""

    @property
    def is_shared(self) -> bool:
        """Others may change it without telling this process, while they take it for dead."""
        ...

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]: ...

    def snapshot(self) -> AbstractContextManager[None]:
        """What is read inside is of one moment. Raises InternalError."""
        ...

    def transaction(self) -> AbstractContextManager[Execute]:
        """Durable at its end; one at a time, whatever threads ask. Raises InternalError if it fails."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    name: str
    created_at: Millis
    modified_at: Millis


@dataclass(frozen=True, slots=True)
class Entry:
    """One entity of the catalog. `rules` are a subscription's.

    `first_store`: the messaging store of its first fragment. None where the topic decides, and for entities that were
    created before it was kept.
    """

    id: int
    description: EntityDescription
    created_at: Millis
    updated_at: Millis
    rules: RuleSet = NO_RULES
    first_store: int | None = None


def path_of(description: EntityDescription) -> str:
    if isinstance(description, SubscriptionDescription):
        return subscription_path(description.topic, description.name)
    return description.name


class ChangedElsewhere(NamedTuple):
    paths: list[str]
    """Of what is new, has changed or is gone, topics before what is below them."""
    has_access_rules: bool


def _changed_unheard(path: str) -> InternalError:
    return InternalError(f"'{path}' was changed through another node, and this one is about to learn how. Try again.")


def _topic_of(path: str) -> str:
    """Of a path of the administration API the part before `/Subscriptions`; no entity has that word inside its path."""
    parts = path.split("/")
    return "/".join(parts[: [path_key(part) for part in [*parts, "subscriptions"]].index("subscriptions")])


def _key_and_below(path: str) -> tuple[str, str, str]:
    """The key of an entity, and between which the keys of its subscriptions are."""
    key = path_key(path)
    below = f"{key}/{path_key('Subscriptions')}/"
    return key, below, below[:-1] + "0"  # the character behind '/'


class Catalog:
    def __init__(self, database: CatalogDatabase) -> None:
        self._database = database
        self._remembering = threading.Lock()
        with database.snapshot():
            self._load()

    @classmethod
    def in_file(cls, path: Path, namespace: str, now: Millis, *, was_in_use: bool = False) -> "Catalog":
        """In this file, which is created if need be, and not if it `was_in_use`: without it messages would be out of reach, and new
        entities would take their place. An existing one keeps the namespace name it was created with."""
        file = CatalogFile(path, namespace, now, was_in_use=was_in_use)
        try:
            return cls(file)
        except (ValueError, KeyError, TypeError) as fault:
            # Written before rows had checksums.
            raise file.damage(repr(fault)) from fault

    def close(self) -> None:
        self._database.close()

    def _load(self) -> None:
        ((name, created_at, modified_at),) = self._database.rows(NAMESPACE)
        self.namespace = NamespaceInfo(name, created_at, modified_at)
        self._entries: dict[str, Entry] = {}
        self._sorted_keys: dict[type[EntityDescription], list[str]] = {kind: [] for kind in KINDS.values()}
        self._by_topic: dict[str, dict[str, Entry]] = {}
        for entry in self._read_entries():
            self._remember(entry)
        self._access_rules = {key: read_authorization_rule(text) for key, text in self._database.rows(ACCESS_RULES)}

    def _read_entries(self) -> list[Entry]:
        rules: dict[int, list[RuleDescription]] = {}
        for subscription, text in self._database.rows(RULES):
            rules.setdefault(subscription, []).append(read_rule(text))
        return [
            Entry(
                entity_id,
                read_entity(KINDS[kind], text),
                created_at,
                updated_at,
                RuleSet(rules.get(entity_id, ())),
                first_store,
            )
            for entity_id, kind, text, created_at, updated_at, first_store in self._database.rows(ENTITIES)
        ]

    # Reads: from memory, any thread.

    def find(self, path: str) -> Entry | None:
        return self._entries.get(path_key(path))

    def get(self, path: str) -> Entry:
        entry = self.find(path)
        if entry is None:
            raise EntityNotFound.at(path)
        return entry

    def entries(self, kind: type[EntityDescription]) -> list[Entry]:
        """All of one kind, by name."""
        found = [self._entries.get(key) for key in self._sorted_keys[kind].copy()]
        return [entry for entry in found if entry is not None]

    def count(self, kind: type[EntityDescription]) -> int:
        return len(self._sorted_keys[kind])

    def subscriptions(self, topic: str) -> list[Entry]:
        """Those of one topic, by name."""
        found = list(self._by_topic.get(path_key(topic), {}).values())
        return sorted(found, key=lambda entry: path_key(entry.description.name))

    def namespace_rules(self) -> list[AuthorizationRule]:
        return list(self._access_rules.values())

    def rules_named(self, name: str, path: str) -> Iterator[AuthorizationRule]:
        """The SAS rules of this name that count at an address: the namespace's and those of the entity it lies in."""
        if (rule := self._access_rules.get(name)) is not None:
            yield rule
        # Not every entity whose path begins this one: a rule of a queue `a` does not apply to a queue `a/b`.
        entry = self.find(parse_address(path).path) or self.find(_topic_of(path))
        if entry is not None and not isinstance(entry.description, SubscriptionDescription):
            yield from (rule for rule in entry.description.authorization_rules if rule.name == name)

    # What other processes have changed. Blocks, as writes do.

    def reread(self, path: str) -> None:
        """Remember what the database says of an entity, and of a topic also what is below it. What has not changed stays the same object."""
        key, below, _ = keys_read = _key_and_below(path)
        with self._database.snapshot():
            rows = self._database.rows(ENTITY_AND_BELOW, keys_read)
            found = [
                Entry(
                    entity_id,
                    read_entity(KINDS[kind], text),
                    created_at,
                    updated_at,
                    RuleSet([read_rule(rule) for (rule,) in self._database.rows(RULES_OF, (entity_id,))]),
                    first_store,
                )
                for entity_id, kind, text, created_at, updated_at, first_store in rows
            ]
        keys = {path_key(path_of(entry.description)) for entry in found}
        known = [entry for each, entry in list(self._entries.items()) if each == key or each.startswith(below)]
        for entry in known:
            if path_key(path_of(entry.description)) not in keys:
                self._forget(entry)
        for entry in found:
            if self.find(path_of(entry.description)) != entry:
                self._remember(entry)

    def changed_elsewhere(self) -> ChangedElsewhere:
        """What the database says otherwise than is remembered here. Remembers nothing: this process may have changed some of it since
        the database was read, so whoever follows has the turn of the name and reads it again."""
        with self._database.snapshot():
            found = {path_key(path_of(entry.description)): entry for entry in self._read_entries()}
            access_rules = {key: read_authorization_rule(text) for key, text in self._database.rows(ACCESS_RULES)}
        known = dict(self._entries)
        gone = [entry for key, entry in known.items() if key not in found]
        changed = [entry for key, entry in found.items() if known.get(key) != entry]
        paths = sorted({path_of(entry.description) for entry in [*gone, *changed]}, key=path_key)
        return ChangedElsewhere(paths, access_rules != self._access_rules)

    @property
    def is_shared(self) -> bool:
        """Whoever changes it sees first what others have changed."""
        return self._database.is_shared

    def check_known(self, path: str) -> None:
        """That an entity, and of a topic what is below it, is what is remembered here: in the turn of its name, before a change. Others tell
        this process nothing while they take it for dead, and then it would create an entity over one that they have filled. Raises
        InternalError."""
        with self._database.snapshot():
            found = self._database.rows(ENTITY_AND_BELOW_AS_IT_IS, _key_and_below(path))
        entry = self.find(path)
        known = [] if entry is None else [entry, *self.subscriptions(path)]
        if sorted(found) != sorted((each.id, each.updated_at) for each in known):
            raise _changed_unheard(path)

    def check_rule_known(self, path: str, name: str) -> None:
        """The same of a rule of a subscription that is known: changes of rules leave no other mark on it."""
        entry = self.get(path)
        with self._database.snapshot():
            rows = self._database.rows(RULE, (entry.id, path_key(name)))
        found = read_rule(rows[0][0]) if rows else None
        if not is_same_rule(found, entry.rules.find(name)):
            raise _changed_unheard(f"{path}/Rules/{name}")

    def reread_access_rules(self) -> None:
        with self._database.snapshot():
            rows = self._database.rows(ACCESS_RULES)
        self._access_rules = {key: read_authorization_rule(text) for key, text in rows}

    # Writes: one transaction each, then the memory.

    def new_id(self) -> int:
        """An id that no entity ever had or will have."""
        with self._database.transaction() as execute:
            return int(execute(NEXT_ID, ())[0][0])

    def add(
        self,
        entity_id: int,
        description: EntityDescription,
        now: Millis,
        rules: Iterable[RuleDescription] = (),
        first_store: int | None = None,
    ) -> Entry:
        path = path_of(description)
        entry = Entry(entity_id, description, now, now, RuleSet(rules), first_store)
        with self._database.transaction() as execute:
            if self.find(path) is not None:
                raise EntityAlreadyExists(f"'{path}' exists already. Choose another name or update it.")
            kind = KIND_NAMES[type(description)]
            values = (entity_id, path_key(path), kind, write_entity(description), now, now, first_store)
            # Only left by a change that was made although its answer was lost.
            execute(FORGET_ENTITY, (path_key(path),))
            execute(ADD_ENTITY, values)
            for rule in entry.rules:
                execute(ADD_RULE, (entity_id, path_key(rule.name), write_rule(rule)))
        self._remember(entry)
        return entry

    def update(self, description: EntityDescription, now: Millis) -> Entry:
        with self._database.transaction() as execute:
            entry = self.get(path_of(description))
            execute(UPDATE_ENTITY, (write_entity(description), now, entry.id))
        return self._remember(replace(entry, description=description, updated_at=now))

    def remove(self, path: str) -> None:
        """The entity; of a topic also its subscriptions, in the same transaction."""
        with self._database.transaction() as execute:
            entry = self.get(path)
            gone = [entry]
            if isinstance(entry.description, TopicDescription):
                gone += self.subscriptions(path)
            for each in gone:
                execute(REMOVE_ENTITY, (each.id,))
        for each in gone:
            self._forget(each)

    def set_rule(self, path: str, rule: RuleDescription) -> Entry:
        """Give a subscription this rule, at the place of the one that has its name if there is one."""
        with self._database.transaction() as execute:
            entry, key = self.get(path), path_key(rule.name)
            if entry.rules.find(rule.name) is not None:
                execute(UPDATE_RULE, (write_rule(rule), entry.id, key))
            else:
                # Only left by a change that was made although its answer was lost.
                execute(REMOVE_RULE, (entry.id, key))
                execute(ADD_RULE, (entry.id, key, write_rule(rule)))
        return self._remember(replace(entry, rules=entry.rules.with_rule(rule)))

    def remove_rule(self, path: str, name: str) -> Entry:
        """A rule that the subscription has."""
        with self._database.transaction() as execute:
            entry = self.get(path)
            execute(REMOVE_RULE, (entry.id, path_key(name)))
        return self._remember(replace(entry, rules=entry.rules.without(name)))

    def set_namespace_rule(self, rule: AuthorizationRule) -> None:
        with self._database.transaction() as execute:
            execute(SET_ACCESS_RULE, (rule.name, write_authorization_rule(rule)))
        self._access_rules[rule.name] = rule

    def remove_namespace_rule(self, name: str) -> None:
        with self._database.transaction() as execute:
            execute(REMOVE_ACCESS_RULE, (name,))
        self._access_rules.pop(name, None)

    def _remember(self, entry: Entry) -> Entry:
        with self._remembering:
            return self._put(entry)

    def _put(self, entry: Entry) -> Entry:
        key = path_key(path_of(entry.description))
        if key not in self._entries:
            # Kept in order, so that a page of a list of thousands costs no sorting on the event loop.
            insort(self._sorted_keys[type(entry.description)], key)
        self._entries[key] = entry
        if isinstance(entry.description, SubscriptionDescription):
            self._by_topic.setdefault(path_key(entry.description.topic), {})[path_key(entry.description.name)] = entry
        return entry

    def _forget(self, entry: Entry) -> None:
        with self._remembering:
            self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        key = path_key(path_of(entry.description))
        if self._entries.pop(key, None) is None:
            return  # another thread, which read the topic again, has seen it first
        self._sorted_keys[type(entry.description)].remove(key)
        if isinstance(entry.description, SubscriptionDescription):
            self._by_topic.get(path_key(entry.description.topic), {}).pop(path_key(entry.description.name), None)
