import pytest
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from twinbus.pairing.failures import FailureKind, classify


@pytest.mark.parametrize(
    "error",
    [
        OperationTimeoutError(),
        TimeoutError(),
        ServiceBusConnectionError(),
        ServiceBusCommunicationError(),
        ConnectionResetError(),
        ServiceBusError("broken", condition=b"amqp:internal-error"),
        ServiceBusError("Handler failed", error=ConnectionAbortedError()),
    ],
)
def test_timeouts_and_outages_start_the_failover_timer(error: Exception) -> None:
    assert classify(error).is_outage


@pytest.mark.parametrize(
    "error",
    [
        ServiceBusAuthorizationError(),
        MessagingEntityNotFoundError(),
        MessagingEntityDisabledError(),
        MessageSizeExceededError(),
        ValueError(),
        ServiceBusError("no", condition=b"com.microsoft:argument-error"),
        ServiceBusQuotaExceededError(),
        ServiceBusServerBusyError(),
        ServiceBusError("no idea"),
    ],
)
def test_what_the_service_refuses_never_starts_the_failover_timer(error: Exception) -> None:
    assert not classify(error).is_outage


@pytest.mark.parametrize(
    "error", [ServiceBusAuthorizationError(), MessagingEntityNotFoundError(), MessagingEntityDisabledError()]
)
def test_what_somebody_has_to_repair_is_lasting(error: Exception) -> None:
    assert classify(error).is_lasting


def test_a_message_that_is_too_large_is_too_large_in_every_queue() -> None:
    assert classify(MessageSizeExceededError()) is FailureKind.TOO_LARGE
    assert FailureKind.TOO_LARGE.is_of_the_message
