"""How much a namespace holds: counts go in, QuotaExceeded comes out where one more is too many."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from twinbus.errors import QuotaExceeded
from twinbus.management.catalog import Catalog, Entry
from twinbus.model.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    TopicDescription,
)
from twinbus.model.rules.index import CORRELATION_FILTER_COUNT_MAX, SQL_FILTER_COUNT_MAX

ENTITY_COUNT_MAX = 10_000
PARTITIONED_COUNT_MAX = 100
SUBSCRIPTION_COUNT_MAX = 2_000


@dataclass(frozen=True, slots=True)
class FilterCounts:
    """Filters of all subscriptions of a topic. True and false filters are SQL filters, as the service counts."""

    sql: int = 0
    correlation: int = 0


def count_filters(subscriptions: Iterable[Entry]) -> FilterCounts:
    rules = [entry.rules for entry in subscriptions]
    correlation = sum([each.correlation_count for each in rules])
    return FilterCounts(sum(map(len, rules)) - correlation, correlation)


def check_room_for_entity(
    catalog: Catalog,
    description: QueueDescription | TopicDescription,
    being_made: Iterable[QueueDescription | TopicDescription],
) -> None:
    """Queues and topics share one quota; partitioned ones count in it and have their own. What is `being_made` counts."""
    others = [each for each in being_made if catalog.find(each.name) is None]
    if catalog.count(QueueDescription) + catalog.count(TopicDescription) + len(others) >= ENTITY_COUNT_MAX:
        raise QuotaExceeded(f"The namespace holds {ENTITY_COUNT_MAX} entities, which is the limit. Delete some first.")
    if not description.enable_partitioning:
        return
    existing = [*catalog.entries(QueueDescription), *catalog.entries(TopicDescription)]
    partitioned = sum(is_partitioned(entry) for entry in existing) + sum(each.enable_partitioning for each in others)
    if partitioned >= PARTITIONED_COUNT_MAX:
        raise QuotaExceeded(
            f"The namespace holds {PARTITIONED_COUNT_MAX} partitioned entities, which is the limit. "
            "Delete one, or create this one without partitioning."
        )


def is_partitioned(entry: Entry) -> bool:
    return isinstance(entry.description, QueueDescription | TopicDescription) and entry.description.enable_partitioning


def check_room_for_subscription(catalog: Catalog, topic: str) -> None:
    if len(catalog.subscriptions(topic)) >= SUBSCRIPTION_COUNT_MAX:
        raise QuotaExceeded(
            f"The topic '{topic}' has {SUBSCRIPTION_COUNT_MAX} subscriptions, which is the limit. Delete some first."
        )


def check_room_for_rules(catalog: Catalog, topic: str, rules: Sequence[RuleDescription]) -> None:
    """Whether the topic takes these rules besides those it has."""
    counts = count_filters(catalog.subscriptions(topic))
    correlation_count = sum(isinstance(rule.filter, CorrelationFilter) for rule in rules)
    sql_count = len(rules) - correlation_count
    if sql_count and (sql := counts.sql + sql_count) > SQL_FILTER_COUNT_MAX:
        raise QuotaExceeded(
            f"The topic '{topic}' would have {sql} SQL filters; the limit is {SQL_FILTER_COUNT_MAX}. "
            "Delete rules, or use correlation filters."
        )
    if correlation_count and (correlation := counts.correlation + correlation_count) > CORRELATION_FILTER_COUNT_MAX:
        raise QuotaExceeded(
            f"The topic '{topic}' would have {correlation} correlation filters; the limit is "
            f"{CORRELATION_FILTER_COUNT_MAX}. Delete rules."
        )
