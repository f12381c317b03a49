"""A failed send in, the kind of its failure out.

The kinds are what pairing has to tell apart. Two of them count as an outage of the entity and
start its failover timer; the others either pass by themselves (the service is busy, the entity
is full) or stay until somebody acts, and the backlog would only hide them.
"""

from enum import Enum

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)


class FailureKind(Enum):
    TIMEOUT = "timeout"
    OUTAGE = "outage"
    BUSY = "server busy"
    QUOTA = "quota exceeded"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not found"
    DISABLED = "disabled"
    TOO_LARGE = "too large"
    BAD_ARGUMENT = "bad argument"
    UNKNOWN = "unknown"

    @property
    def is_outage(self) -> bool:
        """Starts the failover timer."""
        return self in (FailureKind.TIMEOUT, FailureKind.OUTAGE)

    @property
    def is_lasting(self) -> bool:
        """Stays until somebody repairs the entity or its keys: not what a backlog is for."""
        return self in (FailureKind.UNAUTHORIZED, FailureKind.NOT_FOUND, FailureKind.DISABLED)

    @property
    def is_of_the_message(self) -> bool:
        """Another queue would refuse the message too."""
        return self in (FailureKind.TOO_LARGE, FailureKind.BAD_ARGUMENT)


# In order: the SDK's size error is also a ValueError.
_BY_CLASS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], FailureKind], ...] = (
    ((OperationTimeoutError, TimeoutError), FailureKind.TIMEOUT),
    ((ServiceBusConnectionError, ServiceBusCommunicationError), FailureKind.OUTAGE),
    (ServiceBusServerBusyError, FailureKind.BUSY),
    (ServiceBusQuotaExceededError, FailureKind.QUOTA),
    ((ServiceBusAuthorizationError, ServiceBusAuthenticationError), FailureKind.UNAUTHORIZED),
    (ClientAuthenticationError, FailureKind.UNAUTHORIZED),
    (MessagingEntityNotFoundError, FailureKind.NOT_FOUND),
    (MessagingEntityDisabledError, FailureKind.DISABLED),
    (MessageSizeExceededError, FailureKind.TOO_LARGE),
    (OSError, FailureKind.OUTAGE),
    ((ValueError, TypeError), FailureKind.BAD_ARGUMENT),
)

# Errors without a class of their own carry only the AMQP condition.
_BY_CONDITION = {
    "amqp:internal-error": FailureKind.OUTAGE,
    "com.microsoft:internal-server-error": FailureKind.OUTAGE,
    "amqp:connection:forced": FailureKind.OUTAGE,
    "amqp:connection:framing-error": FailureKind.OUTAGE,
    "amqp:session:errant-link": FailureKind.OUTAGE,
    "amqp:link:redirect": FailureKind.OUTAGE,
    "amqp:link:detach-forced": FailureKind.OUTAGE,
    "com.microsoft:container-close": FailureKind.OUTAGE,
    "com.microsoft:operation-cancelled": FailureKind.OUTAGE,
    "com.microsoft:argument-error": FailureKind.BAD_ARGUMENT,
    "com.microsoft:argument-out-of-range": FailureKind.BAD_ARGUMENT,
    "amqp:not-allowed": FailureKind.BAD_ARGUMENT,
    "amqp:not-implemented": FailureKind.BAD_ARGUMENT,
    "amqp:decode-error": FailureKind.BAD_ARGUMENT,
    "amqp:invalid-field": FailureKind.BAD_ARGUMENT,
    "amqp:precondition-failed": FailureKind.BAD_ARGUMENT,
}


def classify(error: BaseException) -> FailureKind:
    """The default classifier, for what the SDK raises once its own retries are used up."""
    for error_class, kind in _BY_CLASS:
        if isinstance(error, error_class):
            return kind
    if isinstance(error, ServiceBusError):
        return _classify_unnamed(error)
    return FailureKind.UNKNOWN


def condition_of(error: BaseException) -> str | None:
    """The AMQP condition the peer gave, where the SDK kept it."""
    # The SDK has no public name for it; its text holds it too, but also the peer's own words.
    condition = getattr(error, "_condition", None)
    if condition is None:
        return None
    value = getattr(condition, "value", condition)
    return value.decode() if isinstance(value, bytes) else str(value)


def _classify_unnamed(error: ServiceBusError) -> FailureKind:
    condition = condition_of(error)
    if condition is not None:
        return _BY_CONDITION.get(condition, FailureKind.UNKNOWN)
    cause = error.inner_exception
    if cause is not None and cause is not error:
        return classify(cause)
    return FailureKind.UNKNOWN
