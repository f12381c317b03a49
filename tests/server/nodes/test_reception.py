"""Which node a connection goes to: over real sockets, with nodes that only count."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from twinbus.server.listening.ports import Door
from twinbus.server.listening.sockets import bind, port_of
from twinbus.server.nodes.reception import Reception
from twinbus.server.nodes.shared_counts import AMQP, BEAT, OPEN, SharedCounts, make_shared_memory

NODES = 4


@pytest.fixture
def counts() -> Iterator[SharedCounts]:
    memory = make_shared_memory(NODES)
    counts = SharedCounts(memory, NODES)
    yield counts
    counts.close()
    os.close(memory)


class Desks:
    """The nodes' ends of the lines."""

    def __init__(self, reception: Reception) -> None:
        self.reception = reception
        self.ends: dict[int, socket.socket] = {}
        for node in range(NODES):
            ours, theirs = socket.socketpair()
            reception.add(node, ours)
            self.ends[node] = theirs

    def hand_over(self, count: int) -> Counter[int | None]:
        found: Counter[int | None] = Counter()
        for _ in range(count):
            with socket.socket() as connection:
                found[self.reception.hand_over(connection, Door.SHARED)] += 1
        return found


def test_connections_are_spread_evenly(counts: SharedCounts) -> None:
    assert set(Desks(Reception([], counts)).hand_over(40).values()) == {10}


def test_a_node_that_has_just_been_started_gets_the_next_ones(counts: SharedCounts) -> None:
    desks = Desks(Reception([], counts))
    for node in range(1, NODES):
        counts.put(node, OPEN, 10)
        counts.put(node, BEAT, 1)
    assert desks.hand_over(10) == {0: 10}
    counts.put(0, OPEN, 10)
    counts.put(0, BEAT, 1)
    assert set(desks.hand_over(8).values()) == {2}


def test_a_node_that_has_ended_gets_none_and_who_was_on_the_way_to_it_is_closed(counts: SharedCounts) -> None:
    desks = Desks(Reception([], counts))
    ours, client = socket.socketpair()
    with ours:
        node = desks.reception.hand_over(ours, Door.SHARED)
    assert node is not None
    desks.ends[node].close()
    assert client.recv(1) == b""
    assert node not in desks.hand_over(30)


def test_without_any_node_a_connection_is_closed_and_not_kept(counts: SharedCounts) -> None:
    reception = Reception([], counts)
    with socket.socket() as connection:
        assert reception.hand_over(connection, Door.SHARED) is None


async def test_a_connection_arrives_at_a_node_with_the_door_it_came_in_by(counts: SharedCounts) -> None:
    listening = bind("127.0.0.1", 0)
    reception = Reception([(listening, Door.TLS)], counts)
    desks = Desks(reception)
    reception.open()
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listening))
    data, (descriptor,), _, _ = await asyncio.to_thread(socket.recv_fds, desks.ends[0], 1, 1)
    with socket.socket(fileno=descriptor) as accepted:
        accepted.sendall(b"hello")
        assert (data[0], await reader.readexactly(5)) == (Door.TLS, b"hello")
    writer.close()
    reception.close()
    listening.close()


def test_the_connections_of_other_nodes_count(counts: SharedCounts) -> None:
    counts.put(0, AMQP, 3)
    counts.put(1, AMQP, 4)
    assert [counts.sum_of_others(node, AMQP) for node in range(3)] == [4, 3, 7]
    counts.clear(1)
    assert counts.sum_of_others(0, AMQP) == counts.get(1, AMQP) == 0
