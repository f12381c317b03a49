"""Receivers in peek-lock and in receive-and-delete: what comes, what becomes of it, and how much is here at a time."""

import asyncio

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.outcomes import abandoned
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.receiver import Receiver
from twinbus.client.remote_errors import ConnectionLost
from twinbus.errors import ArgumentError, EntityNotFound, MessageLockLost, NotAllowed

SOON_S = 0.1
WAIT_S = 5.0


async def take(receiver: Receiver, count: int) -> list[ReceivedMessage]:
    messages = await receiver.collect(count, WAIT_S)
    assert len(messages) == count
    return messages


async def is_empty(namespace: Namespace, path: str) -> bool:
    return not await namespace.entity(path).peek(1)


async def test_a_receiver_gets_what_is_there_and_then_what_comes(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("coming"), "a", "b")
    receiver = await namespace.receiver("coming")
    assert [message.body for message in await take(receiver, 2)] == [b"a", b"b"]
    waiting = asyncio.create_task(receiver.receive(10, WAIT_S))
    server.put("coming", "c")
    assert [message.body for message in await waiting] == [b"c"]


async def test_receive_returns_at_most_as_many_as_asked_for(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("asked"), "a", "b", "c")
    receiver = await namespace.receiver("asked")
    assert len(await receiver.receive(1, WAIT_S)) == 1
    assert len(await take(receiver, 2)) == 2


async def test_receive_returns_nothing_when_nothing_comes_in_time(server: RunningServer, namespace: Namespace) -> None:
    receiver = await namespace.receiver(server.create_queue("silent"))
    assert await receiver.receive(10, wait_s=0.01) == []
    assert await receiver.receive(10, wait_s=0) == []


async def test_messages_are_collected_until_there_are_enough_or_the_time_is_over(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("collected"), "a", "b")
    receiver = await namespace.receiver("collected")
    collecting = asyncio.create_task(receiver.collect(3, WAIT_S))
    await namespace.entity("collected").peek(1)
    assert not collecting.done()
    server.put("collected", "c", "d")
    assert [message.body for message in await collecting] == [b"a", b"b", b"c"]
    assert [message.body for message in await receiver.collect(3, SOON_S)] == [b"d"]
    assert await receiver.collect(3, 0) == []


async def test_collecting_returns_what_came_before_the_link_ended(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("ended"), "a", "b")
    receiver = await namespace.receiver("ended")
    collecting = asyncio.create_task(receiver.collect(3, WAIT_S))
    await namespace.entity("ended").peek(1)
    server.run(server.server.control.delete("ended"))
    assert len(await collecting) == 2
    with pytest.raises(EntityNotFound):
        await receiver.collect(3, WAIT_S)


async def test_forgotten_messages_keep_their_locks_and_make_room_for_others(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("forgotten"), *"abcd")
    receiver = await namespace.receiver("forgotten", credit=2)
    messages = await take(receiver, 2)
    receiver.forget(messages)
    assert [message.body for message in await take(receiver, 2)] == [b"c", b"d"]
    assert [type(error) for error in await receiver.complete(messages)] == [NotAllowed, NotAllowed]
    await namespace.entity("forgotten").complete(messages)


async def test_a_receiver_holds_no_more_bytes_than_it_may(server: RunningServer, namespace: Namespace) -> None:
    """Beside what is on its way when it learns how large they are."""
    count, size, size_max = 40, 1024 * 1024, 4 * 1024 * 1024
    sender = await namespace.sender(server.create_queue("large", max_message_size_kb=1_100))
    for number in range(count):
        assert await sender.send([encode_message(bytes(size), message_id=str(number))]) == [None]
    receiver = await namespace.receiver("large", credit=count, size_max=size_max)
    first = await receiver.collect(count, SOON_S)
    assert 0 < len(first) < count // 2
    assert await receiver.complete(first) == [None] * len(first)
    seen = [message.message_id for message in first]
    while len(seen) < count:
        # Whatever it takes, and however long: it gets no more than it may before it has settled that.
        messages = await receiver.collect(count, SOON_S)
        assert 0 < len(messages) <= size_max // size
        assert await receiver.complete(messages) == [None] * len(messages)
        seen += [message.message_id for message in messages]
    assert seen == [str(number) for number in range(count)]


async def test_a_receiver_of_small_messages_has_all_of_its_credit(server: RunningServer, namespace: Namespace) -> None:
    """After large ones too."""
    sender = await namespace.sender(server.create_queue("small-again"))
    await sender.send([encode_message(bytes(100_000)), *[encode_message(b"") for _ in range(40)]])
    receiver = await namespace.receiver("small-again", credit=20, size_max=10_000)
    assert await receiver.complete(await take(receiver, 1)) == [None]
    assert await receiver.complete(await take(receiver, 19)) == [None] * 19
    assert len(await take(receiver, 20)) == 20


