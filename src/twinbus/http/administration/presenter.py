"""Catalog entries on their way out: an entry goes in, the Atom entry with its counts of the moment comes out.

A page may have a thousand of them, and a topic two thousand subscriptions whose messages count as its own: the loop goes on in
between.
"""

import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from twinbus.broker.replies import Holdings
from twinbus.clock import Clock, Millis
from twinbus.errors import EntityNotFound, FragmentUnavailable, OperationTimeout
from twinbus.http.atom.entity_writer import View, write_queue, write_subscription, write_topic
from twinbus.http.atom.envelopes import AtomEntry, description_node
from twinbus.http.atom.rule_xml import write_rule_description
from twinbus.http.atom.xml_writer import leaf
from twinbus.http.pace import Pace
from twinbus.management.catalog import Catalog, Entry, NamespaceInfo, path_of
from twinbus.management.counts import NOTHING, EntityCounts, counts_of, topic_counts
from twinbus.management.quotas import count_filters
from twinbus.management.runtime import Counting
from twinbus.management.waiting import answer_of
from twinbus.model.descriptions import (
    EntityDescription,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.iso8601 import write_time
from twinbus.model.paths import subscription_path

COUNT_WAIT_S = 10.0

SERVICE_HOST = re.compile(r"([a-z0-9-]+)\.servicebus\.", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Presenter:
    catalog: Catalog
    counting: Counting
    clock: Clock
    view: View
    pace: Pace = field(default_factory=Pace)

    async def entities(self, entries: Iterable[Entry]) -> AsyncIterator[AtomEntry]:
        for entry in entries:
            yield await self.entity(entry)
            await self.pace.rest()

    async def entity(self, entry: Entry) -> AtomEntry:
        """While none of its messages can be reached it is shown without counts."""
        return self._entity(entry, await self._counts(entry.description))

    async def counted_entity(self, entry: Entry) -> AtomEntry:
        """For a reader of this entity alone. Raises FragmentUnavailable while none of its messages can be reached: most
        SDKs show counts that are missing as 0, and the entity would look empty."""
        counts = await self._counts(entry.description)
        if counts.is_unknown:
            raise FragmentUnavailable(
                f"The messaging store of '{path_of(entry.description)}' is unavailable, so its messages cannot be "
                "counted. Try again later; lists show the entity without its counts."
            )
        return self._entity(entry, counts)

    def _entity(self, entry: Entry, counts: EntityCounts) -> AtomEntry:
        description = entry.description
        match description:
            case QueueDescription():
                xml = write_queue(entry, description, counts, self.view)
            case TopicDescription():
                subscriptions = self.catalog.subscriptions(description.name)
                filters = count_filters(subscriptions)
                xml = write_topic(entry, description, counts, len(subscriptions), filters, self.view)
            case SubscriptionDescription():
                xml = write_subscription(entry, description, counts, self.view)
        return AtomEntry(path_of(description), description.name, entry.created_at, entry.updated_at, xml)

    async def _counts(self, description: EntityDescription) -> EntityCounts:
        held = await self._held(path_of(description))
        if held is None:
            return NOTHING
        if not isinstance(description, TopicDescription):
            return counts_of(held)
        below = []
        for subscription in self.catalog.subscriptions(description.name):
            below.append(await self._held(path_of(subscription.description)))
            await self.pace.rest()
        return topic_counts(held, [NOTHING if each is None else counts_of(each) for each in below])

    async def _held(self, path: str) -> Holdings | None:
        late = OperationTimeout(f"The messages of '{path}' could not be counted in time. Try again later.")
        try:
            return await answer_of(lambda reply: self.counting.count(path, self.clock.now(), reply), COUNT_WAIT_S, late)
        except EntityNotFound:
            return None

    async def rules(self, topic: str, subscription: str, rules: Iterable[RuleDescription]) -> AsyncIterator[AtomEntry]:
        for rule in rules:
            yield self.rule(topic, subscription, rule)
            await self.pace.rest()

    def rule(self, topic: str, subscription: str, rule: RuleDescription) -> AtomEntry:
        path = f"{subscription_path(topic, subscription)}/Rules/{rule.name}"
        return AtomEntry(path, rule.name, rule.created_at, rule.created_at, write_rule_description(rule))

    def namespace(self, info: NamespaceInfo) -> AtomEntry:
        name = _name_in_host(self.view.host) or info.name
        content = [
            leaf("Alias", ""),
            leaf("CreatedTime", write_time(info.created_at)),
            leaf("MessagingSKU", "Standard"),
            leaf("ModifiedTime", write_time(info.modified_at)),
            leaf("Name", name),
            leaf("NamespaceType", "Messaging"),
        ]
        xml = description_node("NamespaceInfo", "".join(content))
        return AtomEntry("$namespaceinfo", name, info.created_at, info.modified_at, xml)


def _name_in_host(host: str) -> str | None:
    """A client that knows a namespace as `shop.servicebus.windows.net` expects that it is called `shop`."""
    found = SERVICE_HOST.match(host)
    return None if found is None else found[1]


def etag_of(updated_at: Millis) -> str:
    return f'"{updated_at}"'
