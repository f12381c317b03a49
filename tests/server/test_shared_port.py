import asyncio
from collections.abc import AsyncIterator

import pytest

from twinbus.server.shared_port import SharedPort


class Speaker(asyncio.Protocol):
    """Answers everything it reads with its name in front."""

    def __init__(self, name: bytes) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(self._name + b"<" + data + b">")


@pytest.fixture
async def port() -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SharedPort(lambda: Speaker(b"amqp"), lambda: Speaker(b"http"), loop), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1]
    server.close()


async def answer(port: int, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    text = await reader.readuntil(b">")
    writer.close()
    return text


async def test_a_connection_that_starts_with_amqp_is_amqp(port: int) -> None:
    assert await answer(port, b"AMQP\x03\x01\x00\x00") == b"amqp<AMQP\x03\x01\x00\x00>"


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1", b"ACL /", b"AMQ/"])
async def test_any_other_start_is_http(port: int, start: bytes) -> None:
    assert await answer(port, start) == b"http<" + start + b">"


async def test_a_start_in_pieces_is_put_together(port: int) -> None:
    assert await answer(port, b"A", b"MQ", b"P\x00") == b"amqp<AMQP\x00>"


async def test_what_comes_after_the_start_goes_straight_to_the_chosen_protocol(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"AMQP")
    assert await reader.readuntil(b">") == b"amqp<AMQP>"
    writer.write(b"GET")
    assert await reader.readuntil(b">") == b"amqp<GET>"
    writer.close()
