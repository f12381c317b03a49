"""Session receivers: a session by name or the next that is free, one holder at a time."""

import asyncio

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.errors import (
    MessagingError,
    NotAllowed,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
)

WAIT_S = 5.0


async def session_queue(server: RunningServer, namespace: Namespace, name: str, *sessions: str) -> str:
    server.create_queue(name, requires_session=True)
    sender = await namespace.sender(name)
    payloads = [encode_message(f"{session}{n}", session_id=session) for n in range(3) for session in sessions]
    assert not any(await sender.send_batches(payloads))
    return name


async def test_a_session_by_name_gets_its_own_messages_in_order(server: RunningServer, namespace: Namespace) -> None:
    await session_queue(server, namespace, "by-name", "a", "b")
    receiver = await namespace.session_receiver("by-name", "b")
    assert receiver.session_id == "b"
    messages = await receiver.receive(10, WAIT_S)
    assert [message.body for message in messages] == [b"b0", b"b1", b"b2"]
    assert await receiver.complete(messages) == [None] * 3


async def test_the_next_free_session_is_one_that_nobody_has(server: RunningServer, namespace: Namespace) -> None:
    await session_queue(server, namespace, "next-free", "a", "b")
    first = await namespace.session_receiver("next-free")
    second = await namespace.session_receiver("next-free")
    assert {first.session_id, second.session_id} == {"a", "b"}


async def test_a_session_that_is_held_is_refused(server: RunningServer, namespace: Namespace) -> None:
    await session_queue(server, namespace, "held", "a")
    await namespace.session_receiver("held", "a")
    with pytest.raises(SessionCannotBeLocked) as caught:
        await namespace.session_receiver("held", "a")
    assert caught.value.is_transient


async def test_no_free_session_in_time_is_a_timeout(server: RunningServer, namespace: Namespace) -> None:
    await session_queue(server, namespace, "none-free")
    waiting = asyncio.create_task(namespace.session_receiver("none-free", wait_s=30))
    await namespace.entity("none-free").peek(1)
    server.clock.advance(31)
    with pytest.raises(OperationTimeout):
        await waiting


async def test_a_session_that_gets_free_goes_to_who_waits(server: RunningServer, namespace: Namespace) -> None:
    await session_queue(server, namespace, "freed", "a")
    holder = await namespace.session_receiver("freed", "a")
    waiting = asyncio.create_task(namespace.session_receiver("freed", wait_s=30))
    await namespace.entity("freed").peek(1)
    await holder.close()
    receiver = await waiting
    messages = await receiver.receive(10, WAIT_S)
    assert [message.delivery_count for message in messages] == [0, 0, 0]


async def test_a_session_lock_is_renewed_by_asking(server: RunningServer, namespace: Namespace) -> None:
    await session_queue(server, namespace, "renewed", "a")
    receiver = await namespace.session_receiver("renewed", "a")
    assert receiver.session_locked_until is not None
    messages = await receiver.receive(3, WAIT_S)
    for _ in range(3):
        server.clock.advance(40)
        until = await namespace.entity("renewed").renew_session("a")
    assert until.timestamp() * 1000 > receiver.session_locked_until + 100_000
    assert await receiver.complete(messages) == [None] * 3


async def test_a_session_lock_that_is_not_renewed_is_lost(server: RunningServer, namespace: Namespace) -> None:
    await session_queue(server, namespace, "lost", "a")
    receiver = await namespace.session_receiver("lost", "a")
    messages = await receiver.receive(3, WAIT_S)
    server.clock.advance(61)
    outcomes = await receiver.complete(messages)
    assert {type(error) for error in outcomes} == {SessionLockLost}
    again = await namespace.session_receiver("lost", "a")
    assert len(await again.receive(3, WAIT_S)) == 3


async def test_a_session_keeps_its_state_between_receivers(server: RunningServer, namespace: Namespace) -> None:
    await session_queue(server, namespace, "state", "a")
    entity = namespace.entity("state")
    receiver = await namespace.session_receiver("state", "a")
    assert await entity.session_state("a") is None
    await entity.set_session_state("a", b"half way")
    await receiver.close()
    await namespace.session_receiver("state", "a")
    assert await entity.session_state("a") == b"half way"
    await entity.set_session_state("a", None)
    assert await entity.session_state("a") is None


async def test_sessions_are_listed(server: RunningServer, namespace: Namespace) -> None:
    await session_queue(server, namespace, "listed", "a", "b", "c")
    entity = namespace.entity("listed")
    assert sorted(await entity.sessions()) == ["a", "b", "c"]
    assert len(await entity.sessions(top=2)) == 2
    assert await entity.sessions(skip=3) == []


async def test_a_queue_with_sessions_has_no_plain_receiver_and_the_other_way_round(
    server: RunningServer, namespace: Namespace
) -> None:
    await session_queue(server, namespace, "with", "a")
    server.create_queue("without")
    with pytest.raises(NotAllowed):
        await namespace.receiver("with")
    with pytest.raises(MessagingError):
        await namespace.session_receiver("without", "a")
