"""Every error raised on purpose, as one tree.

Each class says what the peer is told (`condition`, and the status of `$management`
and HTTP replies) and whether trying again can help (`is_transient`). The text of an
error is for the person who has to act on it: it says what is wrong and what to do.
"""

from typing import ClassVar


class MessagingError(Exception):
    """Root of every error raised on purpose."""

    condition: str = "amqp:internal-error"  # an AmqpError may carry its own
    status: ClassVar[int] = 500
    is_transient: ClassVar[bool] = False


class InternalError(MessagingError):
    """Something broke on our side; the caller may try again."""

    is_transient = True


class EntityNotFound(MessagingError):
    """No entity has this path."""

    condition = "amqp:not-found"
    status = 404

    @classmethod
    def at(cls, path: str) -> "EntityNotFound":
        # The JavaScript SDK recognises the error by these first words alone.
        return cls(f"The messaging entity '{path}' could not be found. Create it, or check the spelling of its path.")


class EntityAlreadyExists(MessagingError):
    condition = "com.microsoft:entity-already-exists"
    status = 409


class OperationInProgress(EntityAlreadyExists):
    """Another change to the same entity has not ended yet."""

    is_transient = True


class EntityDisabled(MessagingError):
    """The entity's status forbids this operation."""

    condition = "com.microsoft:entity-disabled"
    status = 400


class Unauthorized(MessagingError):
    """No valid token, or one without the claim that the operation needs."""

    condition = "amqp:unauthorized-access"
    status = 401


class TokenExpired(Unauthorized):
    """A token that was good has run out on an open link; clients renew it and attach again."""

    condition = "com.microsoft:auth-failed"
    is_transient = True


class NotAllowed(MessagingError):
    """The operation makes no sense for this entity (the service's invalid operation)."""

    condition = "amqp:not-allowed"
    status = 400


class MethodNotAllowed(NotAllowed):
    """An HTTP method that the resource does not know."""

    status = 405


class NotImplementedHere(MessagingError):
    condition = "amqp:not-implemented"
    status = 501


class ArgumentError(MessagingError):
    """A value the caller gave is malformed or outside of its limits."""

    condition = "com.microsoft:argument-error"
    status = 400


class FilterError(MessagingError):
    """A rule's filter or action cannot be evaluated on this message (contract A15: the message may be dead-lettered)."""

    condition = "com.microsoft:argument-error"
    status = 400


class ForwardTargetMissing(ArgumentError):
    """An entity was to forward its messages to one that does not exist."""


class PreconditionFailed(MessagingError):
    """The entity is not, or no longer, what the request says it expects."""

    condition = "amqp:precondition-failed"
    status = 412


class MessageTooLarge(MessagingError):
    condition = "amqp:link:message-size-exceeded"
    status = 403


class QuotaExceeded(MessagingError):
    """A limit of the entity or namespace is reached; removing messages or entities helps."""

    condition = "amqp:resource-limit-exceeded"
    status = 403


class MessageLockLost(MessagingError):
    condition = "com.microsoft:message-lock-lost"
    status = 410


class SessionLockLost(MessagingError):
    condition = "com.microsoft:session-lock-lost"
    status = 410


class SessionCannotBeLocked(MessagingError):
    condition = "com.microsoft:session-cannot-be-locked"
    status = 410
    is_transient = True


class MessageNotFound(MessagingError):
    condition = "com.microsoft:message-not-found"
    status = 404


class OperationTimeout(MessagingError):
    condition = "com.microsoft:timeout"
    status = 408
    is_transient = True


class TransactionTimeout(MessagingError):
    """The transaction was open for too long and has been rolled back."""

    condition = "amqp:transaction:timeout"
    status = 408


class TransactionUnknown(MessagingError):
    """No transaction of this connection has this id, or no longer."""

    condition = "amqp:transaction:unknown-id"
    status = 404


class ServerBusy(MessagingError):
    condition = "com.microsoft:server-busy"
    status = 503
    is_transient = True


class FragmentUnavailable(ServerBusy):
    """The one fragment this operation is pinned to has no working messaging store."""


class StoreUnavailable(MessagingError):
    """A messaging store failed: what was asked of it may or may not have been done.

    Never reaches a client as such: a message broker turns it into FragmentUnavailable.
    """

    is_transient = True


class StoreInUse(StoreUnavailable):
    """Another process, or another store object of this one, has the folder open."""


class StoreDamaged(StoreUnavailable):
    """What is on disk is not what was written; opening again does not help, a person has to look."""

    is_transient = False


class ChangeRefused(StoreUnavailable):
    """A commit breaks a rule of `twinbus.store.changes`; nothing of it was applied.

    A broken invariant of the broker: it starts over from its store.
    """
