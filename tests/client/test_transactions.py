"""Transactions against a real namespace, as an application writes them (contract A7)."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.errors import EntityNotFound, MessageLockLost, MessagingError, NotAllowed, QuotaExceeded
from twinbus.transactions import TransactionTimeout


class ChangeOfMind(Exception):
    pass


async def take(namespace: Namespace, path: str, count: int) -> list[ReceivedMessage]:
    receiver = await namespace.receiver(path, deletes=True, credit=count)
    found = await receiver.collect(count, 5)
    await receiver.close()
    return found


async def left(namespace: Namespace, path: str) -> int:
    return len(await namespace.entity(path).peek(250))


async def test_leaving_the_block_commits(server: RunningServer, namespace: Namespace) -> None:
    path = server.create_queue("commits")
    server.put(path, "a", "b")
    receiver, sender = await namespace.receiver(path, credit=2), await namespace.sender(path)
    first, second = await receiver.collect(2, 5)
    async with namespace.transaction() as transaction:
        await transaction.complete(receiver, [first])
        await transaction.dead_letter(receiver, [second], "reason", "description")
        await transaction.send(sender, [encode_message("c"), encode_message("d")])
        assert await left(namespace, path) == 2
    await receiver.close()
    assert [message.body for message in await take(namespace, path, 2)] == [b"c", b"d"]
    (dead,) = await take(namespace, f"{path}/$DeadLetterQueue", 1)
    assert (dead.body, dead.application_properties["DeadLetterReason"]) == (b"b", "reason")


async def test_an_exception_rolls_back_and_is_the_one_that_is_raised(
    server: RunningServer, namespace: Namespace
) -> None:
    path = server.create_queue("rolls-back")
    server.put(path, "old")
    receiver, sender = await namespace.receiver(path, credit=1), await namespace.sender(path)
    (message,) = await receiver.receive(1, 5)

    async def fails() -> None:
        async with namespace.transaction() as transaction:
            await transaction.send(sender, [encode_message("new")])
            await transaction.complete(receiver, [message])
            raise ChangeOfMind

    with pytest.raises(ChangeOfMind):
        await fails()
    await receiver.close()
    await namespace.entity(path).abandon([message])
    (again,) = await take(namespace, path, 1)
    assert (again.body, again.delivery_count) == (b"old", 1)
    assert await left(namespace, path) == 0


async def test_settlements_of_every_kind_happen_at_the_commit(server: RunningServer, namespace: Namespace) -> None:
    path = server.create_queue("settles")
    server.put(path, "abandon", "defer")
    receiver = await namespace.receiver(path, credit=2)
    first, second = await receiver.collect(2, 5)
    async with namespace.transaction() as transaction:
        await transaction.abandon(receiver, [first], {"note": "later"})
        await transaction.defer(receiver, [second])
    await receiver.close()
    assert second.sequence_number is not None
    (deferred,) = await namespace.entity(path).receive_deferred([second.sequence_number], deletes=True)
    (again,) = await take(namespace, path, 1)
    assert (deferred.body, again.application_properties["note"]) == (b"defer", "later")


async def test_a_message_is_sent_via_the_queue_it_was_received_from(
    server: RunningServer, namespace: Namespace
) -> None:
    orders = server.create_queue("via-orders", enable_partitioning=True)
    invoices = server.create_queue("via-invoices", enable_partitioning=True)
    await (await namespace.sender(orders)).send([encode_message("order", partition_key="contoso")])
    receiver, sender = await namespace.receiver(orders, credit=1), await namespace.sender(invoices, via=orders)
    (order,) = await receiver.receive(1, 5)
    async with namespace.transaction() as transaction:
        await transaction.complete(receiver, [order])
        invoice = encode_message("invoice", partition_key="elsewhere", via_partition_key="contoso")
        await transaction.send(sender, [invoice])
    assert [message.body for message in await take(namespace, invoices, 1)] == [b"invoice"]
    assert await left(namespace, orders) == 0


async def test_sending_via_a_queue_needs_a_destination(server: RunningServer, namespace: Namespace) -> None:
    path = server.create_queue("via-nowhere")
    with pytest.raises(EntityNotFound):
        await namespace.sender("missing", via=path)


async def test_a_refusal_is_raised_and_ends_the_block(server: RunningServer, namespace: Namespace) -> None:
    path, other = server.create_queue("stays"), server.create_queue("out-of-reach")
    sender, elsewhere = await namespace.sender(path), await namespace.sender(other)

    async def fails() -> None:
        async with namespace.transaction() as transaction:
            await transaction.send(sender, [encode_message("a")])
            await transaction.send(elsewhere, [encode_message("b")])

    with pytest.raises(NotAllowed, match="one entity"):
        await fails()
    assert (await left(namespace, path), await left(namespace, other)) == (0, 0)


async def test_a_partitioned_queue_wants_one_key(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("keyed", enable_partitioning=True))
    for keys in [(None,), ("a", "b")]:
        with pytest.raises(NotAllowed, match="partitioned"):
            async with namespace.transaction() as transaction:
                await transaction.send(sender, [encode_message("m", partition_key=key) for key in keys])
    async with namespace.transaction() as transaction:
        await transaction.send(sender, [encode_message("m", partition_key="a")] * 2)
    assert await left(namespace, "keyed") == 2


async def test_a_session_goes_on_in_one_transaction(server: RunningServer, namespace: Namespace) -> None:
    path = server.create_queue("session", requires_session=True, enable_partitioning=True)
    sender = await namespace.sender(path)
    await sender.send([encode_message("first", session_id="s")])
    receiver = await namespace.session_receiver(path, "s", credit=5)
    (first,) = await receiver.receive(1, 5)
    async with namespace.transaction() as transaction:
        await transaction.complete(receiver, [first])
        await transaction.send(sender, [encode_message("second", session_id="s")])
        with pytest.raises(NotAllowed, match="the same session id"):
            await transaction.send(sender, [encode_message("other", session_id="another")])
    (second,) = await receiver.receive(1, 5)
    assert second.body == b"second"


async def test_a_message_of_many_frames_is_sent_in_a_transaction(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("large"))
    body = bytes(200_000)
    async with namespace.transaction() as transaction:
        await transaction.send(sender, [encode_message(body)] * 2)
        assert await left(namespace, "large") == 0
    assert [message.body for message in await take(namespace, "large", 2)] == [body, body]


async def test_a_hundred_messages_are_the_limit(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("hundred"))
    async with namespace.transaction() as transaction:
        await transaction.send(sender, [encode_message("m")] * 100)
        with pytest.raises(QuotaExceeded):
            await transaction.send(sender, [encode_message("m")])
    assert await left(namespace, "hundred") == 100


async def test_a_commit_fails_when_a_lock_is_gone(server: RunningServer, namespace: Namespace) -> None:
    path = server.create_queue("lost-lock", lock_duration=5_000)
    server.put(path, "m")
    receiver, sender = await namespace.receiver(path, credit=1), await namespace.sender(path)
    (message,) = await receiver.receive(1, 5)

    async def fails() -> None:
        async with namespace.transaction() as transaction:
            await transaction.complete(receiver, [message])
            await transaction.send(sender, [encode_message("new")])
            server.clock.advance(6)

    with pytest.raises(MessageLockLost):
        await fails()
    await receiver.close()
    assert [each.body for each in await take(namespace, path, 1)] == [b"m"]
    assert await left(namespace, path) == 0


async def test_two_minutes_are_the_limit(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("two-minutes"))

    async def fails() -> None:
        async with namespace.transaction() as transaction:
            await transaction.send(sender, [encode_message("m")])
            server.clock.advance(121)

    with pytest.raises(TransactionTimeout):
        await fails()
    assert await left(namespace, "two-minutes") == 0


async def test_a_transaction_is_discharged_once(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("once"))
    async with namespace.transaction() as transaction:
        await transaction.send(sender, [encode_message("m")])
        await transaction.commit()
        for again in (transaction.commit, transaction.rollback):
            with pytest.raises(NotAllowed, match="not open"):
                await again()
    assert await left(namespace, "once") == 1


async def test_many_transactions_are_open_at_a_time(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("many"))

    async def one(number: int) -> None:
        async with namespace.transaction() as transaction:
            await transaction.send(sender, [encode_message(str(number))] * 3)
            if number % 2:
                await transaction.rollback()

    await asyncio.gather(*[one(number) for number in range(40)])
    bodies = [message.body for message in await namespace.entity("many").peek(250)]
    assert sorted(bodies) == sorted([b"%d" % number for number in range(0, 40, 2)] * 3)


async def test_a_message_is_scheduled_by_the_commit(server: RunningServer, namespace: Namespace) -> None:
    sender = await namespace.sender(server.create_queue("scheduled"))
    due = datetime.now(UTC) + timedelta(hours=1)
    async with namespace.transaction() as transaction:
        await transaction.send(sender, [encode_message("later", scheduled_at=due)])
        assert await left(namespace, "scheduled") == 0
    (message,) = await namespace.entity("scheduled").peek(1)
    assert message.body == b"later"


async def test_a_connection_that_ends_takes_its_transactions_with_it(
    server: RunningServer, namespace: Namespace
) -> None:
    path = server.create_queue("cut-off")
    async with await Namespace.connect(server.connection_string, clock=server.clock, timeout_s=10) as other:
        sender = await other.sender(path)
        transaction = other.transaction()
        await transaction.__aenter__()
        await transaction.send(sender, [encode_message("m")])
    with pytest.raises(MessagingError):
        await transaction.commit()
    assert await left(namespace, path) == 0
