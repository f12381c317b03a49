"""The store port over a real thread. The loop is a queue that the test drains itself, so nothing sleeps."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from twinbus.errors import StoreUnavailable
from twinbus.server.broker_thread import StoreCondition, StoreThread
from twinbus.store.changes import Change, FragmentCreated

WAIT_S = 5.0


class Recorder:
    """A messaging store that keeps nothing but the commits; it can be told to hold or to fail."""

    def __init__(self) -> None:
        self.commits: list[list[Change]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self.opened = 0
        self.closed = 0

    def open(self) -> Any:
        if self.fails:
            raise StoreUnavailable("the disk is gone")
        self.opened += 1
        return self

    def commit(self, changes: Sequence[Change]) -> None:
        assert self.gate.wait(WAIT_S)
        if self.fails:
            raise StoreUnavailable("the disk is gone")
        self.commits.append(list(changes))

    def summaries(self) -> list[int]:
        return [len(commit) for commit in self.commits]

    def close(self) -> None:
        self.closed += 1


class Loop:
    """Stands for the event loop: what threads hand over is run when the test says so."""

    def __init__(self) -> None:
        self.calls: queue.Queue[tuple[Callable[..., None], tuple[object, ...]]] = queue.Queue()

    def call(self, function: Callable[..., None], *arguments: object) -> None:
        self.calls.put((function, arguments))

    def step(self) -> None:
        function, arguments = self.calls.get(timeout=WAIT_S)
        function(*arguments)


class World:
    def __init__(self) -> None:
        self.loop, self.store, self.seen = Loop(), Recorder(), list[Any]()
        self.port = StoreThread(
            3,
            self.store.open,
            self.loop.call,
            on_lost=lambda error: self.seen.append(f"lost: {error}"),
            on_returned=lambda: self.seen.append("returned"),
        )

    def commit(self, number: int) -> None:
        self.port.commit([FragmentCreated(number)], lambda result: self.seen.append((number, result)))

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.loop.step()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.port.start()
    world.step()
    assert world.seen.pop() == "returned"
    yield world
    world.store.gate.set()
    world.port.stop()
    assert world.port.join(WAIT_S)


def test_commits_that_wait_while_another_is_written_become_one(world: World) -> None:
    world.store.gate.clear()
    world.commit(1)
    for number in range(2, 12):
        world.commit(number)
    world.store.gate.set()
    while len(world.seen) < 11:
        world.step()
    assert [number for number, _ in world.seen] == list(range(1, 12))
    assert len(world.store.commits) <= 2
    assert world.port.condition is StoreCondition.UP


def test_a_query_sees_every_commit_asked_for_before_it_and_none_after(world: World) -> None:
    world.store.gate.clear()
    world.commit(1)
    world.port.query(lambda store: sum(store.summaries()), world.seen.append)
    world.commit(2)
    world.store.gate.set()
    while len(world.seen) < 3:
        world.step()
    assert world.seen == [(1, None), 1, (2, None)]


def test_a_store_that_fails_is_closed_and_everything_waiting_fails(world: World) -> None:
    world.store.fails = True
    world.commit(1)
    while len(world.seen) < 2:
        world.step()
    assert world.seen[0] == "lost: the disk is gone"
    assert isinstance(world.seen[1][1], StoreUnavailable)
    assert world.store.closed == 1
    assert world.port.condition is StoreCondition.LOST


def test_a_lost_store_is_opened_anew_by_itself(world: World) -> None:
    world.store.fails = True
    world.commit(1)
    world.step(2)
    world.store.fails = False
    world.port.up()  # ends the pause before the next try
    world.step()
    assert world.seen[-1] == "returned"
    assert world.store.opened == 2


def test_a_lost_store_takes_nothing_before_its_broker_knows_of_the_loss(world: World) -> None:
    world.store.fails = True
    world.commit(1)
    lost = world.loop.calls.get(timeout=WAIT_S)  # the loop is busy: the news waits
    world.store.fails = False
    world.port.up()
    world.commit(2)  # meant for the store as it was before the loss
    while not world.seen or world.seen[-1][0] != 2:
        world.step()
    assert isinstance(world.seen[-1][1], StoreUnavailable)
    assert world.store.opened == 1
    lost[0](*lost[1])
    world.step()
    assert world.seen[-1] == "returned"


def test_a_store_switched_off_refuses_until_it_is_switched_on(world: World) -> None:
    world.port.down()
    world.step()
    assert world.seen == ["lost: messaging store 3 is switched off"]
    assert world.port.condition is StoreCondition.DOWN
    world.commit(1)
    world.step()
    assert isinstance(world.seen[-1][1], StoreUnavailable)
    world.port.up()
    world.step()
    world.commit(2)
    world.step()
    assert world.seen[-2:] == ["returned", (2, None)]


def test_a_query_that_breaks_costs_the_store_and_not_the_thread(world: World) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    world.port.query(broken, world.seen.append)
    while len(world.seen) < 2:
        world.step()
    assert "ZeroDivisionError" in world.seen[0]
    world.port.up()
    world.step()
    world.commit(1)
    world.step()
    assert world.seen[-1] == (1, None)


def test_stopping_finishes_what_waits_and_closes_the_store(world: World) -> None:
    world.store.gate.clear()
    for number in range(1, 4):
        world.commit(number)
    world.port.stop()
    world.store.gate.set()
    assert world.port.join(WAIT_S)
    while len(world.seen) < 3:
        world.step()
    assert [result for _, result in world.seen] == [None, None, None]
    assert world.store.closed == 1
