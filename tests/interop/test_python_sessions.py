"""The official Python SDK on entities with message sessions."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.interop.running_server import RunningServer

_numbers = count(1)


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[ServiceBusClient]:
    with server.client(retry_total=0) as client:
        yield client


@pytest.fixture(params=["ordinary", "partitioned"])
def queue(server: RunningServer, request: pytest.FixtureRequest) -> str:
    name = f"session-queue-{next(_numbers)}"
    return server.create_queue(name, requires_session=True, enable_partitioning=request.param == "partitioned")


def send(client: ServiceBusClient, queue: str, session_id: str, *texts: str) -> None:
    with client.get_queue_sender(queue) as sender:
        for text in texts:
            sender.send_messages(ServiceBusMessage(text, session_id=session_id))


def test_a_named_session_gives_its_messages_in_order(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "a", "1", "2", "3")
    send(client, queue, "b", "x")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.session.session_id == "a"
        got: list[str] = []
        while len(got) < 3:
            for message in receiver.receive_messages(3, max_wait_time=5):
                got.append(str(message))
                receiver.complete_message(message)
        assert got == ["1", "2", "3"]
        assert receiver.receive_messages(1, max_wait_time=0.3) == []


def test_the_next_free_session_is_one_with_messages(client: ServiceBusClient, queue: str) -> None:
    send(client, queue, "only", "1")
    with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        assert receiver.session.session_id == "only"
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        receiver.complete_message(message)


def test_nobody_waits_for_a_session_longer_than_asked(client: ServiceBusClient, queue: str) -> None:
    with (
        pytest.raises(OperationTimeoutError),
        client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1) as receiver,
    ):
        receiver.receive_messages(1)


def test_a_session_is_held_by_one_receiver(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_receiver(queue, session_id="a"), pytest.raises(SessionCannotBeLockedError):
        client.get_queue_receiver(queue, session_id="a").__enter__()
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.session.session_id == "a"


def test_the_state_outlives_the_receiver_and_can_be_cleared(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state(b"somewhere")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.session.get_state() == b"somewhere"
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None


def test_a_session_lock_is_renewed(client: ServiceBusClient, server: RunningServer, queue: str) -> None:
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        before = receiver.session.locked_until_utc
        assert before is not None
        server.clock.advance(30)
        assert receiver.session.renew_lock() - before >= timedelta(seconds=29)


def test_a_session_whose_lock_ran_out_is_lost(client: ServiceBusClient, server: RunningServer, queue: str) -> None:
    send(client, queue, "a", "1")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        receiver.receive_messages(1, max_wait_time=5)
        server.clock.advance(62)
        with pytest.raises(SessionLockLostError):
            receiver.session.set_state(b"late")
        with client.get_queue_receiver(queue, session_id="a") as other:
            (message,) = other.receive_messages(1, max_wait_time=5)
            assert message.delivery_count == 1


@pytest.mark.parametrize("session_id", [None, "a"])
def test_a_receiver_and_its_queue_have_to_agree_on_sessions(
    client: ServiceBusClient, server: RunningServer, session_id: str | None
) -> None:
    name = server.create_queue(f"other-{next(_numbers)}", requires_session=session_id is None)
    with pytest.raises(ServiceBusError):
        client.get_queue_receiver(name, session_id=session_id).__enter__()


def test_a_message_without_session_is_refused(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender, pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("a"))
