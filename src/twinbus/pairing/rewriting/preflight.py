"""Checks that a message could be sent while failed over, made on every send.

What an outage would refuse must be refused on a good day, where a developer sees it. On the
healthy path a check costs less than a microsecond: only a message whose body or whose properties
alone come near their limit is measured exactly.
"""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import MessageSizeExceededError

from twinbus.model.message_limits import HEADER_SIZE_MAX
from twinbus.model.pairing_limits import SET_ASIDE_SIZE_MAX
from twinbus.pairing.rewriting.transfer import RESERVED_NAMES, AnyMessage, annotated, as_it_is_now, set_aside

MEASURED_PROPERTIES_SIZE = (HEADER_SIZE_MAX - SET_ASIDE_SIZE_MAX) // 4
"""Of the application's own, from where all that stands before the body is measured: a letter may have four bytes."""
PROPERTY_SIZE = 16
"""Of a property, beside its name and a value that is a text or bytes."""

LONGEST_MADE_ID = "0" * 36

_FRONT = ("header", "delivery_annotations", "annotations", "properties", "application_properties")
_RESERVED = RESERVED_NAMES | {name.encode() for name in RESERVED_NAMES}


Sendable: TypeAlias = (
    Mapping[str, Any]
    | ServiceBusMessage
    | AmqpAnnotatedMessage
    | Iterable[Mapping[str, Any]]
    | Iterable[ServiceBusMessage]
    | Iterable[AmqpAnnotatedMessage]
)
"""What the SDK's senders take, beside batches."""


class ReservedPropertyError(ValueError):
    """The application uses a property name that paired namespaces need for themselves."""


def warn_of(options: Mapping[str, Any]) -> None:
    """As the SDK's senders do about keyword arguments that they do not know."""
    if options:
        warnings.warn(f"Unsupported keyword args: {dict(options)}", stacklevel=3)


def as_messages(given: object) -> AnyMessage | list[AnyMessage] | ServiceBusMessageBatch:
    """What the SDK's senders accept, without its mappings and one-time iterables."""
    if isinstance(given, (ServiceBusMessage, AmqpAnnotatedMessage, ServiceBusMessageBatch)):
        return given
    if isinstance(given, Iterable) and not isinstance(given, (Mapping, str, bytes)):
        return [_as_message(each) for each in given]
    return _as_message(given)


def _as_message(given: object) -> AnyMessage:
    if isinstance(given, (ServiceBusMessage, AmqpAnnotatedMessage)):
        return given
    if isinstance(given, Mapping):
        return ServiceBusMessage(**cast(Mapping[str, Any], given))
    raise TypeError(
        "Only AmqpAnnotatedMessage, ServiceBusMessage instances, mappings that represent messages, lists of them and "
        f"batches can be sent. Received instead: {type(given).__name__}"
    )


def check(message: AnyMessage, destination: str, size_max: int) -> None:
    """Raise if `message` could not go to `destination` by way of a backlog queue."""
    raw = annotated(message)
    properties = raw.application_properties
    if properties:
        _check_properties(properties, message, destination)
    size = 0
    if raw.body_type is AmqpMessageBodyType.DATA:
        # A loop: every message of every list passes here, and `sum(map(len, ...))` takes half as long again.
        for part in raw.body:
            size += len(part)
    else:
        size = _size_bound(raw.body)
    if size > usual_size_max(size_max):
        _check_exact_size(message, destination, size_max)


def usual_size_max(size_max: int) -> int:
    """A message without application properties whose body is no larger than this needs no `check`."""
    return size_max - HEADER_SIZE_MAX - SET_ASIDE_SIZE_MAX


def _check_properties(properties: dict[str | bytes, Any], message: AnyMessage, destination: str) -> None:
    if not _RESERVED.isdisjoint(properties):
        taken = sorted(str(name) for name in _RESERVED.intersection(properties))
        raise ReservedPropertyError(
            f"The application property {taken[0]} is reserved for paired namespaces; give yours another name."
        )
    size = PROPERTY_SIZE * len(properties) + sum(map(len, properties))
    for value in properties.values():
        if value.__class__ is str or value.__class__ is bytes:
            size += len(value)
    if size > MEASURED_PROPERTIES_SIZE:
        _check_front_size(message, destination)


def _check_front_size(message: AnyMessage, destination: str) -> None:
    """All that stands before the body, once it is rewritten."""
    rewritten = set_aside(message, destination, lambda: LONGEST_MADE_ID, 0)
    parts: dict[str, Any] = {name: getattr(rewritten, name) for name in _FRONT}
    front = AmqpAnnotatedMessage(data_body=b"", **parts)
    if not _fits(front, HEADER_SIZE_MAX):
        raise MessageSizeExceededError(
            message=f"The properties of the message would pass {HEADER_SIZE_MAX} bytes once it is rewritten for a "
            "backlog queue, so it could not be sent during an outage. Give it fewer or shorter ones."
        )


def _size_bound(body: object) -> int:
    """Of a value or sequence body: such that all but small ones are measured."""
    if body is None or isinstance(body, (int, float)):
        return 0
    return 4 * len(body) if isinstance(body, (str, bytes)) else 2**63


def _check_exact_size(message: AnyMessage, destination: str, size_max: int) -> None:
    rewritten = set_aside(message, destination, lambda: LONGEST_MADE_ID, 0)
    if not _fits(rewritten, size_max):
        raise MessageSizeExceededError(
            message=f"The message would pass {size_max} bytes once it is rewritten for a backlog queue, "
            "so it could not be sent during an outage. Send a smaller one."
        )


def _fits(message: AmqpAnnotatedMessage, size_max: int) -> bool:
    """By a batch, which measures as it is filled: the SDK's one public way to the size of a message."""
    try:
        ServiceBusMessageBatch(max_size_in_bytes=size_max).add_message(message)
    except MessageSizeExceededError:
        return False
    return True


class PairedMessageBatch(ServiceBusMessageBatch):
    """The SDK's batch that also keeps its messages, each as it is when it is added, and checks it."""

    def __init__(self, destination: str, message_size_max: int, max_size_in_bytes: int) -> None:
        super().__init__(max_size_in_bytes=max_size_in_bytes)
        self.destination = destination
        self.messages: list[AnyMessage] = []
        self._message_size_max = message_size_max

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]) -> None:
        if isinstance(message, Mapping):
            message = ServiceBusMessage(**message)
        check(message, self.destination, self._message_size_max)
        super().add_message(message)
        self.messages.append(as_it_is_now(message))