async def test_several_may_wait_on_one_receiver(server: RunningServer, namespace: Namespace) -> None:
    receiver = await namespace.receiver(server.create_queue("shared"))
    waiting = [asyncio.create_task(receiver.receive(1, WAIT_S)) for _ in range(3)]
    server.put("shared", "a", "b", "c")
    found = [message.body for messages in await asyncio.gather(*waiting) for message in messages]
    assert sorted(found) == [b"a", b"b", b"c"]


async def test_completed_messages_are_gone(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("completed"))
    await sender.send([encode_message(str(number)) for number in range(2_500)])
    receiver = await namespace.receiver("completed")
    left = 2_500
    settling = []
    while left:
        messages = await receiver.receive(500, WAIT_S)
        left -= len(messages)
        settling.append(receiver.submit(messages))
    for outcomes in settling:
        assert not any(await outcomes.wait())
    assert await is_empty(namespace, "completed")


async def test_messages_may_be_settled_in_any_order_and_share(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("any-order"), *"abcdefgh")
    receiver = await namespace.receiver("any-order")
    messages = await take(receiver, 8)
    assert await receiver.complete([messages[i] for i in (6, 1, 0, 3)]) == [None] * 4
    assert await receiver.complete([messages[i] for i in (7, 5, 4, 2)]) == [None] * 4
    assert await is_empty(namespace, "any-order")


async def test_a_lock_that_expired_is_reported_for_the_message_and_the_others_settle(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("expired"), "a")
    receiver = await namespace.receiver("expired")
    (old,) = await take(receiver, 1)
    server.clock.advance(61)
    server.put("expired", "b")
    again = await take(receiver, 2)
    outcomes = await receiver.complete([old, *again])
    assert isinstance(outcomes[0], MessageLockLost)
    assert outcomes[1:] == [None, None]
    assert {message.delivery_count for message in again} == {0, 1}


async def test_an_abandoned_message_comes_again_with_what_was_added(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("abandoned"), "a")
    receiver = await namespace.receiver("abandoned")
    assert await receiver.abandon(await take(receiver, 1), {"tried": 1}) == [None]
    (again,) = await take(receiver, 1)
    assert (again.delivery_count, again.application_properties["tried"]) == (1, 1)


async def test_a_released_message_comes_again_as_if_it_had_never_left(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("released"), "a")
    receiver = await namespace.receiver("released")
    assert await receiver.release(await take(receiver, 1)) == [None]
    (again,) = await take(receiver, 1)
    assert again.delivery_count == 0


async def test_a_dead_lettered_message_is_in_the_dead_letter_queue_with_its_reason(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("dead"), "a")
    receiver = await namespace.receiver("dead")
    assert await receiver.dead_letter(await take(receiver, 1), "bad", "it is bad", {"seen": True}) == [None]
    (dead,) = await take(await namespace.receiver("dead/$DeadLetterQueue"), 1)
    assert (dead.dead_letter_reason, dead.dead_letter_description) == ("bad", "it is bad")
    assert dead.application_properties["seen"] is True
    assert await is_empty(namespace, "dead")


async def test_a_deferred_message_comes_by_its_number_only(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("deferred"), "a")
    receiver = await namespace.receiver("deferred")
    (message,) = await take(receiver, 1)
    assert await receiver.defer([message], {"later": "yes"}) == [None]
    assert await receiver.receive(1, wait_s=SOON_S) == []
    assert message.sequence_number is not None
    (found,) = await namespace.entity("deferred").receive_deferred([message.sequence_number])
    assert (found.body, found.application_properties["later"]) == (b"a", "yes")


async def test_a_message_is_settled_once_and_by_its_own_receiver(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("mine"), "a")
    server.put(server.create_queue("yours"), "b")
    mine, yours = await namespace.receiver("mine"), await namespace.receiver("yours")
    (message,), (other,) = await take(mine, 1), await take(yours, 1)
    assert message.delivery_id == other.delivery_id
    assert [type(error) for error in await mine.complete([other])] == [NotAllowed]
    assert await mine.complete([message]) == [None]
    assert [type(error) for error in await mine.complete([message])] == [NotAllowed]
    assert await yours.complete([other]) == [None]


async def test_no_more_messages_are_here_unsettled_than_there_is_credit(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("credit"), *[str(number) for number in range(30)])
    receiver = await namespace.receiver("credit", credit=10)
    messages = await take(receiver, 10)
    assert await receiver.receive(10, wait_s=SOON_S) == []
    assert not any(await receiver.complete(messages[:4]))
    assert await receiver.receive(10, wait_s=SOON_S) == []
    # Credit comes back once half of it is free, so that not every settlement costs a flow.
    assert not any(await receiver.complete(messages[4:5]))
    assert len(await take(receiver, 5)) == 5
    assert await receiver.receive(10, wait_s=SOON_S) == []


