"""What happens between a sink and a namespace that is not always well. Nobody sleeps: a wait is when things change."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from twinbus.client.message import encode_message
from twinbus.pipeline.connection_options import ConnectionOptions
from twinbus.pipeline.sink.delivery import Patience, TaskDelivery, WriteFailed
from twinbus.pipeline.sink.links import CONNECTION_COUNT_MAX, SENDER_COUNT_MAX, SenderLinks, links_of_process
from twinbus.pipeline.sink.messages import Outgoing
from twinbus.testing.local_namespace import LocalNamespace

PATIENCE = Patience(retry_total=3, timeout_s=20)
BATCH_BYTES = 64 * 1024


def connection(namespace: LocalNamespace, timeout_s: int = 5) -> ConnectionOptions:
    options = {"connectionString": namespace.connection_string, "operationTimeout": str(timeout_s)}
    return ConnectionOptions.from_options(options)


@pytest.fixture
async def links(twinbus_namespace: LocalNamespace) -> AsyncIterator[SenderLinks]:
    made = SenderLinks(connection(twinbus_namespace))
    yield made
    await made.drop()


class Waits:
    """Notes each wait, and does instead what is to happen meanwhile."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self._events = list(events)
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if self._events:
            await asyncio.to_thread(self._events.pop(0))


def delivery(
    links: SenderLinks, wait: Callable[[float], Awaitable[None]], patience: Patience = PATIENCE
) -> TaskDelivery:
    return TaskDelivery(links, patience, BATCH_BYTES, wait=wait)


def numbered(count: int, *, entity: str = "q", key: str | None = None, size: int = 10) -> list[Outgoing]:
    ids = [str(number) for number in range(count)]
    return [Outgoing(entity, key, encode_message(b"x" * size, message_id=each, session_id=key)) for each in ids]


async def test_what_a_store_that_is_down_refuses_is_sent_when_it_is_back(
    twinbus_namespace: LocalNamespace, links: SenderLinks
) -> None:
    twinbus_namespace.create_queue("q")
    store = twinbus_namespace.store_of("q")
    twinbus_namespace.store_down(store)
    wait = Waits(lambda: None, lambda: twinbus_namespace.store_up(store))
    await delivery(links, wait).send(numbered(20))
    assert twinbus_namespace.message_count("q") == 20
    assert wait.seconds == [0.5, 1.0], "each wait is twice as long as the one before"


async def test_a_connection_that_is_lost_is_made_again(twinbus_namespace: LocalNamespace, links: SenderLinks) -> None:
    twinbus_namespace.create_queue("q")
    sending = delivery(links, Waits())
    await sending.send(numbered(5))
    await asyncio.to_thread(twinbus_namespace.restart)
    await sending.send(numbered(5))
    assert twinbus_namespace.message_count("q") == 10


async def test_a_lost_acknowledgement_makes_no_second_message_where_duplicates_are_detected(
    twinbus_namespace: LocalNamespace, links: SenderLinks
) -> None:
    twinbus_namespace.create_queue("q", requires_duplicate_detection=True)
    store = twinbus_namespace.store_of("q")
    twinbus_namespace.lose_acks(store)
    wait = Waits(lambda: twinbus_namespace.store_up(store))
    await delivery(links, wait).send(numbered(20))
    assert wait.seconds, "the first attempt was taken for a failure"
    assert twinbus_namespace.message_count("q") == 20


async def test_a_namespace_that_is_killed_under_a_send_has_each_message_once_where_duplicates_are_detected(
    twinbus_namespace: LocalNamespace, links: SenderLinks
) -> None:
    twinbus_namespace.create_queue("q", requires_duplicate_detection=True)
    killed = threading.Event()

    def start_again() -> None:
        killed.wait()
        twinbus_namespace.start()

    wait = Waits(start_again)
    sending = asyncio.create_task(delivery(links, wait).send(numbered(3_000, size=1_000)))
    while not twinbus_namespace.message_count("q") and not sending.done():
        await asyncio.sleep(0)
    await asyncio.to_thread(twinbus_namespace.kill)
    killed.set()
    await sending
    if not wait.seconds:
        twinbus_namespace.start()  # it was quicker than the kill
    assert twinbus_namespace.message_count("q") == 3_000


