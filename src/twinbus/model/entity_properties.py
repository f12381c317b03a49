"""The table of entity properties: every property of queues, topics and subscriptions, once.

A row drives the Atom reader and writer, the checks of the control plane, the options and the output of the command
line, the keys of definition files and `docs/reference/properties.md`. A new property is a field in `descriptions`, a row
here, and, where the broker uses it, a field in `broker/entity_settings` and its meaning; `make docs` does the pages.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from enum import Enum
from typing import Any

from twinbus.clock import NEVER, Millis
from twinbus.model.descriptions import (
    DAY,
    FRAGMENT_COUNT,
    LOCK_DURATION_MAX,
    LOCK_DURATION_MIN,
    MINUTE,
    SECOND,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from twinbus.model.message_limits import LARGE_MESSAGE_KB_MAX, LARGE_MESSAGE_KB_MIN, MESSAGE_SIZE_KB_DEFAULT

PARTITIONING_SINCE = "2013-10"
MESSAGE_SIZE_SINCE = "2021-05"
FILTER_COUNTS_SINCE = "2024-05"

EntityKind = type[QueueDescription] | type[TopicDescription] | type[SubscriptionDescription]


class Kind(Enum):
    """What the values of a property are."""

    FLAG = "flag"
    NUMBER = "number"
    DURATION = "duration"
    TEXT = "text"
    STATUS = "status"
    TARGET = "target"  # the path of the entity to forward to


class Use(Enum):
    """What twinbus does with an element."""

    HONOURED = "honoured"
    AT_CREATION = "at creation"
    KEPT = "kept"
    REPORTED = "reported"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Element:
    """An element of an entity's XML.

    `queue`, `topic` and `subscription` are its place among the elements of such an entity, whose order is the
    service's; None where the entity does not have it. `since` is the first api-version that shows it.
    """

    element: str
    _: KW_ONLY
    use: Use = Use.HONOURED
    meaning: str = ""  # for the reference
    queue: int | None = None
    topic: int | None = None
    subscription: int | None = None
    since: str = ""

    def place(self, kind: EntityKind) -> int | None:
        places: dict[EntityKind, int | None] = {
            QueueDescription: self.queue,
            TopicDescription: self.topic,
            SubscriptionDescription: self.subscription,
        }
        return places[kind]


@dataclass(frozen=True, slots=True)
class Property(Element):
    """An element that can be set: a field of the descriptions, which hold its default.

    `least` and `most` bound numbers and durations; `most` of a text is its length. `choices` are allowed as well, or
    alone where there are no bounds. A property without `option` is not on the command line, and one that the official client
    does not know cannot be: commands use that client. `short` is a second key in definition files, `shown` the name in what
    commands print.
    """

    field: str
    kind: Kind
    _: KW_ONLY
    least: int | None = None
    most: int | None = None
    choices: tuple[int, ...] = ()
    option: str | None = None
    help: str = ""  # without the limits, which are added
    metavar: str | None = None
    short: str | None = None
    shown: str | None = None
    is_in_client: bool = True  # whether the official client sends it

    @property
    def client_name(self) -> str:
        """The attribute and keyword of the official administration client: the element's name in Python's spelling."""
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.element).lstrip("_")

    @property
    def shown_name(self) -> str:
        return self.shown or self.short or self.field

    def allows(self, value: Any) -> bool:
        size = len(value or "") if self.kind is Kind.TEXT else value
        if size in self.choices or (self.choices and self.least is None):
            return size in self.choices
        return (self.least is None or size >= self.least) and (self.most is None or size <= self.most)

    def limits(self, duration: Callable[[Millis], str]) -> str:
        """What a value may be, in words; empty where the kind says it all."""
        text: Callable[[int], str] = duration if self.kind is Kind.DURATION else str
        choices = [status.value for status in EntityStatus] if self.kind is Kind.STATUS else self.choices
        if choices and self.least is not None:
            return f"{', '.join(map(str, choices))}, or {text(self.least)} to {text(self.most or NEVER)}"
        if choices:
            return f"{', '.join(map(str, choices[:-1]))} or {choices[-1]}"
        if self.kind is Kind.TEXT:
            return "" if self.most is None else f"at most {self.most} characters"
        if self.least is None:
            return ""
        if self.most is None or self.most == NEVER:
            return f"at least {text(self.least)}"
        return f"{text(self.least)} to {text(self.most)}"


# fmt: off
# Tables, laid out as such. Properties are in the order in which commands list them.
PROPERTIES = (
    Property(
        "Status", "status", Kind.STATUS, queue=14, topic=10, subscription=9,
        option="--status", help="What clients may do",
    ),
    Property(
        "EnablePartitioning", "enable_partitioning", Kind.FLAG, use=Use.AT_CREATION, queue=21, topic=20, since=PARTITIONING_SINCE,
        option="--partitioned", short="partitioned", help=f"Split the entity into {FRAGMENT_COUNT} fragments in different messaging stores",
        meaning=f"{FRAGMENT_COUNT} fragments; a topic's subscriptions are partitioned like the topic",
    ),
    Property(
        "RequiresSession", "requires_session", Kind.FLAG, use=Use.AT_CREATION, queue=4, subscription=2,
        option="--sessions", short="sessions", help="Every message belongs to a message session",
    ),
    Property(
        "RequiresDuplicateDetection", "requires_duplicate_detection", Kind.FLAG, use=Use.AT_CREATION, queue=3, topic=3,
        option="--duplicate-detection", short="duplicate_detection", help="Drop messages whose id was seen before",
        meaning="A topic decides once, before it copies a message to its subscriptions",
    ),
    Property(
        "DuplicateDetectionHistoryTimeWindow", "duplicate_detection_window", Kind.DURATION, queue=7, topic=4,
        least=20 * SECOND, most=7 * DAY, option="--duplicate-window", short="duplicate_window", help="How long ids are remembered",
        meaning="Has an effect only with duplicate detection. A change applies to ids of messages that arrive afterwards",
    ),
    Property(
        "MaxSizeInMegabytes", "max_size_mb", Kind.NUMBER, queue=2, topic=2,
        choices=(1024, 2048, 3072, 4096, 5120), option="--max-size", metavar="MB", help="Size limit of each fragment",
        meaning=f"Per fragment: a partitioned entity shows {FRAGMENT_COUNT} times as much, and accepts that number too",
    ),
    Property(
        "MaxMessageSizeInKilobytes", "max_message_size_kb", Kind.NUMBER, queue=27, topic=25, since=MESSAGE_SIZE_SINCE,
        choices=(MESSAGE_SIZE_KB_DEFAULT,), least=LARGE_MESSAGE_KB_MIN, most=LARGE_MESSAGE_KB_MAX,
        option="--max-message-size", metavar="KB", help="Size limit of one message",
        meaning="The limit of the standard tier, or large messages as the premium tier has them. 1024, where that tier starts, is refused "
        "as the standard tier refuses it: the tests of the Python SDK look for that. A topic's applies to its subscriptions. "
        "A link learns a larger limit when it attaches again",
    ),
    Property(
        "LockDuration", "lock_duration", Kind.DURATION, queue=1, subscription=1,
        least=LOCK_DURATION_MIN, most=LOCK_DURATION_MAX, option="--lock-duration", help="How long a received message stays locked",
        meaning="A change applies to locks that are taken or renewed afterwards",
    ),
    Property(
        "DefaultMessageTimeToLive", "default_time_to_live", Kind.DURATION, queue=5, topic=1, subscription=3,
        least=SECOND, most=NEVER, option="--ttl", short="ttl", shown="time_to_live", help="Maximum time to live of a message",
        meaning="The shortest one applies: the message's own, the topic's or the subscription's",
    ),
    Property(
        "DeadLetteringOnMessageExpiration", "dead_letter_on_expiry", Kind.FLAG, queue=6, subscription=4,
        option="--dead-letter-on-expiry/--drop-on-expiry", help="Dead-letter expired messages, or drop them",
        meaning="false: expired messages are dropped",
    ),
    Property(
        "DeadLetteringOnFilterEvaluationExceptions", "dead_letter_on_filter_error", Kind.FLAG, subscription=5,
        meaning="false: the subscription does not take a message on which a filter fails",
    ),
    Property(
        "MaxDeliveryCount", "max_delivery_count", Kind.NUMBER, queue=8, subscription=7,
        least=1, most=2**31 - 1, option="--max-delivery-count", help="Deliveries before a message is dead-lettered",
    ),
    Property(
        "ForwardTo", "forward_to", Kind.TARGET, queue=24, subscription=10,
        option="--forward-to", metavar="ENTITY", help="Forward all messages to this entity; an empty value stops forwarding",
        meaning="A path, or a URL whose path counts. Shown as a URL with the host that the reader used and the scheme that was sent, "
        "`sb` for a path. The target has to exist and must not lead back, and the caller needs Send on it. No effect "
        "with `RequiresSession`: such an entity can be created, as the SDK's own tests do, and keeps its messages",
    ),
    Property(
        "ForwardDeadLetteredMessagesTo", "forward_dead_letters_to", Kind.TARGET, queue=26, subscription=15,
        option="--forward-dead-letters-to", metavar="ENTITY", help="Forward dead letters to this entity; an empty value stops forwarding",
        meaning="A path or a URL, as for `ForwardTo`",
    ),
    Property(
        "AutoDeleteOnIdle", "auto_delete_on_idle", Kind.DURATION, queue=20, topic=19, subscription=16,
        least=5 * MINUTE, most=NEVER, option="--auto-delete-on-idle", help="Delete the entity after this long without use",
        meaning="Use is a send, a receive, a peek, an update or a new rule. An entity that forwards is in use, and so is one with "
        "receivers, locked messages or scheduled ones; a topic as long as one of its subscriptions is. Checked every 15 seconds",
    ),
    Property(
        "UserMetadata", "user_metadata", Kind.TEXT, queue=25, topic=24, subscription=18,
        most=1024, option="--metadata", shown="metadata", help="Text kept with the entity",
    ),
    Property(
        "EnableBatchedOperations", "enable_batched_operations", Kind.FLAG, use=Use.KEPT, queue=9, topic=5, subscription=8,
        meaning="No effect: commits that wait next to each other are always joined",
    ),
    Property(
        "EnableExpress", "enable_express", Kind.FLAG, use=Use.KEPT, queue=23, topic=23,
        meaning="No effect: every message is durable before it is accepted",
    ),
    Property(
        "FilteringMessagesBeforePublishing", "filter_before_publishing", Kind.FLAG, use=Use.KEPT, topic=7, is_in_client=False,
        meaning="A message that no subscription takes is accepted. Not in exported files: the official client never sends it",
    ),
    Property("SupportOrdering", "support_ordering", Kind.FLAG, use=Use.KEPT, topic=14),
)

# The elements that code of their own reads and writes (`http.atom`).
OTHER_ELEMENTS = (
    Element(
        "AuthorizationRules", queue=13, topic=9,
        meaning="See below. Omitted from an update they stay, an empty list removes them. A topic's apply to its subscriptions",
    ),
    Element(
        "DefaultRuleDescription", use=Use.AT_CREATION, subscription=19,
        meaning="The first rule; without it `$Default`, which takes every message. Never shown: rules have a list of their own",
    ),
    Element("SizeInBytes", use=Use.REPORTED, queue=10, topic=6, meaning="Of all fragments"),
    Element(
        "MessageCount", use=Use.REPORTED, queue=11, subscription=6,
        meaning="Everything in the entity and its dead-letter queues",
    ),
    Element("CountDetails", use=Use.REPORTED, queue=19, topic=15, subscription=14, meaning="See below"),
    Element("SubscriptionCount", use=Use.REPORTED, topic=16),
    Element(
        "SqlFilterCount", use=Use.REPORTED, topic=17, since=FILTER_COUNTS_SINCE,
        meaning="Of all subscriptions; true and false filters count as SQL",
    ),
    Element("CorrelationFilterCount", use=Use.REPORTED, topic=18, since=FILTER_COUNTS_SINCE),
    Element("CreatedAt", use=Use.REPORTED, queue=15, topic=11, subscription=11),
    Element("UpdatedAt", use=Use.REPORTED, queue=16, topic=12, subscription=12),
    Element(
        "AccessedAt", use=Use.REPORTED, queue=17, topic=13, subscription=13,
        meaning="When a client last sent, received or peeked. A queue or topic that nobody has used since it was created shows "
        "`0001-01-01T00:00:00Z`. Not kept over a restart: until it is used again, the moment of the restart is shown",
    ),
    Element(
        "EntityAvailabilityStatus", use=Use.REPORTED, queue=22, topic=21, subscription=17,
        meaning="Available, or Limited while a fragment has no working messaging store",
    ),
    Element("IsAnonymousAccessible", use=Use.FIXED, queue=12, topic=8, meaning="false"),
    Element("SupportOrdering", use=Use.FIXED, queue=18, meaning="true"),
    Element(
        "EnableSubscriptionPartitioning", use=Use.FIXED, topic=22,
        meaning="false: subscriptions have the fragments of their topic",
    ),
)
# fmt: on

ENTITY_KINDS: tuple[EntityKind, ...] = (QueueDescription, TopicDescription, SubscriptionDescription)
_BY_FIELD = {each.field: each for each in PROPERTIES}
_PROPERTIES = {kind: tuple(each for each in PROPERTIES if each.place(kind)) for kind in ENTITY_KINDS}
_ELEMENTS = {
    kind: tuple(
        sorted(
            (each for each in (*PROPERTIES, *OTHER_ELEMENTS) if each.place(kind)),
            key=lambda each: each.place(kind) or 0,
        )
    )
    for kind in ENTITY_KINDS
}


def properties_of(kind: EntityKind) -> tuple[Property, ...]:
    """In the order in which commands list them."""
    return _PROPERTIES[kind]


def elements_of(kind: EntityKind) -> tuple[Element, ...]:
    """In the service's order."""
    return _ELEMENTS[kind]


def property_of(field: str) -> Property:
    return _BY_FIELD[field]


def scheme_field(target: str) -> str:
    """The field with the scheme in which the forwarding target of the field `target` is shown."""
    return f"{target}_scheme"


def default_of(wanted: Property) -> Any:
    """The same in every entity that has the property."""
    kind = next(kind for kind in ENTITY_KINDS if wanted.place(kind))
    return next(each.default for each in fields(kind) if each.name == wanted.field)
