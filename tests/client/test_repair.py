"""A repair of a whole sub-queue with the client, over a real namespace."""

from typing import Any

import pytest

from tests.interop.running_server import RunningServer
from twinbus.client.entity_extras import EntityExtras, Repair
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.repair import BUSY_MAX, preview_all, repair_all, repair_numbered
from twinbus.client.request_node import Answer
from twinbus.errors import QuotaExceeded, ServerBusy

WAIT_S = 5.0
COUNT = 40


async def dead_letters(server: RunningServer, namespace: Namespace, name: str) -> EntityExtras:
    server.create_queue(name, enable_partitioning=True)
    sender = await namespace.sender(name)
    payloads = [encode_message(str(number), application_properties={"odd": number % 2}) for number in range(COUNT)]
    for payload in payloads:
        assert await sender.send([payload]) == [None]
    receiver = await namespace.receiver(name, credit=COUNT)
    assert not any(await receiver.dead_letter(await receiver.collect(COUNT, WAIT_S), "why"))
    await receiver.close()
    return namespace.extras(f"{name}/$DeadLetterQueue")


async def active(namespace: Namespace, path: str) -> int:
    return sum(head.active for head in await namespace.extras(path).fragment_heads())


async def test_a_repair_goes_over_all_fragments_and_says_how_far_it_is(
    server: RunningServer, namespace: Namespace
) -> None:
    extras = await dead_letters(server, namespace, "repaired")
    odd = Repair(filter="odd = 1", action="SET odd = 0")
    previews = await preview_all(extras, odd, 5)
    assert [each.after.application_properties["odd"] for each in previews if each.after is not None] == [0] * 5
    standings = [(standing.examined, standing.repaired) async for standing in repair_all(extras, odd)]
    assert standings == sorted(standings)
    assert standings[-1] == (COUNT, COUNT // 2)
    assert await active(namespace, "repaired") == COUNT // 2


async def test_messages_are_repaired_by_their_numbers_wherever_they_are(
    server: RunningServer, namespace: Namespace
) -> None:
    extras = await dead_letters(server, namespace, "numbered")
    numbers = [message.sequence_number or 0 for message in await extras.peek_merged(10)]
    last = [standing async for standing in repair_numbered(extras, Repair(removes=True), numbers)][-1]
    assert (last.repaired, last.total) == (10, 10)
    assert await active(namespace, "numbered/$DeadLetterQueue") == COUNT - 10
    assert await active(namespace, "numbered") == 0


async def test_messages_go_to_another_queue(server: RunningServer, namespace: Namespace) -> None:
    server.create_queue("elsewhere")
    extras = await dead_letters(server, namespace, "moved")
    last = [standing async for standing in repair_all(extras, Repair(destination="elsewhere"))][-1]
    assert last.repaired == COUNT
    receiver = await namespace.receiver("elsewhere", credit=COUNT)
    assert len(await receiver.collect(COUNT, WAIT_S)) == COUNT


async def test_a_busy_namespace_is_asked_again_and_not_for_ever() -> None:
    pauses: list[float] = []
    page = {"message-count": 1, "examined-count": 1, "held-count": 0, "refused-count": 0, "refusals": []}

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def ask(path: str, operation: str, body: object) -> Answer:
        if operation.endswith("heads"):
            names = ("fragment", "first-sequence-number", "last-sequence-number", "active-message-count")
            others = ("deferred-message-count", "scheduled-message-count", "size-in-bytes")
            head = {"is-available": True, **dict.fromkeys((*names, *others), 1)}
            return Answer(200, "OK", "", {"fragments": [head]})
        if len(pauses) < busy:
            raise ServerBusy("not now")
        return Answer(200, "OK", "", page)

    busy = 3
    standings = [standing async for standing in repair_all(EntityExtras("q", ask), Repair(), pause)]
    assert (standings[-1].repaired, len(pauses)) == (1, 3)
    busy = 10 * BUSY_MAX
    with pytest.raises(ServerBusy):
        _ = [standing async for standing in repair_all(EntityExtras("q", ask), Repair(), pause)]
    assert len(pauses) == 3 + BUSY_MAX


async def test_the_numbers_that_are_left_are_asked_for_until_there_are_none_or_it_fails() -> None:
    """A repair that cannot go on says how far it came, and whoever asks for the rest learns why."""
    asked: list[list[int]] = []
    page = {"message-count": 2, "examined-count": 2, "held-count": 0, "refused-count": 0, "refusals": []}

    async def ask(path: str, operation: str, body: dict[str, Any]) -> Answer:
        asked.append([int(number) for number in body["sequence-numbers"].values])
        if len(asked) == 3:
            raise QuotaExceeded("The destination is full.")
        return Answer(200, "OK", "", page | {"next-sequence-number": 2 * len(asked) + 1})

    pages = repair_numbered(EntityExtras("q", ask), Repair(), [1, 2, 3, 4, 5, 6])
    standing = await anext(pages)
    assert (await anext(pages)).repaired == 4
    with pytest.raises(QuotaExceeded):
        await anext(pages)
    assert asked == [[1, 2, 3, 4, 5, 6], [3, 4, 5, 6], [5, 6]]
    assert (standing.repaired, standing.examined) == (4, 4)
