"""Errors of pairing. They are the SDK's too: an application that catches `ServiceBusError` catches them."""

from azure.servicebus.exceptions import ServiceBusError

from twinbus.errors import MessagingError


class PairingError(MessagingError, ServiceBusError):
    """Two namespaces cannot be paired, or a pair cannot be used; the text says why."""

    def __init__(self, message: str, error: BaseException | None = None) -> None:
        ServiceBusError.__init__(self, message, error=error)


class BacklogUnavailable(PairingError):
    """The message had to go to the backlog, as for an entity that is failed over, and no backlog queue took it."""

    is_transient = True


class PairFaulted(PairingError):
    """A partner of the pair was closed or faulted, and the pair with it."""
