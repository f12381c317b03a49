"""Entities to make at start: names on the command line and TOML or JSON files in, descriptions out.

    [[queue]]                      [[topic]]                       [[topic.subscription]]
    name = "orders"                name = "events"                 name = "audit"
    partitioned = true             max_size_mb = 2048              sessions = true

Keys are the fields of the descriptions (`twinbus.model.descriptions`); durations are written like 30s, 5m or PT30S.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from twinbus.cli.durations import NEVER_DELTA, parse_duration
from twinbus.clock import NEVER
from twinbus.errors import ArgumentError
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription

T = TypeVar("T", QueueDescription, TopicDescription, SubscriptionDescription)

DURATIONS = {"lock_duration", "default_time_to_live", "duplicate_detection_window", "auto_delete_on_idle"}
# What one cannot say in a file: keys belong into no file, and the status follows from use.
LEFT_OUT = {"authorization_rules", "status"}
SHORT_NAMES = {
    "partitioned": "enable_partitioning",
    "sessions": "requires_session",
    "duplicate_detection": "requires_duplicate_detection",
    "duplicate_window": "duplicate_detection_window",
    "ttl": "default_time_to_live",
}


@dataclass(frozen=True, slots=True)
class WantedEntities:
    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicDescription, ...] = ()
    subscriptions: tuple[SubscriptionDescription, ...] = ()


def read_wanted(queue_names: Iterable[str], file: Path | None) -> WantedEntities:
    named = tuple(_named_queue(text) for text in queue_names)
    if file is None:
        return WantedEntities(named)
    document = _read(file)
    unknown = document.keys() - {"queue", "topic"}
    if unknown:
        raise ArgumentError(f"{file} has '{sorted(unknown)[0]}', which is not known. Use queue and topic.")
    queues = tuple(_description(QueueDescription, table, file) for table in _tables(document, "queue", file))
    topics: list[TopicDescription] = []
    subscriptions: list[SubscriptionDescription] = []
    for table in _tables(document, "topic", file):
        below = _tables(table, "subscription", file)
        topic = _description(TopicDescription, {key: table[key] for key in table if key != "subscription"}, file)
        topics.append(topic)
        subscriptions += [_description(SubscriptionDescription, {**each, "topic": topic.name}, file) for each in below]
    return WantedEntities(named + queues, tuple(topics), tuple(subscriptions))


def _named_queue(text: str) -> QueueDescription:
    name, separator, kind = text.partition(":")
    if separator and kind != "partitioned":
        raise ArgumentError(f"'{text}' is no queue to make. Write NAME or NAME:partitioned.")
    return QueueDescription(name, enable_partitioning=bool(separator))


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text()
        document = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as fault:
        raise ArgumentError(f"{file} cannot be read: {fault}.") from None
    if not isinstance(document, dict):
        raise ArgumentError(f"{file} has to hold an object with queue and topic.")
    return document


def _tables(document: Mapping[str, Any], name: str, file: Path) -> list[dict[str, Any]]:
    tables = document.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ArgumentError(f"'{name}' in {file} has to be a list of tables.")
    return tables


def _description(kind: type[T], table: Mapping[str, Any], file: Path) -> T:
    known = {field.name for field in fields(kind)} - LEFT_OUT
    values: dict[str, Any] = {}
    for key, value in table.items():
        field = SHORT_NAMES.get(key, key)
        if field not in known:
            raise ArgumentError(f"{file}: '{key}' is not known. Use some of {', '.join(sorted(known))}.")
        values[field] = _millis(value) if field in DURATIONS else value
    if not isinstance(values.get("name"), str):
        raise ArgumentError(f"{file}: every entity needs a name.")
    return kind(**values)


def _millis(value: object) -> int:
    duration = parse_duration(str(value))
    return NEVER if duration >= NEVER_DELTA else duration // timedelta(milliseconds=1)
