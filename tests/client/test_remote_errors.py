"""Conditions of a peer, and the errors that they become."""

import pytest

from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.client.remote_errors import ConnectionLost, RemoteError, error_named, error_of
from twinbus.errors import (
    ArgumentError,
    EntityNotFound,
    InternalError,
    MessageLockLost,
    MessageTooLarge,
    MessagingError,
    ServerBusy,
    Unauthorized,
)


@pytest.mark.parametrize(
    "kind",
    [ArgumentError, EntityNotFound, InternalError, MessageLockLost, MessageTooLarge, ServerBusy, Unauthorized],
)
def test_a_condition_that_we_have_a_class_for_becomes_that_class(kind: type[MessagingError]) -> None:
    error = error_named(kind.condition, "text")
    assert type(error) is kind
    assert str(error) == "text"


def test_an_unknown_condition_is_kept_and_not_taken_for_transient() -> None:
    error = error_named("contoso:odd", "text")
    assert isinstance(error, RemoteError)
    assert error.remote_condition == "contoso:odd"
    assert not error.is_transient


@pytest.mark.parametrize("condition", ["amqp:connection:forced", "amqp:link:detach-forced"])
def test_a_peer_that_shuts_down_means_a_lost_connection(condition: str) -> None:
    error = error_of(ErrorCondition(condition=condition, description="moving"))
    assert isinstance(error, ConnectionLost)
    assert error.is_transient


def test_an_end_without_a_reason_is_a_lost_connection() -> None:
    assert isinstance(error_of(None), ConnectionLost)


def test_a_condition_without_a_text_is_its_own_text() -> None:
    assert str(error_of(ErrorCondition(condition="amqp:not-found"))) == "amqp:not-found"
