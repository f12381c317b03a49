"""A failed send in, the kind of its failure out.

The kinds are those that pairing treats differently. Two of them count as an outage of the entity and
start its failover timer; the others either pass by themselves (the service is busy, the entity
is full) or stay until somebody acts, and the backlog would only hide them.
"""

import logging
from collections.abc import Callable
from enum import Enum
from traceback import walk_tb

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus._pyamqp.error import TokenExpired
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

from twinbus import errors
from twinbus.client.remote_errors import ConnectionLost, RemoteError
from twinbus.errors import MessagingError
from twinbus.pairing.stock.line import WaitedForItself


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
    DETACHED = "link detached"
    """The service ended a link that was idle. Nothing is wrong: a new link is opened, and the send tried once more."""
    LOCAL = "local"
    """The time went by in this process, and no namespace is to blame."""
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


NOT_FOUND_STATUS = 404
SERVER_ERROR = 500

_CONNECTION = frozenset({"azure.servicebus._pyamqp._connection", "azure.servicebus._pyamqp.aio._connection_async"})
_ENCODING = "azure.servicebus._pyamqp._encode"
"""Modules of the SDK: it calls whatever goes wrong in them a failed handler, and the error below is as good as any."""

Classifier = Callable[[BaseException], FailureKind]

_LOGGER = logging.getLogger(__name__)

# In order: the SDK's size error is also a ValueError.
_BY_CLASS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], FailureKind], ...] = (
    ((OperationTimeoutError, TimeoutError), FailureKind.TIMEOUT),
    ((ServiceBusConnectionError, ServiceBusCommunicationError), FailureKind.OUTAGE),
    (ServiceBusServerBusyError, FailureKind.BUSY),
    (ServiceBusQuotaExceededError, FailureKind.QUOTA),
    ((ServiceBusAuthorizationError, ClientAuthenticationError), FailureKind.UNAUTHORIZED),
    (MessagingEntityNotFoundError, FailureKind.NOT_FOUND),
    (MessagingEntityDisabledError, FailureKind.DISABLED),
    (MessageSizeExceededError, FailureKind.TOO_LARGE),
    (OSError, FailureKind.OUTAGE),
    ((ValueError, TypeError), FailureKind.BAD_ARGUMENT),
)

# What the bulk client raises: errors of our own tree.
_BY_OUR_CLASS: tuple[tuple[type[MessagingError] | tuple[type[MessagingError], ...], FailureKind], ...] = (
    (errors.OperationTimeout, FailureKind.TIMEOUT),
    ((ConnectionLost, errors.InternalError, errors.StoreUnavailable), FailureKind.OUTAGE),
    (errors.ServerBusy, FailureKind.BUSY),
    (errors.QuotaExceeded, FailureKind.QUOTA),
    (errors.Unauthorized, FailureKind.UNAUTHORIZED),
    (errors.EntityNotFound, FailureKind.NOT_FOUND),
    (errors.EntityDisabled, FailureKind.DISABLED),
    (errors.MessageTooLarge, FailureKind.TOO_LARGE),
    ((errors.ArgumentError, errors.NotAllowed, errors.NotImplementedHere), FailureKind.BAD_ARGUMENT),
)

_BY_ANY_CLASS = _BY_CLASS + _BY_OUR_CLASS

DETACH_FORCED = "amqp:link:detach-forced"

_ANSWERS = ("amqp:internal-error", "com.microsoft:internal-server-error")

