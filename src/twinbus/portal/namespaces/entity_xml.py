"""Entries of an administration listing: Atom XML in, entities as values out. The same for twinbus and Azure.

The official client asks twice for what one listing holds, settings and counts, and takes milliseconds for each entity; a page with
a thousand of them has no time for that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from xml.etree import ElementTree

from twinbus.errors import InternalError
from twinbus.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from twinbus.model.entity_properties import EntityKind
from twinbus.model.paths import is_backlog_queue, subscription_path

ATOM = "{http://www.w3.org/2005/Atom}"
MEGABYTE = 1_048_576


class EntityType(Enum):
    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


DESCRIPTIONS: dict[EntityType, EntityKind] = {
    EntityType.QUEUE: QueueDescription,
    EntityType.TOPIC: TopicDescription,
    EntityType.SUBSCRIPTION: SubscriptionDescription,
}


@dataclass(frozen=True, slots=True)
class Entity:
    """`elements` has every element of the description by its name, as text."""

    type: EntityType
    name: str
    topic: str | None
    elements: Mapping[str, str]

    @property
    def path(self) -> str:
        return self.name if self.topic is None else subscription_path(self.topic, self.name)

    @property
    def status(self) -> str:
        return self.elements.get("Status", "Active")

    @property
    def is_limited(self) -> bool:
        return self.elements.get("EntityAvailabilityStatus") == "Limited"

    @property
    def is_partitioned(self) -> bool:
        return self.flag("EnablePartitioning")

    @property
    def has_sessions(self) -> bool:
        return self.flag("RequiresSession")

    @property
    def is_backlog(self) -> bool:
        return is_backlog_queue(self.name)

    def flag(self, element: str) -> bool:
        return self.elements.get(element, "").lower() == "true"

    def number(self, element: str) -> int | None:
        """None if the namespace did not say."""
        text = self.elements.get(element, "")
        return int(text) if text.lstrip("-").isdigit() else None

    def time(self, element: str) -> datetime | None:
        text = self.elements.get(element, "")
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            return None
        return found if found.year > 1 else None

    @property
    def active(self) -> int | None:
        return self.number("ActiveMessageCount")

    @property
    def dead_letters(self) -> int | None:
        return self.number("DeadLetterMessageCount")

    @property
    def scheduled(self) -> int | None:
        return self.number("ScheduledMessageCount")

    @property
    def size_bytes(self) -> int | None:
        return self.number("SizeInBytes")

    @property
    def full_share(self) -> float:
        """How much of its largest size is used, 0 to 1."""
        size_max = self.number("MaxSizeInMegabytes")
        return (self.size_bytes or 0) / (size_max * MEGABYTE) if size_max else 0.0


def read_feed(text: str, kind: EntityType, topic: str | None = None) -> list[Entity]:
    """Of a feed or of one entry. Raises InternalError for what is neither."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        raise InternalError("The response of the namespace is not a list of entities.") from None
    entries = [root] if root.tag == f"{ATOM}entry" else root.findall(f"{ATOM}entry")
    found = []
    for entry in entries:
        title, content = entry.find(f"{ATOM}title"), entry.find(f"{ATOM}content")
        if title is not None and content is not None and len(content):
            found.append(Entity(kind, title.text or "", topic, _elements(content[0])))
    return found


def _elements(description: ElementTree.Element) -> dict[str, str]:
    """Those inside of CountDetails stand beside the others: their names differ."""
    return {each.tag.rpartition("}")[2]: each.text or "" for each in description.iter() if each is not description}