async def test_in_receive_and_delete_messages_are_gone_when_they_come(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("deleted"), "a", "b")
    receiver = await namespace.receiver("deleted", deletes=True)
    messages = await take(receiver, 2)
    assert [message.lock_token for message in messages] == [None, None]
    assert await is_empty(namespace, "deleted")
    assert [type(error) for error in await receiver.complete(messages)] == [NotAllowed, NotAllowed]


async def test_in_receive_and_delete_what_is_not_taken_stays_within_the_credit(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("bounded"), *[str(number) for number in range(60)])
    receiver = await namespace.receiver("bounded", deletes=True, credit=10)
    found = await take(receiver, 1)
    # Long enough for the namespace to have sent whatever it was allowed to.
    assert len(await namespace.entity("bounded").peek(60)) >= 40
    while len(found) < 60:
        found += await take(receiver, 1)
        assert len(receiver._inbox) <= 10
    assert [message.body for message in found] == [b"%d" % number for number in range(60)]


async def test_closing_gives_back_at_once_what_nobody_took(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("given-back"), *"abcdef")
    receiver = await namespace.receiver("given-back")
    (held,) = await receiver.receive(1, WAIT_S)
    await receiver.close()
    again = await take(await namespace.receiver("given-back"), 5)
    assert [message.body for message in again] == [b"b", b"c", b"d", b"e", b"f"]
    assert {message.delivery_count for message in again} == {0}
    # What was taken keeps its lock, and is settled by it.
    await namespace.entity("given-back").complete([held])


async def test_after_closing_nothing_is_received_or_settled(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("closed"), "a")
    receiver = await namespace.receiver("closed")
    messages = await take(receiver, 1)
    await receiver.close()
    with pytest.raises(ConnectionLost):
        await receiver.receive(1, wait_s=0)
    assert [type(error) for error in await receiver.complete(messages)] == [ConnectionLost]


async def test_closing_in_receive_and_delete_loses_nothing(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("kept"), *"abcdef")
    receiver = await namespace.receiver("kept", deletes=True)
    found = await receiver.receive(1, WAIT_S)
    await receiver.close()
    while True:
        try:
            found += await receiver.receive(2, wait_s=0)
        except ConnectionLost:
            break
    assert [message.body for message in found] == [b"a", b"b", b"c", b"d", b"e", b"f"]


async def test_an_entity_that_is_deleted_ends_its_links_with_the_reason(
    server: RunningServer, namespace: Namespace
) -> None:
    server.put(server.create_queue("doomed"), "a")
    receiver, sender = await namespace.receiver("doomed"), await namespace.sender("doomed")
    messages = await take(receiver, 1)
    waiting = asyncio.create_task(receiver.receive(1, WAIT_S))
    await asyncio.sleep(0)
    server.run(server.server.control.delete("doomed"))
    with pytest.raises(EntityNotFound):
        await waiting
    assert [type(error) for error in await receiver.complete(messages)] == [EntityNotFound]
    assert [type(error) for error in await sender.send([encode_message("b")])] == [EntityNotFound]
    # The connection and its other links live on.
    assert await is_empty(namespace, server.create_queue("doomed"))


async def test_a_receiver_without_credit_is_a_mistake(server: RunningServer, namespace: Namespace) -> None:
    server.create_queue("no-credit")
    with pytest.raises(ArgumentError):
        await namespace.receiver("no-credit", credit=0)


async def test_settling_without_waiting_for_the_answer_is_possible(server: RunningServer, namespace: Namespace) -> None:
    server.put(server.create_queue("unwaited"), "a", "b")
    receiver = await namespace.receiver("unwaited")
    first = receiver.submit((await take(receiver, 2))[:1], abandoned())
    assert first.left == 1
    assert await first.wait() == [None]


async def test_a_paused_receiver_settles_what_it_has_and_gets_no_more(
    server: RunningServer, namespace: Namespace
) -> None:
    server.create_queue("paused")
    server.put("paused", *"abcdef")
    receiver = await namespace.receiver("paused", credit=4)
    messages = await receiver.collect(2, WAIT_S)
    await receiver.pause()
    messages += await receiver.receive(10, 0)
    assert len(messages) == 4
    assert await receiver.complete(messages) == [None] * 4
    assert await receiver.receive(10, 0.05) == []
    await receiver.close()
    assert [bytes(message.body) for message in await namespace.entity("paused").peek(10)] == [b"e", b"f"]


async def test_what_comes_between_two_polls_is_received_by_the_next(
    server: RunningServer, namespace: Namespace
) -> None:
    receiver = await namespace.receiver(server.create_queue("polled"))
    assert await receiver.receive(10, SOON_S) == []
    await receiver.end_poll()
    server.put("polled", "a")
    assert not await is_empty(namespace, "polled")
    assert [message.body for message in await take(receiver, 1)] == [b"a"]