async def test_order_within_a_session_survives_a_store_that_comes_and_goes(
    twinbus_namespace: LocalNamespace, links: SenderLinks
) -> None:
    twinbus_namespace.create_queue("q", requires_session=True)
    store = twinbus_namespace.store_of("q")
    twinbus_namespace.store_down(store)
    wait = Waits(lambda: twinbus_namespace.store_up(store))
    messages = numbered(40, key="s", size=5000)
    await delivery(links, wait).send(messages)
    with twinbus_namespace.client() as client, client.get_queue_receiver("q", session_id="s") as receiver:
        received = receiver.receive_messages(max_message_count=40, max_wait_time=5)
    assert [message.message_id for message in received] == [str(number) for number in range(40)]


async def test_retries_end_with_one_line_that_names_entity_and_condition(
    twinbus_namespace: LocalNamespace, links: SenderLinks
) -> None:
    twinbus_namespace.create_queue("q")
    twinbus_namespace.store_down(twinbus_namespace.store_of("q"))
    with pytest.raises(WriteFailed, match=r"'q': 2 messages were refused in 3 attempts \(amqp:internal-error\)"):
        await delivery(links, Waits(), Patience(2, 20)).send(numbered(2))


async def test_no_retry_starts_when_the_time_would_be_over(
    twinbus_namespace: LocalNamespace, links: SenderLinks
) -> None:
    twinbus_namespace.create_queue("q")
    twinbus_namespace.store_down(twinbus_namespace.store_of("q"))
    wait = Waits()
    with pytest.raises(WriteFailed, match="in 1 attempt "):
        await delivery(links, wait, Patience(100, 0.4)).send(numbered(2))
    assert wait.seconds == []


async def test_an_entity_that_does_not_answer_is_given_up_in_time(
    twinbus_namespace: LocalNamespace, links: SenderLinks
) -> None:
    twinbus_namespace.create_queue("q")
    twinbus_namespace.store_slow(twinbus_namespace.store_of("q"), 500)
    with pytest.raises(WriteFailed, match=r"'q': .*\(com.microsoft:timeout\): no answer within 0.1 s"):
        await delivery(links, Waits(), Patience(0, 0.1)).send(numbered(2))


async def test_one_entity_that_refuses_does_not_keep_the_others_from_their_messages(
    twinbus_namespace: LocalNamespace, links: SenderLinks
) -> None:
    twinbus_namespace.create_queue("q")
    with pytest.raises(WriteFailed, match="'nowhere'"):
        await delivery(links, Waits()).send([*numbered(3, entity="nowhere"), *numbered(3)])
    assert twinbus_namespace.message_count("q") == 3


async def test_a_disabled_entity_is_not_tried_again(twinbus_namespace: LocalNamespace, links: SenderLinks) -> None:
    twinbus_namespace.create_queue("q", status="SendDisabled")
    wait = Waits()
    with pytest.raises(WriteFailed, match=r"'q': .* refused for good \(com.microsoft:entity-disabled\)"):
        await delivery(links, wait).send(numbered(1))
    assert wait.seconds == []


async def test_a_refusal_for_another_reason_leaves_batches_on(
    twinbus_namespace: LocalNamespace, links: SenderLinks
) -> None:
    twinbus_namespace.create_queue("q", requires_session=True)
    with pytest.raises(WriteFailed, match=r"'q': .*\(amqp:not-allowed\)"):
        await delivery(links, Waits()).send(numbered(2))
    await delivery(links, Waits()).send(numbered(2, key="s"))
    assert not links.unbatched, "it was not for the batch that it refused"


async def test_links_beyond_the_limit_are_closed(twinbus_namespace: LocalNamespace, links: SenderLinks) -> None:
    twinbus_namespace.create_queue("q")
    sender = await links.sender("q")
    links._senders.update({f"other{number}": sender for number in range(SENDER_COUNT_MAX)})
    await links.trim(SENDER_COUNT_MAX)
    assert len(links._senders) == SENDER_COUNT_MAX
    assert sender.fault is not None


def test_a_process_keeps_its_connections_up_to_a_limit(twinbus_namespace: LocalNamespace) -> None:
    kept = links_of_process(connection(twinbus_namespace))
    assert links_of_process(connection(twinbus_namespace)) is kept
    for number in range(CONNECTION_COUNT_MAX):
        links_of_process(connection(twinbus_namespace, timeout_s=6 + number))
    assert links_of_process(connection(twinbus_namespace)) is not kept


def test_a_connection_string_that_changed_gets_a_connection_of_its_own(
    twinbus_namespace: LocalNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ConnectionOptions.from_options({"connectionStringEnv": "BUS"})
    monkeypatch.setenv("BUS", twinbus_namespace.connection_string)
    kept = links_of_process(options)
    monkeypatch.setenv("BUS", twinbus_namespace.connection_string.replace("SharedAccessKey=", "SharedAccessKey=new"))
    assert links_of_process(options) is not kept
