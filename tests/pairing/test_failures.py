from typing import Any

import pytest
from azure.servicebus._pyamqp.error import ErrorCondition, TokenAuthFailure, TokenExpired
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
from twinbus.client.remote_errors import ConnectionLost
from twinbus.pairing.stock.failures import FailureKind, as_named, as_stock_error, classify


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
        ServiceBusError("Send failed - connection not running.", condition=ErrorCondition.ClientError),
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


@pytest.mark.rule("B4.3")
def test_a_signature_that_expired_on_an_open_link_is_no_outage() -> None:
    expired: Any = TokenExpired(condition=ErrorCondition.InternalError, description="CBS Authentication Expired.")
    assert classify(ServiceBusAuthenticationError(error=expired, condition=expired.condition)) is (
        FailureKind.UNAUTHORIZED
    )


@pytest.mark.rule("B4.3")
def test_a_refused_token_is_no_lost_connection_though_the_sdk_calls_it_so_for_an_endpoint_of_its_own() -> None:
    refused: Any = TokenAuthFailure(401, b"no")  # type: ignore[no-untyped-call]
    assert classify(ServiceBusConnectionError(error=refused)) is FailureKind.UNAUTHORIZED


@pytest.mark.rule("B4.3")
def test_a_link_that_the_service_detached_because_it_was_idle_is_no_outage() -> None:
    detached = ServiceBusConnectionError(condition=ErrorCondition.LinkDetachForced)
    assert classify(detached) is FailureKind.DETACHED
    assert not classify(detached).is_outage


def test_a_missing_entity_is_reported_as_not_found() -> None:
    refused: Any = TokenAuthFailure(404, b"no")  # type: ignore[no-untyped-call]
    error = ServiceBusAuthenticationError(error=refused, condition=refused.condition)
    named = as_named(error, classify(error))
    assert isinstance(named, MessagingEntityNotFoundError)
    assert named.__cause__ is error


@pytest.mark.rule("B4")
def test_a_token_link_that_breaks_is_an_outage() -> None:
    assert classify(ServiceBusAuthenticationError(condition=b"amqp:internal-error")).is_outage


@pytest.mark.rule("B4.3")
@pytest.mark.parametrize("kind", [RuntimeError, MemoryError])
def test_what_this_process_does_wrong_while_the_sdk_reads_is_no_outage(kind: type[Exception]) -> None:
    """Such as a sender of another event loop."""
    reading: dict[str, Any] = {"__name__": "azure.servicebus._pyamqp.aio._connection_async"}
    exec("def read(error): raise error", reading)
    for error, is_outage in ((kind(), False), (ValueError("gibberish"), True)):
        with pytest.raises(type(error)):
            reading["read"](error)
        assert classify(ServiceBusError("Handler failed", error=error)).is_outage is is_outage


@pytest.mark.rule("B4")
def test_a_message_that_is_too_large_is_too_large_in_every_queue() -> None:
    assert classify(MessageSizeExceededError()) is FailureKind.TOO_LARGE
    assert FailureKind.TOO_LARGE.is_of_the_message


@pytest.mark.parametrize(
    "own",
    [
        errors.OperationTimeout("late"),
        ConnectionLost("gone"),
        errors.ServerBusy("busy"),
        errors.QuotaExceeded("full"),
        errors.Unauthorized("no such key"),
        errors.EntityNotFound("no such queue"),
        errors.EntityDisabled("disabled"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_the_bulk_client_raises_reaches_applications_as_an_error_of_the_sdk_that_means_the_same(
    own: errors.MessagingError,
) -> None:
    stock = as_stock_error(own)
    assert isinstance(stock, ServiceBusError)
    assert stock.__cause__ is own
    assert str(own) in str(stock)
    assert classify(stock) is classify(own)
