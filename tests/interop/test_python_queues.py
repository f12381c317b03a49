"""The official Python SDK, sync, against a real server: what it does with queues, ordinary and partitioned."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusError,
)

from tests.interop.running_server import RunningServer

WAIT = 5  # seconds; for messages that are there already
SHORT = 0.3  # seconds; to see that nothing comes

_numbers = count(1)


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[ServiceBusClient]:
    with server.client() as client:
        yield client


@pytest.fixture(params=["ordinary", "partitioned"])
def queue(server: RunningServer, request: pytest.FixtureRequest) -> str:
    name = f"queue-{next(_numbers)}"
    return server.create_queue(name, enable_partitioning=request.param == "partitioned", max_delivery_count=3)


def receive(receiver: ServiceBusReceiver, wanted: int, wait: float = WAIT) -> list[ServiceBusReceivedMessage]:
    """As many as wanted: one call returns as soon as it has any."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < wanted:
        batch = receiver.receive_messages(max_message_count=wanted - len(found), max_wait_time=wait)
        if not batch:
            break
        found += batch
    return found


def texts_of(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return sorted(str(message) for message in messages)


def test_messages_sent_one_by_one_in_a_list_and_in_a_batch_are_received_and_completed(
    client: ServiceBusClient, queue: str
) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("one"))
        sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("four"))
        batch.add_message(ServiceBusMessage("five"))
        sender.send_messages(batch)
    with client.get_queue_receiver(queue) as receiver:
        messages = receive(receiver, 5)
        assert texts_of(messages) == ["five", "four", "one", "three", "two"]
        for message in messages:
            assert message.delivery_count == 0
            assert isinstance(message.lock_token, UUID)
            receiver.complete_message(message)
        assert receive(receiver, 1, SHORT) == []


def test_properties_and_body_arrive_as_they_were_sent(client: ServiceBusClient, queue: str) -> None:
    sent = ServiceBusMessage(
        b"\x00\xff",
        application_properties={"text": "a", "number": 7, "flag": True, "real": 1.5},
        subject="subject",
        content_type="application/x",
        correlation_id="c",
        message_id="m",
        to="to",
        reply_to="reply",
        time_to_live=timedelta(minutes=5),
    )
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(sent)
    with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        (got,) = receive(receiver, 1)
    assert b"".join(got.body) == b"\x00\xff"
    assert got.application_properties == {b"text": b"a", b"number": 7, b"flag": True, b"real": 1.5}
    assert (got.subject, got.content_type, got.correlation_id, got.message_id) == ("subject", "application/x", "c", "m")
    assert (got.to, got.reply_to, got.time_to_live) == ("to", "reply", timedelta(minutes=5))
    assert got.enqueued_time_utc is not None
    assert abs(got.enqueued_time_utc - datetime.now(UTC)) < timedelta(seconds=30)


def test_receive_and_delete_removes_at_once(client: ServiceBusClient, server: RunningServer, queue: str) -> None:
    server.put(queue, "a", "b")
    with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert texts_of(receive(receiver, 2)) == ["a", "b"]
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.peek_messages(10) == []


@pytest.mark.rule("A5.3")
def test_an_abandoned_message_comes_again_with_a_higher_count(
    client: ServiceBusClient, server: RunningServer, queue: str
) -> None:
    server.put(queue, "a")
    with client.get_queue_receiver(queue) as receiver:
        (first,) = receive(receiver, 1)
        receiver.abandon_message(first)
        (second,) = receive(receiver, 1)
        assert second.delivery_count == 1
        assert second.sequence_number == first.sequence_number
        receiver.complete_message(second)


def test_a_message_abandoned_too_often_is_dead_lettered_with_the_reason(
    client: ServiceBusClient, server: RunningServer, queue: str
) -> None:
    server.put(queue, "a")
    with client.get_queue_receiver(queue) as receiver:
        for _ in range(3):
            (message,) = receive(receiver, 1)
            receiver.abandon_message(message)
        assert receive(receiver, 1, SHORT) == []
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = receive(receiver, 1)
        assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
        receiver.complete_message(dead)


def test_a_dead_lettered_message_carries_reason_and_description(
    client: ServiceBusClient, server: RunningServer, queue: str
) -> None:
    server.put(queue, "a")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        receiver.dead_letter_message(message, reason="broken", error_description="cannot read it")
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (dead,) = receive(receiver, 1)
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("broken", "cannot read it")
        assert str(dead) == "a"
        receiver.complete_message(dead)
        assert receive(receiver, 1, SHORT) == []


def test_a_deferred_message_is_found_by_its_number_only(
    client: ServiceBusClient, server: RunningServer, queue: str
) -> None:
    server.put(queue, "a")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        receiver.defer_message(message)
        assert receive(receiver, 1, SHORT) == []
        assert message.sequence_number is not None
        (peeked,) = receiver.peek_messages(1, sequence_number=message.sequence_number)
        assert peeked.state == ServiceBusMessageState.DEFERRED
        (deferred,) = receiver.receive_deferred_messages(message.sequence_number)
        receiver.complete_message(deferred)
        with pytest.raises(ServiceBusError):
            receiver.receive_deferred_messages(message.sequence_number)


def test_a_lock_that_is_renewed_ends_later(client: ServiceBusClient, server: RunningServer, queue: str) -> None:
    server.put(queue, "a")
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver, 1)
        before = message.locked_until_utc
        server.clock.advance(30)
        after = receiver.renew_message_lock(message)
        assert before is not None
        assert after - before >= timedelta(seconds=29)
        receiver.complete_message(message)


