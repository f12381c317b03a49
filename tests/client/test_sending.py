"""Sends, message by message: every one of them has an outcome of its own."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.interop.running_server import RunningServer
from twinbus.amqp.serial_number import MASK
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.remote_errors import ConnectionLost
from twinbus.errors import EntityDisabled, EntityNotFound, InternalError, MessageTooLarge, MessagingError, NotAllowed
from twinbus.model.descriptions import EntityStatus

MESSAGE_SIZE_MAX = 256 * 1024
WAIT_S = 10.0


@pytest.fixture
def half_broken(server: RunningServer) -> Iterator[str]:
    """A partitioned queue of which one fragment cannot be reached."""
    queue = server.create_queue("half-broken", enable_partitioning=True)
    store = server.store_of(queue, "myPartitionKey")
    store.down()
    yield queue
    store.up()


async def bodies(namespace: Namespace, path: str, count: int) -> list[bytes]:
    receiver = await namespace.receiver(path, deletes=True)
    return [message.body for message in await receiver.collect(count, wait_s=5)]


async def test_what_is_sent_is_in_the_queue_in_order(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("in-order"))
    outcomes = await sender.send([encode_message(str(number)) for number in range(5_000)])
    assert outcomes == [None] * 5_000
    assert await bodies(namespace, "in-order", 5_000) == [b"%d" % number for number in range(5_000)]


async def test_many_may_be_under_way_at_once(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("pipelined"))
    under_way = [sender.submit([encode_message(f"{row}-{number}") for number in range(10)]) for row in range(100)]
    for outcomes in under_way:
        assert await outcomes.wait() == [None] * 10


async def test_outcomes_find_their_messages_when_delivery_numbers_begin_again(
    server: RunningServer, namespace: Namespace
) -> None:
    sender = await namespace.sender(server.create_queue("wrapped"))
    assert sender._link is not None
    sender._link.session._next_delivery_id = MASK - 50
    assert await sender.send([encode_message(str(number)) for number in range(100)]) == [None] * 100
    assert await bodies(namespace, "wrapped", 100) == [b"%d" % number for number in range(100)]


async def test_nothing_to_send_is_done_at_once(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("nothing"))
    assert await sender.send([]) == []
    assert await sender.send_batches([]) == []


async def test_a_message_that_is_too_large_fails_alone(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("large"))
    assert sender.message_size_max == MESSAGE_SIZE_MAX
    large = encode_message(bytes(MESSAGE_SIZE_MAX))
    small = encode_message(bytes(250 * 1024))
    first, second, third = await sender.send([small, large, small])
    assert (first, third) == (None, None)
    assert isinstance(second, MessageTooLarge)
    assert len(await bodies(namespace, "large", 2)) == 2


async def test_more_than_the_socket_takes_at_once_is_sent_in_time(server: RunningServer, namespace: Namespace) -> None:
    """Far beyond every buffer and window between here and there, and less than the sender has credit for."""
    sender = await namespace.sender(server.create_queue("bulky"))
    payloads = [encode_message(bytes(200_000), message_id=str(number)) for number in range(120)]
    assert await sender.send(payloads) == [None] * 120


async def test_what_is_no_message_is_refused_by_the_namespace(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("junk"))
    good, bad = await sender.send([encode_message("a"), b"junk"])
    assert good is None
    assert isinstance(bad, MessagingError)


async def test_an_unknown_entity_has_no_sender(namespace: Namespace) -> None:
    with pytest.raises(EntityNotFound):
        await namespace.sender("unknown")
    with pytest.raises(EntityNotFound):
        await namespace.receiver("unknown")


async def test_a_subscription_takes_no_messages(server: RunningServer, namespace: Namespace) -> None:
    topic = server.create_topic("news", "readers")
    with pytest.raises(NotAllowed):
        await namespace.sender(f"{topic}/Subscriptions/readers")
    sender = await namespace.sender(topic)
    assert await sender.send([encode_message("a")]) == [None]
    assert await bodies(namespace, f"{topic}/Subscriptions/readers", 1) == [b"a"]


async def test_a_disabled_entity_refuses_and_says_so(server: RunningServer, namespace: Namespace) -> None:
    server.create_queue("disabled", status=EntityStatus.SEND_DISABLED)
    sender = await namespace.sender("disabled")
    assert [type(error) for error in await sender.send([encode_message("a")])] == [EntityDisabled]


async def test_different_session_id_and_partition_key_are_refused(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("two-keys", enable_partitioning=True))
    (error,) = await sender.send([encode_message("a", session_id="s", partition_key="p")])
    assert isinstance(error, NotAllowed)


async def test_only_what_is_pinned_to_a_broken_store_fails(namespace: Namespace, half_broken: str) -> None:
    sender = await namespace.sender(half_broken)
    payloads = [encode_message("a", partition_key=key) for key in ("mySession", "myPartitionKey", None, "contoso")]
    first, pinned, keyless, last = await sender.send(payloads)
    assert (first, keyless, last) == (None, None, None)
    assert isinstance(pinned, InternalError)
    assert pinned.is_transient


async def test_a_closed_sender_sends_no_more(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("closing"))
    await sender.close()
    (error,) = await sender.send([encode_message("a")])
    assert isinstance(error, ConnectionLost)
    again = await namespace.sender("closing")
    assert await again.send([encode_message("a")]) == [None]


async def test_links_that_ended_leave_nothing_behind(server: RunningServer, namespace: Namespace) -> None:
    """Closed by us, refused, or ended by the namespace: the channel of each is used again, once its end is answered."""

    async def channel() -> int:
        sender = await namespace.sender("reopened")
        assert sender._link is not None
        used = sender._link.session.channel
        await sender.close()
        return used

    server.create_queue("reopened")
    first = await channel()
    for _ in range(2):
        assert await channel() <= first + 1
        with pytest.raises(EntityNotFound):
            await namespace.sender("unknown")
        ended = await namespace.sender("reopened")
        server.run(server.server.control.delete("reopened"))
        async with asyncio.timeout(WAIT_S):
            while ended.fault is None:
                await ended.send([encode_message("a")])
        assert isinstance(ended.fault, EntityNotFound)
        server.create_queue("reopened")
    assert await channel() <= first + 1
