"""Connections that wait at a port: how many are accepted in a turn of the loop."""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from twinbus.server.listening.accepting import Acceptor
from twinbus.server.listening.ports import Door
from twinbus.server.listening.sockets import bind, port_of

AT_ONCE_MAX = 16
WAIT_S = 60.0


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with bind("127.0.0.1", 0) as sock:
        yield sock


async def test_many_connections_are_accepted_in_a_turn_and_no_more_than_others_can_bear(
    listening: socket.socket,
) -> None:
    count = 3 * AT_ONCE_MAX + 1
    turn, accepted, clients = 0, Counter[int](), list[socket.socket]()
    all_accepted = asyncio.Event()

    def take(connection: socket.socket, door: Door) -> None:
        assert door is Door.HTTP
        connection.close()
        accepted[turn] += 1
        if accepted.total() == count:
            all_accepted.set()

    acceptor = Acceptor([(listening, Door.HTTP)], take, AT_ONCE_MAX)
    acceptor.open()
    for _ in range(count):
        # Without a turn in between: all of them wait then.
        clients.append(socket.create_connection(("127.0.0.1", port_of(listening))))
    async with asyncio.timeout(WAIT_S):
        while not all_accepted.is_set():
            await asyncio.sleep(0)
            turn += 1
    acceptor.close()
    assert sorted(accepted.values(), reverse=True) == [AT_ONCE_MAX] * 3 + [1]
    for client in clients:
        client.close()


async def test_nothing_is_accepted_after_the_end(listening: socket.socket) -> None:
    accepted: list[Door] = []
    acceptor = Acceptor([(listening, Door.SHARED)], lambda _, door: accepted.append(door), AT_ONCE_MAX)
    acceptor.open()
    acceptor.close()
    with socket.create_connection(("127.0.0.1", port_of(listening))):
        for _ in range(3):
            await asyncio.sleep(0)
    assert accepted == []
