"""Faults of the protocol, by the scope that they end (AMQP 1.0 part 2, section 2.8).

A `ConnectionFault` closes the connection, a `SessionFault` ends one session, a `LinkFault` detaches one link. A
`DecodeError` is about bytes: the caller that reads them decides which scope that ends. The condition is what the peer
is sent; the constants are those that the specification defines, grouped by scope.
"""

from twinbus.errors import MessagingError

INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
RESOURCE_LOCKED = "amqp:resource-locked"
PRECONDITION_FAILED = "amqp:precondition-failed"
RESOURCE_DELETED = "amqp:resource-deleted"
ILLEGAL_STATE = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small"

CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
CONNECTION_REDIRECT = "amqp:connection:redirect"

WINDOW_VIOLATION = "amqp:session:window-violation"
ERRANT_LINK = "amqp:session:errant-link"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"

DETACH_FORCED = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
LINK_REDIRECT = "amqp:link:redirect"
STOLEN = "amqp:link:stolen"

TRANSACTION_UNKNOWN_ID = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK = "amqp:transaction:rollback"
TRANSACTION_TIMEOUT = "amqp:transaction:timeout"


class AmqpError(MessagingError):
    """A peer violated the protocol, or says that we did."""

    def __init__(self, description: str, condition: str | None = None) -> None:
        super().__init__(description)
        if condition is not None:
            self.condition = condition


class DecodeError(AmqpError):
    """Bytes are not AMQP, or exceed a limit of the decoder. The text gives the position and the reason."""

    condition = DECODE_ERROR
    status = 400


class EncodeError(AmqpError):
    """A value that no AMQP type can hold."""

    condition = INVALID_FIELD
    status = 400


class ConnectionFault(AmqpError):
    """The connection has to be closed."""

    condition = FRAMING_ERROR


class SessionFault(AmqpError):
    """One session has to be ended; the others of the connection go on."""

    condition = ILLEGAL_STATE


class LinkFault(AmqpError):
    """One link has to be detached; its session goes on."""

    condition = DETACH_FORCED
