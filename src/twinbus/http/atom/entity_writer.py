"""Descriptions of queues, topics and subscriptions as XML on their way out, with the elements in the service's order."""

from dataclasses import dataclass

from twinbus.http.api_version import FILTER_COUNTS_SINCE, MESSAGE_SIZE_SINCE, PARTITIONING_SINCE
from twinbus.http.atom.access_xml import write_access_rules
from twinbus.http.atom.envelopes import description_node
from twinbus.http.atom.xml_writer import attribute, leaf, node
from twinbus.management.catalog import Entry
from twinbus.management.counts import EntityCounts
from twinbus.management.quotas import FilterCounts
from twinbus.management.validation import shown_size_mb
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.iso8601 import write_duration, write_time

COUNTS_NAMESPACE = "http://schemas.microsoft.com/netservices/2011/06/servicebus"


@dataclass(frozen=True, slots=True)
class View:
    """How the reader of an answer sees the namespace."""

    api_version: str
    message_size_kb: int
    forward_base: str  # what forwarding targets are prefixed with: sb://HOST:PORT/


def write_queue(entry: Entry, queue: QueueDescription, counts: EntityCounts, view: View) -> str:
    has_partitions = view.api_version >= PARTITIONING_SINCE
    content = [
        leaf("LockDuration", write_duration(queue.lock_duration)),
        leaf("MaxSizeInMegabytes", shown_size_mb(queue)),
        leaf("RequiresDuplicateDetection", queue.requires_duplicate_detection),
        leaf("RequiresSession", queue.requires_session),
        leaf("DefaultMessageTimeToLive", write_duration(queue.default_time_to_live)),
        leaf("DeadLetteringOnMessageExpiration", queue.dead_letter_on_expiry),
        leaf("DuplicateDetectionHistoryTimeWindow", write_duration(queue.duplicate_detection_window)),
        leaf("MaxDeliveryCount", queue.max_delivery_count),
        leaf("EnableBatchedOperations", queue.enable_batched_operations),
        leaf("SizeInBytes", counts.size_bytes),
        leaf("MessageCount", counts.messages),
        leaf("IsAnonymousAccessible", False),
        write_access_rules(queue.authorization_rules),
        leaf("Status", queue.status.value),
        *_times(entry, counts),
        leaf("SupportOrdering", True),
        _write_counts(counts),
        leaf("AutoDeleteOnIdle", write_duration(queue.auto_delete_on_idle)),
        leaf("EnablePartitioning", queue.enable_partitioning if has_partitions else None),
        leaf("EntityAvailabilityStatus", counts.availability),
        leaf("EnableExpress", queue.enable_express),
        leaf("ForwardTo", _target(queue.forward_to, view)),
        leaf("UserMetadata", queue.user_metadata),
        leaf("ForwardDeadLetteredMessagesTo", _target(queue.forward_dead_letters_to, view)),
        leaf("MaxMessageSizeInKilobytes", view.message_size_kb if view.api_version >= MESSAGE_SIZE_SINCE else None),
    ]
    return description_node("QueueDescription", "".join(content))


def write_topic(
    entry: Entry,
    topic: TopicDescription,
    counts: EntityCounts,
    subscription_count: int,
    filters: FilterCounts,
    view: View,
) -> str:
    has_partitions, has_filters = view.api_version >= PARTITIONING_SINCE, view.api_version >= FILTER_COUNTS_SINCE
    content = [
        leaf("DefaultMessageTimeToLive", write_duration(topic.default_time_to_live)),
        leaf("MaxSizeInMegabytes", shown_size_mb(topic)),
        leaf("RequiresDuplicateDetection", topic.requires_duplicate_detection),
        leaf("DuplicateDetectionHistoryTimeWindow", write_duration(topic.duplicate_detection_window)),
        leaf("EnableBatchedOperations", topic.enable_batched_operations),
        leaf("SizeInBytes", counts.size_bytes),
        leaf("FilteringMessagesBeforePublishing", topic.filter_before_publishing),
        leaf("IsAnonymousAccessible", False),
        write_access_rules(topic.authorization_rules),
        leaf("Status", topic.status.value),
        *_times(entry, counts),
        leaf("SupportOrdering", topic.support_ordering),
        _write_counts(counts),
        leaf("SubscriptionCount", subscription_count),
        leaf("SqlFilterCount", filters.sql if has_filters else None),
        leaf("CorrelationFilterCount", filters.correlation if has_filters else None),
        leaf("AutoDeleteOnIdle", write_duration(topic.auto_delete_on_idle)),
        leaf("EnablePartitioning", topic.enable_partitioning if has_partitions else None),
        leaf("EntityAvailabilityStatus", counts.availability),
        leaf("EnableSubscriptionPartitioning", False),
        leaf("EnableExpress", topic.enable_express),
        leaf("UserMetadata", topic.user_metadata),
        leaf("MaxMessageSizeInKilobytes", view.message_size_kb if view.api_version >= MESSAGE_SIZE_SINCE else None),
    ]
    return description_node("TopicDescription", "".join(content))


def write_subscription(entry: Entry, subscription: SubscriptionDescription, counts: EntityCounts, view: View) -> str:
    content = [
        leaf("LockDuration", write_duration(subscription.lock_duration)),
        leaf("RequiresSession", subscription.requires_session),
        leaf("DefaultMessageTimeToLive", write_duration(subscription.default_time_to_live)),
        leaf("DeadLetteringOnMessageExpiration", subscription.dead_letter_on_expiry),
        leaf("DeadLetteringOnFilterEvaluationExceptions", subscription.dead_letter_on_filter_error),
        leaf("MessageCount", counts.messages),
        leaf("MaxDeliveryCount", subscription.max_delivery_count),
        leaf("EnableBatchedOperations", subscription.enable_batched_operations),
        leaf("Status", subscription.status.value),
        leaf("ForwardTo", _target(subscription.forward_to, view)),
        *_times(entry, counts),
        _write_counts(counts),
        leaf("ForwardDeadLetteredMessagesTo", _target(subscription.forward_dead_letters_to, view)),
        leaf("AutoDeleteOnIdle", write_duration(subscription.auto_delete_on_idle)),
        leaf("EntityAvailabilityStatus", counts.availability),
        leaf("UserMetadata", subscription.user_metadata),
    ]
    return description_node("SubscriptionDescription", "".join(content))


def _times(entry: Entry, counts: EntityCounts) -> list[str]:
    return [
        leaf("CreatedAt", write_time(entry.created_at)),
        leaf("UpdatedAt", write_time(entry.updated_at)),
        leaf("AccessedAt", write_time(max(entry.created_at, counts.last_used_at))),
    ]


def _target(path: str | None, view: View) -> str | None:
    return None if path is None else view.forward_base + path


def _write_counts(counts: EntityCounts) -> str:
    numbers = {
        "ActiveMessageCount": counts.active,
        "DeadLetterMessageCount": counts.dead_letter,
        "ScheduledMessageCount": counts.scheduled,
        "TransferMessageCount": counts.transfer,
        "TransferDeadLetterMessageCount": counts.transfer_dead_letter,
    }
    content = "".join(leaf(f"d2p1:{name}", number) for name, number in numbers.items())
    return node("CountDetails", content, attribute("xmlns:d2p1", COUNTS_NAMESPACE))
