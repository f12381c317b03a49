"""`Config.json` of the service's own emulator: a document in, descriptions out.

    UserConfig > Namespaces[] > Queues[], Topics[] > Subscriptions[] > Rules[], each with Name and Properties

The properties have the names and the texts of the administration API. An empty text means that nothing is set. What
else is beside the namespaces, such as logging, is the emulator's own and ignored.
"""

from collections.abc import Mapping
from typing import Any

from twinbus.definitions.rule_table import read_pairs
from twinbus.definitions.table import Table
from twinbus.definitions.wanted_entities import WantedEntities
from twinbus.http.atom.entity_reader import READERS
from twinbus.http.atom.rule_xml import CORRELATION_FIELDS
from twinbus.management.validation import check_description, check_rule
from twinbus.model.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.entity_properties import EntityKind, properties_of

ROOT = "UserConfig"
RULE_PROPERTIES = ("FilterType", "SqlFilter", "CorrelationFilter", "Action")
# Files written by tools also give the expression a level and a flag; neither means anything here.
SQL_KEYS = ("SqlExpression", "CompatibilityLevel", "RequiresPreprocessing")


def is_emulator_file(document: Mapping[str, Any]) -> bool:
    return ROOT in document


def read_emulator_file(document: Table) -> WantedEntities:
    root = document.below(ROOT)
    namespaces = root.list_of("Namespaces")
    if len(namespaces) != 1:
        root.refuse("Namespaces", f"contains {len(namespaces)} namespaces. Keep only the one to import")
    namespace = namespaces[0]
    namespace.only(("Name", "Queues", "Topics"))
    topics: list[TopicDescription] = []
    subscriptions: list[SubscriptionDescription] = []
    rules: dict[tuple[str, str], tuple[RuleDescription, ...]] = {}
    for table in namespace.list_of("Topics"):
        topic = _read_topic(table)
        topics.append(topic)
        for each in table.list_of("Subscriptions"):
            subscription = _read_subscription(topic.name, each)
            subscriptions.append(subscription)
            if each.values.get("Rules"):
                rules[topic.name, subscription.name] = tuple(_read_rule(rule) for rule in each.list_of("Rules"))
    queues = tuple(_read_queue(table) for table in namespace.list_of("Queues"))
    return WantedEntities(queues, tuple(topics), tuple(subscriptions), rules)


def _read_queue(table: Table) -> QueueDescription:
    table.only(("Name", "Properties"))
    queue = QueueDescription(table.name(), **_properties(table, QueueDescription))
    table.check(check_description, queue)
    return queue


def _read_topic(table: Table) -> TopicDescription:
    table.only(("Name", "Properties", "Subscriptions"))
    topic = TopicDescription(table.name(), **_properties(table, TopicDescription))
    table.check(check_description, topic)
    return topic


def _read_subscription(topic: str, table: Table) -> SubscriptionDescription:
    table.only(("Name", "Properties", "Rules"))
    subscription = SubscriptionDescription(topic, table.name(), **_properties(table, SubscriptionDescription))
    table.check(check_description, subscription)
    return subscription


def _properties(table: Table, kind: EntityKind) -> dict[str, Any]:
    given, known = table.below("Properties"), {each.element: each for each in properties_of(kind)}
    given.only(known)
    values: dict[str, Any] = {}
    for key, value in given.values.items():
        if value is None or value == "":
            continue
        if not isinstance(value, str | int):
            given.refuse(key, "must be a string, a whole number, or true or false")
        values[known[key].field] = given.check(READERS[known[key].kind], str(value), key)
    return values


def _read_rule(table: Table) -> RuleDescription:
    table.only(("Name", "Properties"))
    given = table.below("Properties")
    given.only(RULE_PROPERTIES)
    name, chosen = table.name(), _read_filter(given)
    table.check(check_rule, RuleDescription(name))
    given.at(type(chosen).__name__).check(check_rule, RuleDescription(name, chosen))
    text = _expression(given, "Action")
    action = None if text is None else SqlAction(text)
    given.at("Action").check(check_rule, RuleDescription(name, action=action))
    return RuleDescription(name, chosen, action)


def _read_filter(given: Table) -> SqlFilter | CorrelationFilter:
    """Some tools always write FilterType Sql, so the type decides only if both filters are there."""
    expression, correlation = _expression(given, "SqlFilter"), given.below("CorrelationFilter")
    kind = given.text("FilterType")
    if kind not in (None, "Sql", "SqlFilter", "Correlation", "CorrelationFilter"):
        given.refuse("FilterType", "must be Sql or Correlation")
    is_correlation = expression is None or (kind or "").startswith("Correlation")
    if correlation.values and is_correlation:
        return _read_correlation(correlation)
    if expression is None:
        given.refuse("SqlFilter", "or 'CorrelationFilter' is required")
    return SqlFilter(expression)


def _read_correlation(given: Table) -> CorrelationFilter:
    given.only((*CORRELATION_FIELDS, "Properties"))
    texts = {field: given.text(name) or None for name, field in CORRELATION_FIELDS.items()}
    return CorrelationFilter(**texts, properties=read_pairs(given.below("Properties")))


def _expression(given: Table, key: str) -> str | None:
    table = given.below(key)
    table.only(SQL_KEYS)
    return table.text("SqlExpression") or None
