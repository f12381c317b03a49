"""What only a twinbus namespace can be asked, over a real one."""

from datetime import timedelta
from typing import Any

import pytest

from tests.interop.running_server import RunningServer
from twinbus.amqp.codec.sections import ValueBody
from twinbus.client.entity_extras import EntityExtras, next_positions
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.received_message import ReceivedMessage
from twinbus.client.request_node import Answer
from twinbus.errors import NotImplementedHere
from twinbus.model.wire_names import MessageState

WAIT_S = 5.0
COUNT = 40


async def filled(server: RunningServer, namespace: Namespace, name: str) -> EntityExtras:
    server.create_queue(name, enable_partitioning=True)
    sender = await namespace.sender(name)
    for number in range(COUNT):
        assert await sender.send([encode_message(str(number))]) == [None]
    return namespace.extras(name)


async def test_a_merged_peek_goes_on_where_the_last_one_ended(server: RunningServer, namespace: Namespace) -> None:
    extras = await filled(server, namespace, "merged")
    found: list[bytes] = []
    positions: dict[int, int] = {}
    while page := await extras.peek_merged(15, positions):
        positions = next_positions(page, positions)
        found += [bytes(message.body) for message in page]
    assert sorted(found, key=int) == [b"%d" % number for number in range(COUNT)]


async def test_a_purge_removes_all_that_nobody_holds(server: RunningServer, namespace: Namespace) -> None:
    extras = await filled(server, namespace, "purged")
    assert [await extras.purge(30), await extras.purge(30), await extras.purge(30)] == [30, 10, 0]


async def test_a_dead_letter_queue_is_purged_by_itself(server: RunningServer, namespace: Namespace) -> None:
    await filled(server, namespace, "deadly")
    receiver = await namespace.receiver("deadly", credit=5)
    assert not any(await receiver.dead_letter(await receiver.collect(5, WAIT_S), "why"))
    await receiver.close()
    assert await namespace.extras("deadly/$DeadLetterQueue").purge(100) == 5
    assert sum(head.active for head in await namespace.extras("deadly").fragment_heads()) == COUNT - 5


async def test_claims_are_reported_by_ranges_and_deleted_by_them(server: RunningServer, namespace: Namespace) -> None:
    extras = await filled(server, namespace, "claimed")
    (head, *others) = await extras.fragment_heads()
    assert sum(each.active for each in (head, *others)) == COUNT
    assert await extras.claim(100, owner="job", fragment=0) == [(head.first_number, head.last_number)]
    (message, *_) = await namespace.entity("claimed").peek(1)
    assert message.annotations["x-opt-claimed-by"] == "job"
    ranges = await extras.claim(COUNT)
    assert await extras.claim(COUNT) == []
    assert await extras.delete_claimed(ranges) == COUNT - head.active
    assert await extras.delete_claimed(ranges) == 0
    assert await extras.undefer([(head.first_number, head.last_number)]) == head.active
    await extras.claim(1)
    assert await extras.undefer_all(COUNT) == 1


async def test_a_message_given_back_with_a_delay_stays_away(server: RunningServer, namespace: Namespace) -> None:
    extras = await filled(server, namespace, "delayed")
    receiver = await namespace.receiver("delayed", credit=1)
    (message,) = await receiver.collect(1, WAIT_S)
    assert message.lock_token is not None
    await extras.abandon_for([message.lock_token], timedelta(hours=1))
    assert sum(head.scheduled for head in await extras.fragment_heads()) == 1


async def test_a_namespace_that_knows_none_of_this_says_so() -> None:
    async def ask(path: str, operation: str, body: dict[str, object]) -> Answer:
        return Answer(501, "no", "amqp:not-implemented", None)

    with pytest.raises(NotImplementedHere):
        await EntityExtras("q", ask).fragment_heads()


async def test_a_range_is_read_page_by_page_with_bodies_or_without(server: RunningServer, namespace: Namespace) -> None:
    server.create_queue("ranges")
    sender = await namespace.sender("ranges")
    assert not any(await sender.send_batches([encode_message(str(number)) for number in range(10)]))
    extras = namespace.extras("ranges")
    page = await extras.peek_range(2, 9, 5)
    assert [bytes(message.body) for message in page.messages] == [b"1", b"2", b"3", b"4", b"5"]
    assert page.next_number == 7
    assert [message.body for message in (await extras.peek_range(7, 9, with_bodies=False)).messages] == [None] * 3
    assert await extras.peek_range(50, 60) == ([], None)


async def test_a_namespace_that_does_not_pack_pages_is_read_too(server: RunningServer, namespace: Namespace) -> None:
    server.create_queue("listed")
    sender = await namespace.sender("listed")
    bodies: list[Any] = [b"data", None, ValueBody(5), b""]
    assert not any(await sender.send_batches([encode_message(body) for body in bodies]))

    async def ask(path: str, operation: str, body: dict[str, Any]) -> Answer:
        return await namespace.ask(path, operation, {**body, "packed": False})

    listed = await EntityExtras("listed", ask).peek_packed(1, 4)
    packed = await namespace.extras("listed").peek_packed(1, 4)
    assert listed == packed
    assert [ReceivedMessage(payload).body for payload in packed.payloads()] == [b"data", None, 5, b""]


async def test_a_range_may_be_asked_for_some_states_only(server: RunningServer, namespace: Namespace) -> None:
    server.create_queue("states")
    sender = await namespace.sender("states")
    assert not any(await sender.send_batches([encode_message(str(number)) for number in range(6)]))
    extras = namespace.extras("states")
    assert await extras.claim(10, fragment=0, last_number=2) == [(1, 2)]
    page = await extras.peek_range(1, 6, states=[MessageState.DEFERRED])
    assert [message.sequence_number for message in page.messages] == [1, 2]
    page = await extras.peek_range(1, 6, states=[MessageState.ACTIVE, MessageState.SCHEDULED])
    assert [message.sequence_number for message in page.messages] == [3, 4, 5, 6]