def test_a_message_whose_lock_ran_out_comes_again_and_its_old_lock_is_lost(
    client: ServiceBusClient, server: RunningServer, queue: str
) -> None:
    server.put(queue, "a")
    with client.get_queue_receiver(queue) as receiver:
        (first,) = receive(receiver, 1)
        server.clock.advance(61)
        (second,) = receive(receiver, 1)
        assert second.delivery_count == 1
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(first)
        receiver.complete_message(second)


def test_peek_pages_through_without_taking_anything(
    client: ServiceBusClient, server: RunningServer, queue: str
) -> None:
    server.put(queue, *[f"{number:02}" for number in range(12)])
    with client.get_queue_receiver(queue) as receiver:
        seen: list[ServiceBusReceivedMessage] = []
        while page := receiver.peek_messages(5):
            assert len(page) <= 5
            seen += page
        numbers = [message.sequence_number or 0 for message in seen]
        assert numbers == sorted(set(numbers))
        assert texts_of(seen) == [f"{number:02}" for number in range(12)]
        assert len(receive(receiver, 12)) == 12


def test_a_scheduled_message_waits_for_its_time_and_a_cancelled_one_never_comes(
    client: ServiceBusClient, server: RunningServer, queue: str
) -> None:
    due = datetime.fromtimestamp(server.clock.now() // 1000 + 60, UTC)
    with client.get_queue_sender(queue) as sender:
        kept = sender.schedule_messages(ServiceBusMessage("kept", partition_key="k"), due)
        cancelled = sender.schedule_messages(ServiceBusMessage("cancelled", partition_key="k"), due)
        sender.cancel_scheduled_messages(cancelled)
        with pytest.raises(ServiceBusError):
            sender.cancel_scheduled_messages(cancelled)
    with client.get_queue_receiver(queue) as receiver:
        (peeked,) = receiver.peek_messages(2)
        assert (peeked.state, peeked.sequence_number) == (ServiceBusMessageState.SCHEDULED, kept[0])
        assert receive(receiver, 1, SHORT) == []
        server.clock.advance(61)
        (message,) = receive(receiver, 1)
        assert str(message) == "kept"
        assert message.enqueued_time_utc is not None
        assert message.enqueued_time_utc >= due
        receiver.complete_message(message)
        assert receive(receiver, 1, SHORT) == []


def test_a_message_that_expires_is_gone(client: ServiceBusClient, server: RunningServer, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("short", time_to_live=timedelta(seconds=20)))
        sender.send_messages(ServiceBusMessage("long"))
    server.clock.advance(21)
    with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert texts_of(receive(receiver, 2, SHORT)) == ["long"]


def test_several_receivers_share_the_messages(client: ServiceBusClient, server: RunningServer, queue: str) -> None:
    with (
        client.get_queue_receiver(queue, prefetch_count=5) as one,
        client.get_queue_receiver(queue, prefetch_count=5) as two,
    ):
        server.put(queue, *map(str, range(20)))
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < 20:
            for receiver in (one, two):
                batch = receiver.receive_messages(5, max_wait_time=SHORT)
                for message in batch:
                    receiver.complete_message(message)
                found += batch
        assert texts_of(found) == sorted(map(str, range(20)))


def test_a_message_is_completed_by_another_receiver_of_the_queue(
    client: ServiceBusClient, server: RunningServer, queue: str
) -> None:
    server.put(queue, "a")
    with client.get_queue_receiver(queue) as one, client.get_queue_receiver(queue) as two:
        (message,) = receive(one, 1)
        two.complete_message(message)
        assert two.peek_messages(1) == []


def test_a_batch_of_mixed_keys_is_refused_on_a_partitioned_queue_only(
    client: ServiceBusClient, server: RunningServer
) -> None:
    for is_partitioned in (False, True):
        queue = server.create_queue(f"queue-{next(_numbers)}", enable_partitioning=is_partitioned)
        with client.get_queue_sender(queue) as sender:
            batch = sender.create_message_batch()
            batch.add_message(ServiceBusMessage("1", partition_key="myPartitionKey"))
            batch.add_message(ServiceBusMessage("2", partition_key="mySession"))
            if is_partitioned:
                with pytest.raises(ServiceBusError):
                    sender.send_messages(batch)
            else:
                sender.send_messages(batch)
        with client.get_queue_receiver(queue) as receiver:
            assert len(receiver.peek_messages(5)) == (0 if is_partitioned else 2)


def test_250_kilobytes_pass_and_256_do_not(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("a" * 250 * 1024))
        with pytest.raises(MessageSizeExceededError):
            sender.send_messages(ServiceBusMessage("a" * 256 * 1024))
    with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        (message,) = receive(receiver, 1)
        assert len(str(message)) == 250 * 1024


def test_an_empty_queue_gives_nothing_within_the_wait(client: ServiceBusClient, queue: str) -> None:
    with client.get_queue_receiver(queue, max_wait_time=SHORT) as receiver:
        assert list(receiver) == []


def test_an_unknown_queue_is_refused_with_its_token(server: RunningServer) -> None:
    with (
        server.client(retry_total=0) as client,
        pytest.raises(ServiceBusAuthenticationError),
        client.get_queue_sender("no-such-queue"),
    ):
        pass