# Errors without a class of their own carry only the AMQP condition.
_BY_CONDITION = {
    "amqp:internal-error": FailureKind.OUTAGE,
    "com.microsoft:internal-server-error": FailureKind.OUTAGE,
    "amqp:connection:forced": FailureKind.OUTAGE,
    "amqp:connection:framing-error": FailureKind.OUTAGE,
    "amqp:session:errant-link": FailureKind.OUTAGE,
    # Of the SDK itself, about a link or connection that is not there any more.
    "amqp:client-error": FailureKind.OUTAGE,
    "amqp:link:redirect": FailureKind.OUTAGE,
    DETACH_FORCED: FailureKind.DETACHED,
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
    if isinstance(error, ServiceBusAuthenticationError) or _is_about_tokens(error):
        return _classify_authentication(error)
    if isinstance(error, ServiceBusConnectionError) and condition_of(error) == DETACH_FORCED:
        return FailureKind.DETACHED
    for error_class, kind in _BY_ANY_CLASS:
        if isinstance(error, error_class):
            return kind
    if isinstance(error, RemoteError):
        return _BY_CONDITION.get(error.remote_condition, FailureKind.UNKNOWN)
    if isinstance(error, ServiceBusError):
        return _classify_unnamed(error)
    return FailureKind.UNKNOWN


def kind_by(classifier: Classifier, error: BaseException) -> FailureKind:
    """What the user's classifier says. If it fails, or says nothing of use, the error it was asked about is still the one that counts.

    It is not asked about time that this process spent on itself.
    """
    if isinstance(error, WaitedForItself):
        return FailureKind.LOCAL
    try:
        kind = classifier(error)
    except Exception:
        _LOGGER.exception("classifier failed for %s", type(error).__name__)
        return FailureKind.UNKNOWN
    if not isinstance(kind, FailureKind):
        _LOGGER.error("classifier returned %r for %s; it has to return a FailureKind", kind, type(error).__name__)
        return FailureKind.UNKNOWN
    return kind


def is_answer(error: BaseException) -> bool:
    """Whether the primary itself reported the failure for the message at hand: the way there works, and so may the rest of it."""
    if isinstance(error, ServiceBusConnectionError | ServiceBusAuthenticationError | OSError):
        return False
    return isinstance(error, errors.InternalError) or condition_of(error) in _ANSWERS


def condition_of(error: BaseException) -> str | None:
    """The AMQP condition the peer gave, where the SDK kept it."""
    # The SDK has no public name for it; its text holds it too, but also the peer's own words.
    condition = getattr(error, "_condition", None)
    if condition is None:
        return None
    value = getattr(condition, "value", condition)
    return value.decode() if isinstance(value, bytes) else str(value)


def _is_about_tokens(error: BaseException) -> bool:
    """With an endpoint of its own, a client of the SDK calls a refused token a lost connection."""
    return isinstance(error, ServiceBusConnectionError) and _status_of(error) is not None


def _status_of(error: BaseException) -> int | None:
    """What a peer that refused a token answered."""
    status = getattr(getattr(error, "inner_exception", None), "status_code", None)
    return status if isinstance(status, int) else None


def _is_lost_connection(error: BaseException) -> bool:
    """Raised where the SDK connects and reads, by itself or by a package below it: what is there does not speak AMQP just now, such as a
    gateway that does not reach the namespace behind it. Who refuses to open a WebSocket with a status of his own does answer."""
    modules = {frame.f_globals["__name__"] for frame, _ in walk_tb(error.__traceback__)}
    # What is sent passes the connection too, and so does a call on the wrong event loop.
    if _ENCODING in modules or modules.isdisjoint(_CONNECTION) or isinstance(error, RuntimeError | MemoryError):
        return False
    status = getattr(error, "status_code", getattr(error, "status", None))
    return status is None or status >= SERVER_ERROR


def _classify_authentication(error: BaseException) -> FailureKind:
    """The SDK's name for everything that goes wrong before the token is accepted.

    A peer that refused the token gave a status; without one the token expired while a link was open, the link for tokens
    broke, or, over WebSockets, the name of the host is not known.
    """
    status = _status_of(error)
    if status is not None:
        return FailureKind.NOT_FOUND if status == NOT_FOUND_STATUS else FailureKind.UNAUTHORIZED
    cause = getattr(error, "inner_exception", None)
    if isinstance(cause, TokenExpired):
        return FailureKind.UNAUTHORIZED
    if cause is not None and _is_lost_connection(cause):
        return FailureKind.OUTAGE
    return FailureKind.OUTAGE if condition_of(error) == "amqp:internal-error" else FailureKind.UNAUTHORIZED


def as_named(error: Exception, kind: FailureKind) -> Exception:
    """What the application gets: the SDK calls a missing entity a failed authentication, since no token is given for it."""
    if kind is FailureKind.NOT_FOUND and isinstance(error, ServiceBusError):
        if isinstance(error, MessagingEntityNotFoundError):
            return error
        named = MessagingEntityNotFoundError(
            message=f"The entity does not exist, or was deleted. The SDK reports: {error}", error=error
        )
        named.__cause__ = error
        return named
    return error


# What the bulk client raises, and what the SDK calls it.
_STOCK_CLASSES: tuple[tuple[type[MessagingError], type[ServiceBusError]], ...] = (
    (errors.OperationTimeout, OperationTimeoutError),
    (ConnectionLost, ServiceBusConnectionError),
    (errors.ServerBusy, ServiceBusServerBusyError),
    (errors.QuotaExceeded, ServiceBusQuotaExceededError),
    (errors.Unauthorized, ServiceBusAuthenticationError),
    (errors.EntityNotFound, MessagingEntityNotFoundError),
    (errors.EntityDisabled, MessagingEntityDisabledError),
)


def as_stock_error(error: Exception) -> Exception:
    """A failure of the bulk client as the SDK would raise it. Classifiers and applications know only the SDK's classes, and a ping
    that finds the entity gone is what the next send raises."""
    for own_class, stock_class in _STOCK_CLASSES:
        if isinstance(error, own_class):
            stock = stock_class(message=str(error), error=error)
            stock.__cause__ = error
            return stock
    return error


def _classify_unnamed(error: ServiceBusError) -> FailureKind:
    condition = condition_of(error)
    if condition is not None:
        return _BY_CONDITION.get(condition, FailureKind.UNKNOWN)
    cause = error.inner_exception
    if cause is not None and cause is not error:
        return FailureKind.OUTAGE if _is_lost_connection(cause) else classify(cause)
    return FailureKind.UNKNOWN
