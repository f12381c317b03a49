"""The error condition of a peer in, one of our own errors out; and the errors that only a client raises."""

from twinbus.amqp.codec.error_condition import ErrorCondition, FaultOfPeer
from twinbus.errors import InternalError, MessagingError


class ConnectionLost(MessagingError):
    """The connection or link ended during a request: the request may or may not have been carried out."""

    condition = "amqp:connection:forced"
    is_transient = True


class PeerNotTrusted(MessagingError):
    """TLS failed: the certificate of the peer is not trusted, or the peer does not speak TLS."""


class WebSocketRefused(MessagingError):
    """The peer does not accept AMQP over WebSockets."""


class RemoteError(MessagingError):
    """A condition that has no class of its own here; `remote_condition` says which."""

    def __init__(self, text: str, remote_condition: str) -> None:
        super().__init__(text)
        self.remote_condition = remote_condition


# How brokers announce that they move or shut down, in any scope: the same request succeeds elsewhere or later.
_FORCED = ("amqp:connection:forced", "amqp:link:detach-forced", "com.microsoft:container-close")


def _by_condition() -> dict[str, type[MessagingError]]:
    classes: dict[str, type[MessagingError]] = {}
    waiting = [MessagingError]
    while waiting:
        kind = waiting.pop()
        # Depth first and never overwritten: the class nearest to the root stands for its condition.
        if kind.__module__ == "twinbus.errors" and kind is not MessagingError:
            classes.setdefault(kind.condition, kind)
        waiting += reversed(kind.__subclasses__())
    return classes


# Several classes share the condition of an internal error; the plain one claims the least.
_CLASSES: dict[str, type[MessagingError]] = {
    **_by_condition(),
    **dict.fromkeys(_FORCED, ConnectionLost),
    InternalError.condition: InternalError,
}


def error_of(condition: ErrorCondition | None) -> MessagingError:
    """The error that the peer sent; without a condition, or if it broke the protocol, ConnectionLost."""
    if isinstance(condition, FaultOfPeer):
        return ConnectionLost(f"The peer does not keep to AMQP: {condition.description} Connect again.")
    if condition is None:
        return ConnectionLost("The peer ended the link or connection without a reason. Connect again.")
    return error_named(condition.condition, condition.description or condition.condition)


def error_named(condition: str, text: str) -> MessagingError:
    kind = _CLASSES.get(condition)
    return RemoteError(text, condition) if kind is None else kind(text)
