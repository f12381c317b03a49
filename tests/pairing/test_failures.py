from typing import Any

import pytest
from azure.servicebus._pyamqp.error import TokenAuthFailure
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

from twinbus.pairing.failures import FailureKind, classify


@pytest.mark.rule("B4.1")
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


@pytest.mark.rule("B4.3")
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


@pytest.mark.rule("B4")
@pytest.mark.parametrize(
    "error", [ServiceBusAuthorizationError(), MessagingEntityNotFoundError(), MessagingEntityDisabledError()]
)
def test_what_somebody_has_to_repair_is_lasting(error: Exception) -> None:
    assert classify(error).is_lasting


@pytest.mark.rule("B4")
@pytest.mark.parametrize(
    ("status", "kind"), [(404, FailureKind.NOT_FOUND), (401, FailureKind.UNAUTHORIZED), (403, FailureKind.UNAUTHORIZED)]
)
def test_a_refused_token_is_told_apart_by_its_status(status: int, kind: FailureKind) -> None:
    refused: Any = TokenAuthFailure(status, b"no")  # type: ignore[no-untyped-call]
    error = ServiceBusAuthenticationError(error=refused, condition=refused.condition)
    assert classify(error) is kind


@pytest.mark.rule("B4")
def test_a_token_link_that_breaks_is_an_outage() -> None:
    assert classify(ServiceBusAuthenticationError(condition=b"amqp:internal-error")).is_outage


@pytest.mark.rule("B4")
def test_a_message_that_is_too_large_is_too_large_in_every_queue() -> None:
    assert classify(MessageSizeExceededError()) is FailureKind.TOO_LARGE
    assert FailureKind.TOO_LARGE.is_of_the_message
