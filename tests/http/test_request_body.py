"""Bodies of requests: how much of them is kept, of one request and of all together."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from starlette.requests import Request
from starlette.types import Message

from twinbus.amqp.reassembly import SharedReassembly
from twinbus.errors import ArgumentError, ServerBusy
from twinbus.http import request_body
from twinbus.http.request_body import Bodies
from twinbus.model.message_limits import MESSAGE_SIZE_MAX

SIZE_MAX = 1_000_000


class Sending:
    """A request, and what its client sends of the body."""

    def __init__(self, bodies: Bodies) -> None:
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        request = Request({"type": "http", "method": "POST", "headers": []}, self._sent.get)
        self.reading: AbstractAsyncContextManager[bytes] = bodies.read(request, SIZE_MAX)
        self.task = asyncio.ensure_future(self.reading.__aenter__())

    async def send(self, size: int, *, is_last: bool = False) -> None:
        self._sent.put_nowait({"type": "http.request", "body": bytes(size), "more_body": not is_last})
        while not self._sent.empty():
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def answered(self) -> None:
        await self.reading.__aexit__(None, None, None)


async def test_of_all_bodies_that_are_incomplete_the_largest_is_dropped_when_they_are_too_much_together() -> None:
    shared = SharedReassembly(100)
    bodies = Bodies(shared)
    largest, small, last = Sending(bodies), Sending(bodies), Sending(bodies)
    await largest.send(60)
    await small.send(30)
    assert (shared.size, shared.dropped_count) == (90, 0)
    await last.send(20)
    assert (shared.size, shared.dropped_count) == (50, 1)
    await largest.send(1)
    with pytest.raises(ServerBusy):
        await largest.task
    for sending, size in ((small, 30), (last, 20)):
        await sending.send(0, is_last=True)
        assert len(await sending.task) == size
    assert shared.size == 0


async def test_a_body_that_is_too_large_gives_back_what_it_held() -> None:
    shared = SharedReassembly()
    sending = Sending(Bodies(shared))
    await sending.send(SIZE_MAX)
    assert shared.size == SIZE_MAX
    await sending.send(1)
    with pytest.raises(ArgumentError):
        await sending.task
    assert shared.size == 0


async def test_a_request_that_is_given_up_gives_back_what_it_held() -> None:
    shared = SharedReassembly()
    sending = Sending(Bodies(shared))
    await sending.send(10)
    assert shared.size == 10
    sending.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending.task
    assert shared.size == 0


async def test_a_large_body_is_refused_while_those_of_unanswered_requests_are_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies, large = Bodies(), MESSAGE_SIZE_MAX + 1
    monkeypatch.setattr(request_body, "COMPLETE_SIZE_MAX", 2 * large - 1)

    async def complete(size: int) -> Sending:
        sending = Sending(bodies)
        await sending.send(size, is_last=True)
        await sending.task
        return sending

    first = await complete(large)
    with pytest.raises(ServerBusy):
        await complete(large)
    usual = await complete(MESSAGE_SIZE_MAX)
    await usual.answered()
    await first.answered()
    alone = await complete(3 * large)
    await alone.answered()
