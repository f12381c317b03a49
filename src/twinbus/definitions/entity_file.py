"""Entities to create: names on the command line and TOML or JSON files in, descriptions out, and back to text.

    [[queue]]                      [[topic]]                       [[topic.subscription]]
    name = "orders"                name = "events"                 name = "audit"
    partitioned = true             max_size_mb = 2048              sessions = true

    [[queue.access_rule]]                                          [[topic.subscription.rule]]
    name = "sender"                                                name = "red"
    rights = ["Send"]                                              sql = "colour = 'red'"

A subscription without rules has $Default, which takes every message; one with rules has exactly those, and with
`rule = []` it has none. `Config.json` of the service's own emulator is read as well (`emulator_file`).
"""

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twinbus.definitions.emulator_file import is_emulator_file, read_emulator_file
from twinbus.definitions.entity_table import read_entity, write_entity
from twinbus.definitions.rule_table import read_rule, write_rule
from twinbus.definitions.table import Table
from twinbus.definitions.toml_text import write_toml
from twinbus.definitions.wanted_entities import WantedEntities, check_unique
from twinbus.errors import ArgumentError
from twinbus.management.validation import DEFAULT_RULES
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription


def read_wanted(queue_names: Iterable[str], file: Path | None) -> WantedEntities:
    named = tuple(_named_queue(text) for text in queue_names)
    found = WantedEntities() if file is None else read_entity_file(file)
    return WantedEntities(named + found.queues, found.topics, found.subscriptions, found.rules)


def read_entity_file(file: Path) -> WantedEntities:
    """Raises ArgumentError, naming the file and the key, for whatever is wrong in it."""
    document = read_document(file, "queue and topic")
    if is_emulator_file(document):
        wanted = read_emulator_file(Table(str(file), document, name_key="Name"))
    else:
        wanted = _read_document(Table(str(file), document))
    check_unique(wanted, str(file))
    return wanted


def write_entities(wanted: WantedEntities, *, as_json: bool, with_keys: bool) -> str:
    """The text of a file: the same for the same entities, in whatever order they come."""
    document: dict[str, Any] = {}
    queues = [write_entity(queue, with_keys=with_keys) for queue in sorted(wanted.queues, key=lambda each: each.name)]
    topics = [_write_topic(topic, wanted, with_keys) for topic in sorted(wanted.topics, key=lambda each: each.name)]
    document |= {"queue": queues} if queues else {}
    document |= {"topic": topics} if topics else {}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n" if as_json else write_toml(document)


def is_json(file: Path) -> bool:
    return file.suffix.lower() == ".json"


def _write_topic(topic: TopicDescription, wanted: WantedEntities, with_keys: bool) -> dict[str, Any]:
    below = sorted((each for each in wanted.subscriptions if each.topic == topic.name), key=lambda each: each.name)
    table = write_entity(topic, with_keys=with_keys)
    return table | ({"subscription": [_write_subscription(each, wanted) for each in below]} if below else {})


def _write_subscription(subscription: SubscriptionDescription, wanted: WantedEntities) -> dict[str, Any]:
    table = write_entity(subscription, with_keys=False)
    rules = wanted.rules_of(subscription)
    if rules is None or rules == DEFAULT_RULES:
        return table
    return table | {"rule": [write_rule(rule) for rule in sorted(rules, key=lambda each: each.name)]}


def _read_document(document: Table) -> WantedEntities:
    document.only(("queue", "topic"))
    queues = tuple(read_entity(QueueDescription, table) for table in document.list_of("queue"))
    topics: list[TopicDescription] = []
    subscriptions: list[SubscriptionDescription] = []
    rules: dict[tuple[str, str], tuple[RuleDescription, ...]] = {}
    for table in document.list_of("topic"):
        topic = read_entity(TopicDescription, table, below=("subscription",))
        topics.append(topic)
        for each in table.list_of("subscription"):
            subscription = read_entity(SubscriptionDescription, each, topic.name, below=("rule",))
            subscriptions.append(subscription)
            if "rule" in each.values:
                rules[topic.name, subscription.name] = tuple(read_rule(rule) for rule in each.list_of("rule"))
    return WantedEntities(queues, tuple(topics), tuple(subscriptions), rules)


def _named_queue(text: str) -> QueueDescription:
    name, separator, kind = text.partition(":")
    if separator and kind != "partitioned":
        raise ArgumentError(f"'{text}' is not a queue to create. Write NAME or NAME:partitioned.")
    return QueueDescription(name, enable_partitioning=bool(separator))


def read_document(file: Path, content: str) -> dict[str, Any]:
    """The object in a TOML or JSON file, which a person expects to hold `content`. Raises ArgumentError."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        document = json.loads(text) if is_json(file) else tomllib.loads(text)
    except OSError as fault:
        raise ArgumentError(f"{file} cannot be read: {fault.strerror or fault}.") from None
    except (ValueError, RecursionError) as fault:
        raise ArgumentError(f"{file} cannot be read: {fault}.") from None
    if not isinstance(document, dict):
        raise ArgumentError(f"{file} must contain an object with {content}.")
    return document
