"""The open connections of a namespace: their limit, and how they are ended together."""

from dataclasses import dataclass, field

import pytest

from twinbus.clock import Millis
from twinbus.errors import QuotaExceeded
from twinbus.gateway.connections import Connections


@dataclass(eq=False)
class Stand:
    """A connection that notes what is done to it."""

    unread_size: int = 0
    links: int = 0
    done: list[str] = field(default_factory=list)
    breaks: bool = False

    def tick(self, now: Millis) -> None: ...

    def clock_stepped(self, by: Millis) -> None: ...

    def close(self) -> None:
        self.done.append("closed")
        if self.breaks:
            raise RuntimeError("a connection that breaks when it is told something")

    def cut(self) -> None:
        self.done.append("cut")

    def force_detach(self, path: str, now: Millis) -> int:
        self.done.append(f"{path} at {now}")
        return self.links


class Elsewhere:
    def __init__(self, count: int) -> None:
        self.connections_elsewhere = count
        self.told: list[int] = []

    def connections_changed(self, own_count: int) -> None:
        self.told.append(own_count)


def test_as_many_connections_as_the_limit_are_taken_and_the_next_is_refused_and_counted() -> None:
    connections = Connections(2)
    clients = [Stand(), Stand()]
    assert [connections.add(each) for each in clients] == [None, None]
    assert connections.refused_count == 0
    for each in clients:
        connections.proved(each)
    refusal = connections.add(Stand())
    assert isinstance(refusal, QuotaExceeded)
    assert "2 connections" in str(refusal)
    assert connections.refused_count == 1
    assert len(connections) == len(list(connections)) == 3, "one that is refused is open until it has been told"
    assert isinstance(connections.add(Stand()), QuotaExceeded)
    assert len(connections) == 4, "its end would have made no room"


def test_the_stranger_that_has_waited_longest_makes_room_for_a_newcomer() -> None:
    connections = Connections(3)
    known, first, second, newcomer = (Stand() for _ in range(4))
    for each in (known, first, second):
        connections.add(each)
    connections.proved(known)
    assert connections.add(newcomer) is None
    assert [each.done for each in (known, first, second, newcomer)] == [[], ["cut"], [], []]
    assert (len(connections), connections.refused_count) == (3, 1)
    connections.discard(first)
    connections.proved(second)
    connections.proved(newcomer)
    assert isinstance(connections.add(Stand()), QuotaExceeded)


def test_a_connection_that_ended_makes_room_for_another() -> None:
    connections = Connections(1)
    first = Stand()
    connections.add(first)
    connections.discard(first)
    connections.discard(first)
    assert len(connections) == 0
    assert connections.add(Stand()) is None


def test_connections_to_other_nodes_count_and_other_nodes_learn_of_ours() -> None:
    others = Elsewhere(1)
    connections = Connections(2, others)
    first = Stand()
    assert connections.add(first) is None
    connections.proved(first)
    assert isinstance(connections.add(Stand()), QuotaExceeded)
    connections.discard(first)
    assert others.told == [1, 0]


def test_strangers_at_one_node_do_not_fill_another() -> None:
    """Nobody there could make them give way."""
    others = Elsewhere(0)
    crowded = Connections(2, others)
    for _ in range(3):
        crowded.add(Stand())
    quiet = Connections(2, Elsewhere(max(others.told, default=0)))
    waiting, newcomer = Stand(), Stand()
    assert [quiet.add(each) for each in (waiting, newcomer)] == [None, None]
    assert waiting.done == [], "it may be about to put its token"


def test_all_connections_are_closed_even_if_one_of_them_breaks(caplog: pytest.LogCaptureFixture) -> None:
    connections = Connections(9)
    stands = [Stand(breaks=True), Stand(breaks=True), Stand()]
    for each in stands:
        connections.add(each)
    connections.close_all()
    caplog.clear()
    assert [each.done for each in stands] == [["closed"]] * 3


def test_all_connections_are_cut_and_counted() -> None:
    connections = Connections(9)
    stands = [Stand(), Stand()]
    for each in stands:
        connections.add(each)
    assert connections.cut_all() == 2
    assert [each.done for each in stands] == [["cut"]] * 2


@pytest.mark.parametrize(
    ("size_max", "cut"),
    [(60, []), (59, [30]), (30, [30]), (29, [30, 20]), (9, [30, 20, 10]), (0, [30, 20, 10])],
)
def test_the_clients_that_leave_most_unread_are_cut_until_the_rest_is_within_the_limit(
    size_max: int, cut: list[int]
) -> None:
    connections = Connections(9)
    stands = [Stand(unread_size=size) for size in (0, 20, 30, 10)]
    for each in stands:
        connections.add(each)
    assert connections.cut_unread(size_max) == len(cut)
    assert sorted((each.unread_size for each in stands if each.done == ["cut"]), reverse=True) == cut


def test_links_to_an_entity_are_detached_on_every_connection_and_counted() -> None:
    connections = Connections(9)
    stands = [Stand(links=1), Stand(links=2), Stand()]
    for each in stands:
        connections.add(each)
    assert connections.force_detach("orders", 7) == 3
    assert [each.done for each in stands] == [["orders at 7"]] * 3
