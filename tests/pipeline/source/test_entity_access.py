"""The two ways to access an entity say the same, as far as both can know it; and which of them is taken."""

import asyncio
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.relay import Relay
from tests.pipeline.source.bus import Bus, bodies, names, rows
from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.client.entity_extras import PackedPage
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.client.request_node import Answer
from twinbus.errors import EntityNotFound, NotAllowed, OperationTimeout, ServerBusy
from twinbus.pipeline.source.access.connections import Detect
from twinbus.pipeline.source.access.entity_access import ALL_STATES, EntityAccess, Wanted
from twinbus.pipeline.source.access.plain_access import PlainAccess
from twinbus.pipeline.source.live_entity import detected, own, plain
from twinbus.pipeline.source.starting_points import first_at

WAYS = [pytest.param(own, id="own"), pytest.param(plain, id="plain")]


class Stranger(Namespace):
    """A namespace that refuses what is not the service's, in a way of its own."""

    def __init__(self, condition: str) -> None:
        self._condition = condition

    async def ask(self, path: str, operation: str, body: dict[str, object]) -> Answer:
        assert operation == "com.twinbus:fragment-heads"
        return Answer(400, "no", self._condition, None)


@pytest.mark.parametrize(
    "condition", ["amqp:not-implemented", "amqp:not-allowed", "com.microsoft:argument-error", "example:unheard-of"]
)
async def test_a_namespace_that_does_not_know_our_operations_is_accessed_by_plain_ones(condition: str) -> None:
    assert not (await detected(Stranger(condition), "q")).is_own


@pytest.mark.parametrize(
    ("condition", "kind"), [("amqp:not-found", EntityNotFound), ("com.microsoft:server-busy", ServerBusy)]
)
async def test_a_refusal_that_says_something_else_is_no_sign_of_a_stranger(
    condition: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        await detected(Stranger(condition), "q")


def test_our_own_namespace_is_known_by_its_answer(bus: Bus) -> None:
    async def is_own(access: EntityAccess) -> bool:
        return access.is_own

    assert bus.ask(bus.queue(), is_own)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_both_find_the_same_ends_where_no_last_message_is_gone(bus: Bus, is_partitioned: bool) -> None:
    path = bus.queue(enable_partitioning=is_partitioned)
    bus.spread(path, names(90))
    found = [
        {
            (head.fragment, head.first, head.end)
            for head in bus.ask(path, lambda access: access.heads(), detect)
            if head.first < head.end
        }
        for detect in (own, plain)
    ]
    assert found[0] == found[1]


def test_ends_that_are_known_cost_one_question_while_nothing_comes(bus: Bus) -> None:
    path = bus.queue()
    bus.send(path, names(50))
    counts: list[int] = []

    async def work(access: EntityAccess) -> list[tuple[int, int]]:
        assert isinstance(access, PlainAccess)
        ends = []
        for _ in range(2):
            before = access.asked_count
            ends.append(next((head.first, head.end) for head in await access.heads()))
            counts.append(access.asked_count - before)
        return ends

    assert bus.ask(path, work, plain) == [(1, 51), (1, 51)]
    assert counts[0] < 20
    assert counts[1] == 1


class Shelf:
    """Messages by number, for a search that needs no namespace."""

    is_own = True
    path = "q"

    def __init__(self, times: dict[int, int]) -> None:
        self._times = times
        self.asked_count = 0

    async def page(self, wanted: Wanted) -> PackedPage:
        self.asked_count += 1
        found = sorted(number for number in self._times if wanted.first <= number < wanted.end)[: wanted.count_max]
        annotations = [{"x-opt-sequence-number": n, "x-opt-enqueued-time": self._times[n]} for n in found]
        return PackedPage.of([encode_message(annotations=each) for each in annotations], None)


@settings(max_examples=100)
@given(st.sets(st.integers(1, 200)), st.integers(0, 30))
async def test_a_time_is_found_by_halves(numbers: set[int], time: int) -> None:
    shelf = Shelf({number: number // 8 for number in numbers})
    found = await first_at(shelf, 1, 201, time)  # type: ignore[arg-type]
    assert all((number >= found) == (number // 8 >= time) for number in numbers)
    assert shelf.asked_count <= 9


@pytest.mark.parametrize("detect", WAYS)
def test_a_page_never_leaves_its_range(bus: Bus, detect: Detect) -> None:
    path = bus.queue()
    bus.send(path, names(10))

    async def read(access: EntityAccess) -> list[int]:
        numbers: list[int] = []
        following: int | None = 3
        while following is not None:
            page = await access.page(Wanted(following, 8, 2, ALL_STATES))
            assert all(message.body is None for message in page.messages())
            numbers += [message.sequence_number or 0 for message in page.messages()]
            following = page.next_number
        return numbers

    assert bus.ask(path, read, detect) == [3, 4, 5, 6, 7]


async def claim_and_release(access: EntityAccess) -> int:
    return await access.release((await access.claim({0: 2}, None, "me")).ranges)


@pytest.mark.parametrize("is_detecting", [False, True])
@pytest.mark.parametrize(("detect", "order"), [(own, names(3)), (plain, ["m2", "m0", "m1"])])
def test_claims_are_released_in_their_places_or_as_copies_at_the_end(
    bus: Bus, detect: Detect, order: list[str], is_detecting: bool
) -> None:
    """Also where the ids of the messages are known already, and a copy with such an id would be dropped."""
    path = bus.queue(requires_duplicate_detection=is_detecting)
    bus.send(path, names(3), subject="kept", application_properties={"n": 1}, partition_key="k")
    assert bus.ask(path, claim_and_release, detect) == 2
    assert bus.counts(path) == (3, 0)
    reader = bus.batch(path)
    found = rows(reader, reader.partitions())
    assert bodies(found) == order
    for row in found:
        assert (row["subject"], row["partitionKey"]) == ("kept", "k")
        properties = dict(row["properties"])
        assert properties.pop("n") == "1"
        original = json.loads(properties.pop("CopyOfMessageId", json.dumps(row["messageId"])))
        assert (original, properties) == (row["body"].decode(), {})


def test_claims_of_dead_letters_cannot_be_sent_again(bus: Bus) -> None:
    path = f"{bus.queue()}/$DeadLetterQueue"
    with pytest.raises(NotAllowed, match="Messages cannot be sent to"):
        bus.ask(path, lambda access: access.release([(1, 2)]), plain)


ANSWER_WAIT_S = 2.0
DEFERRING = b"\x00\x53\x15.{0,40}\x00\x53\x27"  # a disposition whose state is `modified`
SENDING = b"\x00\x53\x14.*copy me"


@pytest.mark.parametrize("hangs_at", [DEFERRING, SENDING], ids=["claimed", "sent again"])
async def test_a_namespace_that_stops_answering_is_waited_for_as_long_as_an_operation_may_take(
    bus: Bus, hangs_at: bytes
) -> None:
    path = bus.queue()
    bus.send(path, ["copy me"])
    port = parse_connection_string(bus.namespace.connection_string).port
    relay = Relay(port)
    await relay.start()
    try:
        relay.holds_at = re.compile(hangs_at, re.DOTALL)
        text = bus.namespace.connection_string.replace(f":{port};", f":{relay.port};")
        namespace = await Namespace.connect(text, timeout_s=ANSWER_WAIT_S)
        access = PlainAccess(namespace, path)
        async with asyncio.timeout(10 * ANSWER_WAIT_S):
            with pytest.raises(OperationTimeout, match=f"'{path}' did not answer"):
                await claim_and_release(access)
    finally:
        await relay.stop()
