"""Messages sent in batches: few transfers, and still an outcome for each message."""

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.errors import MessageTooLarge, MessagingError, NotAllowed


async def numbers(namespace: Namespace, path: str, count: int) -> list[int]:
    receiver = await namespace.receiver(path, deletes=True)
    return [int(message.message_id) for message in await receiver.collect(count, wait_s=5)]


async def test_batches_arrive_whole_and_in_order(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("batched"))
    payloads = [encode_message(bytes(1_000), message_id=str(number)) for number in range(3_000)]
    assert await sender.send_batches(payloads) == [None] * 3_000
    assert await numbers(namespace, "batched", 3_000) == list(range(3_000))


async def test_the_largest_batch_is_the_largest_message_of_the_link(
    server: RunningServer, namespace: Namespace
) -> None:
    sender = await namespace.sender(server.create_queue("sized"))
    assert sender.batch_size_max == sender.message_size_max == 256 * 1024


@pytest.mark.rule("A8.5")
async def test_a_partitioned_queue_takes_batches_that_are_grouped_by_key(
    server: RunningServer, namespace: Namespace
) -> None:
    sender = await namespace.sender(server.create_queue("grouped", enable_partitioning=True))
    keys = [None, "a", "b", "c"]
    payloads = [encode_message("x", message_id=str(n), partition_key=keys[n % 4]) for n in range(400)]
    assert await sender.send_batches(payloads) == [None] * 400
    assert sorted(await numbers(namespace, "grouped", 400)) == list(range(400))


async def test_a_batch_of_mixed_keys_is_refused_by_a_partitioned_queue_for_each_of_its_messages(
    server: RunningServer, namespace: Namespace
) -> None:
    sender = await namespace.sender(server.create_queue("mixed", enable_partitioning=True))
    payloads = [encode_message("x", partition_key=key) for key in ("order-1", "contoso")]
    outcomes = await sender.send_batches(payloads, keeps_keys_apart=False)
    assert [type(error) for error in outcomes] == [NotAllowed, NotAllowed]


async def test_an_ordinary_queue_takes_a_batch_of_mixed_keys_in_order(
    server: RunningServer, namespace: Namespace
) -> None:
    sender = await namespace.sender(server.create_queue("unsorted"))
    payloads = [encode_message("x", message_id=str(n), partition_key=str(n % 3)) for n in range(30)]
    assert await sender.send_batches(payloads, keeps_keys_apart=False) == [None] * 30
    assert await numbers(namespace, "unsorted", 30) == list(range(30))


async def test_a_message_that_is_too_large_or_malformed_does_not_harm_its_neighbours(
    server: RunningServer, namespace: Namespace
) -> None:
    sender = await namespace.sender(server.create_queue("neighbours"))
    payloads = [encode_message("x", message_id=str(n)) for n in range(3)]
    outcomes = await sender.send_batches([payloads[0], encode_message(bytes(300_000)), payloads[1], b"?", payloads[2]])
    assert [outcomes[0], outcomes[2], outcomes[4]] == [None] * 3
    assert isinstance(outcomes[1], MessageTooLarge)
    assert isinstance(outcomes[3], MessagingError)
    assert await numbers(namespace, "neighbours", 3) == [0, 1, 2]


async def test_a_batch_costs_one_transfer(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("cheap"))
    outcomes = sender.submit_batches([encode_message("x") for _ in range(1_000)])
    assert len(sender._under_way) == 1
    assert await outcomes.wait() == [None] * 1_000


async def test_messages_of_a_session_travel_in_batches_of_their_session(
    server: RunningServer, namespace: Namespace
) -> None:
    sender = await namespace.sender(server.create_queue("sessions", requires_session=True, enable_partitioning=True))
    payloads = [encode_message("x", message_id=str(n), session_id=f"s{n % 5}") for n in range(100)]
    assert await sender.send_batches(payloads) == [None] * 100
    receiver = await namespace.session_receiver("sessions", "s3")
    messages = await receiver.receive(100, wait_s=5)
    assert [int(message.message_id) for message in messages] == list(range(3, 100, 5))
