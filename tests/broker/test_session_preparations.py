"""All who want the list of one fragment's message sessions wait for one step of it at a time."""

from collections.abc import Callable
from typing import Any

from twinbus.broker.session_preparations import SessionPreparations
from twinbus.clock import Millis
from twinbus.errors import FragmentUnavailable
from twinbus.store.changes import fragment_key
from twinbus.store.reads import PrepareSessions

HERE, OTHER = fragment_key(1, 0), fragment_key(2, 0)


class World:
    def __init__(self) -> None:
        self.asked: list[tuple[PrepareSessions, Callable[[Any, Millis], None]]] = []
        self.done: list[tuple[str, FragmentUnavailable | None, Millis]] = []
        self.lists = SessionPreparations(lambda read, done: self.asked.append((read, done)))

    def want(self, name: str, fragment: int = HERE) -> None:
        self.lists.wait_for(fragment, lambda error, now: self.done.append((name, error, now)))

    def answer(self, answer: object, now: Millis = 5) -> None:
        _, done = self.asked.pop(0)
        done(answer, now)


def test_a_step_is_asked_for_once_however_many_wait() -> None:
    world = World()
    world.want("a")
    world.want("b")
    world.want("other", OTHER)
    assert [read for read, _ in world.asked] == [PrepareSessions(HERE), PrepareSessions(OTHER)]
    world.answer(False)
    world.want("c")
    world.answer(True)
    assert world.done == [("other", None, 5)]
    assert [read for read, _ in world.asked] == [PrepareSessions(HERE)]
    world.answer(True, 7)
    assert world.done[1:] == [("a", None, 7), ("b", None, 7), ("c", None, 7)]
    world.want("d")
    assert len(world.asked) == 1


def test_those_who_wait_for_a_store_that_is_lost_are_told() -> None:
    world = World()
    world.want("a")
    world.want("b")
    error = FragmentUnavailable("gone")
    world.answer(error)
    assert world.done == [("a", error, 5), ("b", error, 5)]
    world.want("c")
    world.answer(True)
    assert world.done[2:] == [("c", None, 5)]
