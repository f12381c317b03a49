"""Every error raised on purpose, as one tree.

Each class states what clients get (`condition`, and the status of `$management` and HTTP replies) and whether a retry can
help (`is_transient`); what a class does not state it inherits. The text of an error is for the person who has to act on
it: it says what is wrong and what to do.
"""

from typing import ClassVar


class MessagingError(Exception):
    """Root of every error raised on purpose."""

    condition: str = "amqp:internal-error"  # an AmqpError may carry its own
    status: ClassVar[int] = 500
    is_transient: ClassVar[bool] = False

    def __init_subclass__(
        cls, condition: str | None = None, status: int | None = None, is_transient: bool | None = None
    ) -> None:
        super().__init_subclass__()
        if condition is not None:
            cls.condition = condition
        if status is not None:
            cls.status = status
        if is_transient is not None:
            cls.is_transient = is_transient


class InternalError(MessagingError, is_transient=True):
    """Something broke on our side; the caller may retry."""


# Entities


class EntityNotFound(MessagingError, condition="amqp:not-found", status=404):
    """No entity has this path."""

    @classmethod
    def at(cls, path: str) -> "EntityNotFound":
        # The JavaScript SDK recognises the error by these first words alone.
        return cls(f"The messaging entity '{path}' could not be found. Create it, or check the spelling of its path.")


class EntityAlreadyExists(MessagingError, condition="com.microsoft:entity-already-exists", status=409):
    """The name is taken."""


class OperationInProgress(EntityAlreadyExists, is_transient=True):
    """Another change to the same entity has not finished yet."""


class EntityDisabled(MessagingError, condition="com.microsoft:entity-disabled", status=400):
    """The entity's status forbids this operation."""


class PreconditionFailed(MessagingError, condition="amqp:precondition-failed", status=412):
    """The entity is not, or no longer, in the state that the request expects."""


class QuotaExceeded(MessagingError, condition="amqp:resource-limit-exceeded", status=403):
    """A limit of the entity or namespace is reached; removing messages or entities helps."""


# Rights


class Unauthorized(MessagingError, condition="amqp:unauthorized-access", status=401):
    """No valid token, or one without the right that the operation needs."""


class TokenExpired(Unauthorized, condition="com.microsoft:auth-failed", is_transient=True):
    """A valid token has expired on an open link; clients renew it and attach again."""


# Requests


class NotAllowed(MessagingError, condition="amqp:not-allowed", status=400):
    """The operation makes no sense for this entity (the service's invalid operation)."""


class MethodNotAllowed(NotAllowed, status=405):
    """The resource does not support this HTTP method."""


class NotImplementedHere(MessagingError, condition="amqp:not-implemented", status=501):
    """The service or AMQP has this operation, twinbus does not."""


class ArgumentError(MessagingError, condition="com.microsoft:argument-error", status=400):
    """A value from the caller is malformed or outside its limits."""


class ForwardTargetMissing(ArgumentError):
    """The entity that messages should be forwarded to does not exist."""


class FilterError(MessagingError, condition="com.microsoft:argument-error", status=400):
    """A rule's filter or action cannot be evaluated on this message (contract A15: the message may be dead-lettered)."""


# Messages, locks and transactions


class MessageTooLarge(MessagingError, condition="amqp:link:message-size-exceeded", status=403):
    """The message, or what it would become, is larger than the entity accepts."""

    @classmethod
    def at(cls, path: str, size: int, size_max: int) -> "MessageTooLarge":
        return cls(
            f"The message has {size} bytes; '{path}' accepts messages of at most {size_max} bytes. Send a smaller one, or "
            "create or update the entity with a larger MaxMessageSizeInKilobytes."
        )


class MessageNotFound(MessagingError, condition="com.microsoft:message-not-found", status=404):
    """No message with this sequence number is in the state that the operation needs."""


class MessageLockLost(MessagingError, condition="com.microsoft:message-lock-lost", status=410):
    """The lock has ended, or the message is settled."""


class SessionLockLost(MessagingError, condition="com.microsoft:session-lock-lost", status=410):
    """The receiver no longer holds the message session."""


class SessionCannotBeLocked(
    MessagingError, condition="com.microsoft:session-cannot-be-locked", status=410, is_transient=True
):
    """Another receiver holds the message session."""


class OperationTimeout(MessagingError, condition="com.microsoft:timeout", status=408, is_transient=True):
    """The operation did not finish in time; it may still happen."""


class TransactionTimeout(MessagingError, condition="amqp:transaction:timeout", status=408):
    """The transaction was open for too long and has been rolled back."""


class TransactionUnknown(MessagingError, condition="amqp:transaction:unknown-id", status=404):
    """This connection has no transaction with this id, or no longer."""


# Capacity and stores


class ServerBusy(MessagingError, condition="com.microsoft:server-busy", status=503, is_transient=True):
    """Too much is waiting; clients wait and retry."""


class FragmentUnavailable(InternalError):
    """What the operation needs lies in a messaging store that does not work. Not throttling: to slow down does not help."""


class OutcomeUnknown(FragmentUnavailable):
    """The messaging store failed before it confirmed the operation, and may have done it.

    `database`: where the store is, if it is in one of several: others there may be about to fail too.
    """

    def __init__(self, text: str, database: int | None = None) -> None:
        super().__init__(text)
        self.database = database


class StoreUnavailable(MessagingError, is_transient=True):
    """A messaging store failed: the operation may or may not have been done.

    Never reaches a client as such: a message broker turns it into FragmentUnavailable.
    """


class StoreInUse(StoreUnavailable):
    """Another process, or another store object in this process, has the folder open."""


class StoreTaken(StoreInUse):
    """Another process owns the store, by a lease in its database."""


class StoreDamaged(StoreUnavailable, is_transient=False):
    """The data on disk is not what was written; opening it again does not help, a person has to look."""


class StoreGone(StoreDamaged):
    """A messaging store that has been in use is not where it was, as when its volume is not mounted."""


class RequestRefused(StoreUnavailable):
    """The messaging store did nothing of what it was asked, for certain."""


class ChangeRefused(RequestRefused):
    """A commit breaks a rule of `twinbus.store.changes`, and none of it was applied.

    That is a bug in the broker, which then starts over from its store.
    """
