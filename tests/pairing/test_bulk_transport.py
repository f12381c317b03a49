"""What a pump holds of a backlog queue over the bulk client."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.interop.running_server import RunningServer
from twinbus.client.message import encode_message
from twinbus.pairing.syphon.bulk_transport import BulkTransport, syphon_links
from twinbus.pairing.syphon.pump import BATCH_MAX
from twinbus.pairing.syphon.transport import Complete, Receive, Taken, Wait

QUEUE = "contoso/x-servicebus-transfer/0"
SIZE = 1024 * 1024
SIZE_MAX = 4 * SIZE
COUNT = 40
WAIT_S = 5.0


class Large:
    """A backlog queue with large messages, and what takes them for a pump."""

    def __init__(self, server: RunningServer, transport: BulkTransport) -> None:
        self._queue = server.server.entities.queue(QUEUE)
        self.transport = transport

    async def take(self) -> Sequence[Taken]:
        answer = await self.transport.perform(Receive(BATCH_MAX, WAIT_S))
        assert isinstance(answer, Sequence)
        taken = [each for each in answer if isinstance(each, Taken)]
        assert taken
        return taken

    @property
    def held_count(self) -> int:
        return sum(len(fragment.locks) for fragment in self._queue.main.fragments)


@asynccontextmanager
async def large_messages(folder: Path) -> AsyncIterator[Large]:
    server = RunningServer(folder, store_count=1)
    server.create_queue(QUEUE, max_message_size_kb=1_100)
    links = syphon_links(server.connection_string)
    try:
        sender = await links.sender(QUEUE)
        for _ in range(COUNT):
            assert await sender.send([encode_message(bytes(SIZE))]) == [None]
        transport = BulkTransport(QUEUE, links, links, lambda: False, size_max=SIZE_MAX)
        yield Large(server, transport)
        await transport.close()
    finally:
        await links.drop()
        server.stop()


async def test_a_pump_holds_fewer_messages_if_they_are_large(tmp_path: Path) -> None:
    """Beside those that are on their way when it learns that they are."""
    async with large_messages(tmp_path) as large:
        numbers: list[int] = []
        while len(numbers) < COUNT:
            taken = await large.take()
            if not numbers:
                await large.transport.perform(Wait(500))
            assert large.held_count < COUNT // 2
            await large.transport.perform(Complete(taken))
            numbers += [each.sequence_number for each in taken]
    assert numbers == sorted(numbers)


async def test_large_messages_that_a_pump_leaves_do_not_keep_others_from_coming(tmp_path: Path) -> None:
    """Those whose destination is down are not settled: their locks end."""
    async with large_messages(tmp_path) as large:
        numbers: list[int] = []
        while len(numbers) < COUNT:
            numbers += [each.sequence_number for each in await large.take()]
    assert len(set(numbers)) == COUNT
