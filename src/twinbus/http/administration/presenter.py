"""Catalog entries on their way out: an entry goes in, the Atom entry with its counts of the moment comes out."""

from dataclasses import dataclass

from twinbus.clock import Millis
from twinbus.http.atom.entity_writer import View, write_queue, write_subscription, write_topic
from twinbus.http.atom.envelopes import AtomEntry, description_node
from twinbus.http.atom.rule_xml import write_rule_description
from twinbus.http.atom.xml_writer import leaf
from twinbus.management.catalog import Catalog, Entry, NamespaceInfo, path_of
from twinbus.management.counts import queue_counts, subscription_counts, topic_counts
from twinbus.management.quotas import count_filters
from twinbus.management.runtime import Runtime
from twinbus.model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.model.iso8601 import write_time
from twinbus.model.paths import subscription_path


@dataclass(frozen=True, slots=True)
class Presenter:
    catalog: Catalog
    runtime: Runtime
    view: View

    def entity(self, entry: Entry) -> AtomEntry:
        description = entry.description
        path = path_of(description)
        match description:
            case QueueDescription():
                xml = write_queue(entry, description, queue_counts(self.runtime, path), self.view)
            case TopicDescription():
                xml = self._topic(entry, description)
            case SubscriptionDescription(topic=topic, name=name):
                xml = write_subscription(entry, description, subscription_counts(self.runtime, topic, name), self.view)
        return AtomEntry(path, description.name, entry.created_at, entry.updated_at, xml)

    def rule(self, topic: str, subscription: str, rule: RuleDescription) -> AtomEntry:
        path = f"{subscription_path(topic, subscription)}/Rules/{rule.name}"
        return AtomEntry(path, rule.name, rule.created_at, rule.created_at, write_rule_description(rule))

    def namespace(self, info: NamespaceInfo) -> AtomEntry:
        content = [
            leaf("Alias", ""),
            leaf("CreatedTime", write_time(info.created_at)),
            leaf("MessagingSKU", "Standard"),
            leaf("ModifiedTime", write_time(info.modified_at)),
            leaf("Name", info.name),
            leaf("NamespaceType", "Messaging"),
        ]
        xml = description_node("NamespaceInfo", "".join(content))
        return AtomEntry("$namespaceinfo", info.name, info.created_at, info.modified_at, xml)

    def _topic(self, entry: Entry, description: TopicDescription) -> str:
        subscriptions = self.catalog.subscriptions(description.name)
        each = [subscription_counts(self.runtime, description.name, one.description.name) for one in subscriptions]
        counts = topic_counts(self.runtime, description.name, each)
        return write_topic(entry, description, counts, len(subscriptions), count_filters(subscriptions), self.view)


def etag_of(updated_at: Millis) -> str:
    return f'"{updated_at}"'
