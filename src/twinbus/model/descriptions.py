"""The settings of entities: descriptions of queues, topics, subscriptions and rules.

Values only. Names, limits and help of each field are in `entity_properties`; what a field does is in `twinbus.broker`.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from twinbus.clock import NEVER, Millis
from twinbus.model.message_limits import MESSAGE_SIZE_KB_DEFAULT

SECOND: Millis = 1_000
MINUTE: Millis = 60 * SECOND
DAY: Millis = 24 * 60 * MINUTE

LOCK_DURATION_MIN: Millis = 5 * SECOND
LOCK_DURATION_MAX: Millis = 5 * MINUTE
LOCK_DURATION_DEFAULT: Millis = MINUTE
DUPLICATE_WINDOW_DEFAULT: Millis = 10 * MINUTE
MAX_DELIVERY_COUNT_DEFAULT = 10
SIZE_MB_DEFAULT = 1024
FRAGMENT_COUNT = 16
FORWARD_SCHEME_DEFAULT = "sb"


class EntityStatus(Enum):
    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


class Right(Enum):
    """A claim that a SAS rule grants."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


class WhichKey(Enum):
    """Which of the two keys of a SAS rule."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A SAS rule of the namespace or of one entity. Either key signs tokens."""

    name: str
    primary_key: str
    secondary_key: str
    rights: frozenset[Right]
    created_at: Millis = 0
    modified_at: Millis = 0


@dataclass(frozen=True, slots=True)
class QueueDescription:
    name: str
    lock_duration: Millis = LOCK_DURATION_DEFAULT
    max_size_mb: int = SIZE_MB_DEFAULT
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_time_to_live: Millis = NEVER
    dead_letter_on_expiry: bool = False
    duplicate_detection_window: Millis = DUPLICATE_WINDOW_DEFAULT
    max_delivery_count: int = MAX_DELIVERY_COUNT_DEFAULT
    enable_batched_operations: bool = True
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: Millis = NEVER
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_to: str | None = None
    forward_to_scheme: str = FORWARD_SCHEME_DEFAULT
    forward_dead_letters_to: str | None = None
    forward_dead_letters_to_scheme: str = FORWARD_SCHEME_DEFAULT
    user_metadata: str | None = None
    max_message_size_kb: int = MESSAGE_SIZE_KB_DEFAULT


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    max_size_mb: int = SIZE_MB_DEFAULT
    requires_duplicate_detection: bool = False
    default_time_to_live: Millis = NEVER
    duplicate_detection_window: Millis = DUPLICATE_WINDOW_DEFAULT
    enable_batched_operations: bool = True
    filter_before_publishing: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: Millis = NEVER
    enable_partitioning: bool = False
    enable_express: bool = False
    support_ordering: bool = True
    user_metadata: str | None = None
    max_message_size_kb: int = MESSAGE_SIZE_KB_DEFAULT


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    topic: str
    name: str
    lock_duration: Millis = LOCK_DURATION_DEFAULT
    requires_session: bool = False
    default_time_to_live: Millis = NEVER
    dead_letter_on_expiry: bool = False
    dead_letter_on_filter_error: bool = True
    max_delivery_count: int = MAX_DELIVERY_COUNT_DEFAULT
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: Millis = NEVER
    forward_to: str | None = None
    forward_to_scheme: str = FORWARD_SCHEME_DEFAULT
    forward_dead_letters_to: str | None = None
    forward_dead_letters_to_scheme: str = FORWARD_SCHEME_DEFAULT
    user_metadata: str | None = None


EntityDescription: TypeAlias = QueueDescription | TopicDescription | SubscriptionDescription


@dataclass(frozen=True, slots=True)
class SqlFilter:
    expression: str
    parameters: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class TrueFilter:
    pass


@dataclass(frozen=True, slots=True)
class FalseFilter:
    pass


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Every field that is set must equal the message's; None is not compared."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class SqlAction:
    expression: str
    parameters: tuple[tuple[str, object], ...] = ()


FilterDescription = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class RuleDescription:
    name: str
    filter: FilterDescription = field(default_factory=TrueFilter)
    action: SqlAction | None = None
    created_at: Millis = 0
