"""Requests to an entity's node: browsing, locks by token, deferred and scheduled messages."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import (
    ArgumentError,
    EntityNotFound,
    MessageLockLost,
    MessageNotFound,
    MessageTooLarge,
    NotImplementedHere,
)
from twinbus.model.wire_names import MessageState

WAIT_S = 5.0


def in_an_hour(server: RunningServer) -> datetime:
    return datetime.fromtimestamp(server.clock.now() / 1000, UTC) + timedelta(hours=1)


async def take(namespace: Namespace, path: str, count: int) -> list[ReceivedMessage]:
    receiver = await namespace.receiver(path, credit=count)
    messages = await receiver.collect(count, WAIT_S)
    assert len(messages) == count
    await receiver.close()
    return messages


async def spread(server: RunningServer, namespace: Namespace, name: str) -> list[ReceivedMessage]:
    """Messages that are held, of a partitioned queue and so of several fragments."""
    sender = await namespace.sender(server.create_queue(name, enable_partitioning=True))
    assert not any(await sender.send([encode_message(key, partition_key=key) for key in ("0", "1", "2", "3")]))
    return await take(namespace, name, 4)


async def test_peek_shows_messages_and_locks_none(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("peeked"), "a", "b", "c")
    entity = namespace.entity("peeked")
    assert [message.body for message in await entity.peek(10)] == [b"a", b"b", b"c"]
    (second, *_) = await entity.peek(10, from_number=2)
    assert (second.body, second.sequence_number, second.lock_token) == (b"b", 2, None)
    assert len(await take(namespace, "peeked", 3)) == 3


async def test_peek_into_an_empty_queue_is_an_empty_list(server: RunningServer, namespace: Namespace) -> None:
    assert await namespace.entity(server.create_queue("empty")).peek(10) == []


async def test_a_request_that_is_too_large_is_refused_at_once(server: RunningServer, namespace: Namespace) -> None:
    entity = namespace.entity(server.create_queue("crowded"))
    message = encode_message(b"x" * 250_000, scheduled_at=in_an_hour(server))
    with pytest.raises(MessageTooLarge, match="Ask for less at once"):
        await entity.schedule([message] * 5)
    assert len(await entity.schedule([message] * 4)) == 4


async def test_what_was_peeked_cannot_be_settled(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("only-seen"), "a")
    entity = namespace.entity("only-seen")
    with pytest.raises(ArgumentError, match="not locked"):
        await entity.complete(await entity.peek(1))


async def test_locks_over_several_fragments_are_renewed_in_one_call(
    server: RunningServer, namespace: Namespace
) -> None:
    messages = await spread(server, namespace, "renewed")
    assert len({(message.sequence_number or 0) >> 48 for message in messages}) > 1
    server.clock.advance(30)
    ends = await namespace.entity("renewed").renew_locks(messages)
    assert all(message.locked_until is not None for message in messages)
    assert all(end > message.locked_until for end, message in zip(ends, messages, strict=True) if message.locked_until)


async def test_a_lock_that_expired_cannot_be_renewed(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("late"), "a")
    messages = await take(namespace, "late", 1)
    server.clock.advance(61)
    with pytest.raises(MessageLockLost):
        await namespace.entity("late").renew_locks(messages)


async def test_messages_of_several_fragments_are_settled_by_their_locks(
    server: RunningServer, namespace: Namespace
) -> None:
    messages = await spread(server, namespace, "settled")
    await namespace.entity("settled").complete(messages)
    assert await namespace.entity("settled").peek(10) == []


async def test_every_way_to_settle_works_by_lock(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("ways"), "a", "b", "c")
    entity = namespace.entity("ways")
    first, second, third = await take(namespace, "ways", 3)
    await entity.abandon([first], {"tried": 1})
    await entity.defer([second])
    await entity.dead_letter([third], "bad", "very", {"seen": 1})
    (again,) = await take(namespace, "ways", 1)
    assert (again.body, again.application_properties["tried"]) == (b"a", 1)
    assert {message.body: message.state for message in await entity.peek(9)} == {
        b"a": MessageState.ACTIVE,
        b"b": MessageState.DEFERRED,
    }
    (dead,) = await namespace.entity("ways/$DeadLetterQueue").peek(9)
    assert (dead.dead_letter_reason, dead.application_properties["seen"]) == ("bad", 1)


async def test_deferred_messages_of_several_fragments_come_in_the_order_asked_for(
    server: RunningServer, namespace: Namespace
) -> None:
    messages = await spread(server, namespace, "aside")
    entity = namespace.entity("aside")
    await entity.defer(messages)
    numbers = [message.sequence_number or 0 for message in reversed(messages)]
    found = await entity.receive_deferred(numbers)
    assert [message.sequence_number for message in found] == numbers
    await entity.complete(found)
    with pytest.raises(MessageNotFound):
        await entity.receive_deferred(numbers[:1])


async def test_deferred_messages_may_be_deleted_as_they_are_received(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("aside-once"), "a")
    entity = namespace.entity("aside-once")
    (message,) = await take(namespace, "aside-once", 1)
    await entity.defer([message])
    (found,) = await entity.receive_deferred([message.sequence_number or 0], deletes=True)
    assert (found.body, found.lock_token) == (b"a", None)
    assert await entity.peek(1) == []


async def test_messages_are_scheduled_and_cancelled_by_their_numbers(
    server: RunningServer, namespace: Namespace
) -> None:
    entity = namespace.entity(server.create_queue("scheduled", enable_partitioning=True))
    due = in_an_hour(server)
    payloads = [encode_message(key, partition_key=key, scheduled_at=due) for key in ("0", "1", "2")]
    numbers = await entity.schedule(payloads)
    assert len(set(numbers)) == 3
    await entity.cancel_scheduled([numbers[2], numbers[0]])
    (left,) = await entity.peek(10)
    assert (left.body, left.state, left.scheduled_at) == (
        b"1",
        MessageState.SCHEDULED,
        due.replace(microsecond=due.microsecond // 1000 * 1000),
    )
    with pytest.raises(MessageNotFound):
        await entity.cancel_scheduled([numbers[0]])


async def test_requests_may_overlap_and_each_gets_its_own_answer(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("busy"), *[str(number) for number in range(50)])
    entity = namespace.entity("busy")
    answers = await asyncio.gather(*(entity.peek(1, from_number=number) for number in range(1, 51)))
    assert [message.body for (message,) in answers] == [b"%d" % number for number in range(50)]


async def test_any_operation_can_be_asked_for_by_its_name(server: RunningServer, namespace: Namespace) -> None:
    server.create_queue("asked")
    answer = await namespace.ask("asked", "com.microsoft:unheard-of", {})
    assert answer.status == 501
    with pytest.raises(NotImplementedHere):
        answer.require_ok()


async def test_an_unknown_entity_has_no_node(namespace: Namespace) -> None:
    with pytest.raises(EntityNotFound):
        await namespace.entity("unknown").peek(1)


async def test_a_node_whose_links_ended_is_attached_anew(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("again"), "a")
    entity = namespace.entity("again")
    assert len(await entity.peek(9)) == 1
    first = namespace._nodes["again"]
    assert first._requests is not None
    first._requests.detach(closed=True)
    namespace._wire.flush()
    async with asyncio.timeout(WAIT_S):
        while first.fault is None:
            await asyncio.sleep(0)
    assert len(await entity.peek(9)) == 1
    assert namespace._nodes["again"] is not first
