"""A peer's error condition in, an error of our own tree out."""

from twinbus.amqp.error_condition import ErrorCondition
from twinbus.errors import InternalError, MessagingError


class ConnectionLost(MessagingError):
    """The connection or link ended under a request: what was asked may or may not have been done."""

    condition = "amqp:connection:forced"
    is_transient = True


class RemoteError(MessagingError):
    """A condition that has no class of its own here; `remote_condition` says which."""

    def __init__(self, text: str, remote_condition: str) -> None:
        super().__init__(text)
        self.remote_condition = remote_condition


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


_CLASSES = _by_condition()


def error_of(condition: ErrorCondition | None) -> MessagingError:
    """What the peer told us; without a condition, that the connection ended."""
    if condition is None:
        return ConnectionLost("The peer ended the link or connection without a reason. Connect again.")
    return error_named(condition.condition, condition.description or condition.condition)


def error_named(condition: str, text: str) -> MessagingError:
    kind = _CLASSES.get(condition)
    if kind is None:
        return RemoteError(text, condition)
    # Several classes share the condition of an internal error; the plain one claims the least.
    return InternalError(text) if condition == InternalError.condition else kind(text)
