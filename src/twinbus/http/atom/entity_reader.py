"""Descriptions of queues, topics and subscriptions on their way in.

Reading gives the fields that the request sets, by the names of the description classes: what it leaves out or leaves
empty is the caller's to fill in. Elements that report (counts, times) are passed over.
"""

from collections.abc import Callable
from typing import Any

from twinbus.errors import ArgumentError
from twinbus.http.atom.xml_reader import Element
from twinbus.model.descriptions import EntityStatus
from twinbus.model.iso8601 import read_duration

INTEGER_DIGITS_MAX = 18


def read_integer(text: str, what: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > INTEGER_DIGITS_MAX:
        raise ArgumentError(f"{what} is '{text[:64]}', which is no whole number.")
    return int(text)


def read_boolean(text: str, what: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ArgumentError(f"{what} is '{text[:64]}'. Use true or false.")
    return text.lower() in ("true", "1")


def read_status(text: str, what: str) -> EntityStatus:
    try:
        return EntityStatus(text)
    except ValueError:
        choice = ", ".join(status.value for status in EntityStatus)
        raise ArgumentError(f"{what} is '{text[:64]}'. Use one of {choice}.") from None


def read_target(text: str, what: str) -> str:
    """A forwarding target: a bare path, or a URL whose path it is."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text.strip("/")
    _, _, path = rest.partition("/")
    if scheme not in ("sb", "http", "https") or not path.strip("/"):
        raise ArgumentError(f"{what} is '{text[:128]}', which names no entity. Write its path, or sb://HOST/PATH.")
    return path.strip("/")


def _read_text(text: str, _: str) -> str:
    return text


Reader = Callable[[str, str], Any]
SHARED_ELEMENTS: dict[str, tuple[str, Reader]] = {
    "DefaultMessageTimeToLive": ("default_time_to_live", read_duration),
    "EnableBatchedOperations": ("enable_batched_operations", read_boolean),
    "Status": ("status", read_status),
    "AutoDeleteOnIdle": ("auto_delete_on_idle", read_duration),
    "UserMetadata": ("user_metadata", _read_text),
}
RECEIVED_ELEMENTS: dict[str, tuple[str, Reader]] = {
    "LockDuration": ("lock_duration", read_duration),
    "RequiresSession": ("requires_session", read_boolean),
    "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiry", read_boolean),
    "MaxDeliveryCount": ("max_delivery_count", read_integer),
    "ForwardTo": ("forward_to", read_target),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", read_target),
}
STORED_ELEMENTS: dict[str, tuple[str, Reader]] = {
    "MaxSizeInMegabytes": ("max_size_mb", read_integer),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", read_boolean),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_window", read_duration),
    "EnablePartitioning": ("enable_partitioning", read_boolean),
    "EnableExpress": ("enable_express", read_boolean),
}
QUEUE_ELEMENTS = SHARED_ELEMENTS | RECEIVED_ELEMENTS | STORED_ELEMENTS
TOPIC_ELEMENTS = (
    SHARED_ELEMENTS
    | STORED_ELEMENTS
    | {
        "FilteringMessagesBeforePublishing": ("filter_before_publishing", read_boolean),
        "SupportOrdering": ("support_ordering", read_boolean),
    }
)
SUBSCRIPTION_ELEMENTS = (
    SHARED_ELEMENTS
    | RECEIVED_ELEMENTS
    | {"DeadLetteringOnFilterEvaluationExceptions": ("dead_letter_on_filter_error", read_boolean)}
)


def read_fields(element: Element, known: dict[str, tuple[str, Reader]]) -> dict[str, Any]:
    """The fields that a description sets. Raises ArgumentError naming the element whose text makes no sense."""
    values: dict[str, Any] = {}
    for name, (field, read) in known.items():
        text = element.text_of(name)
        if text is not None:
            values[field] = read(text, name)
    return values
