"""When requests to a store's process are sent: at once, with others of the same turn of the loop, or with whatever comes next."""

import asyncio
from collections.abc import Callable
from typing import cast

from twinbus.server.stores.line_frames import COMMIT, HEADER, QUERY, SWITCH, FrameSpace
from twinbus.server.stores.process import UNAWAITED_WAIT_S, SocketLine
from twinbus.server.stores.served_store import Done, ServedStore
from twinbus.store.changes import Removed, fragment_key
from twinbus.store.reads import ANY_STATE, Scan

KEY = fragment_key(7, 0)


class Timer:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class HandLoop:
    """An event loop whose turns and timers are those of the test."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.timers: dict[float, Timer] = {}

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.timers[seconds] = Timer(call)
        return self.timers[seconds]

    def turn(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def wait(self, seconds: float) -> None:
        timer = self.timers.pop(seconds)
        if not timer.is_cancelled:
            timer.call()


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._written.append(data)

    def kinds(self) -> list[list[int]]:
        """Of the frames in each write since the last call."""
        written, self._written = self._written, []
        found = []
        for data in written:
            space = FrameSpace(len(data) + HEADER.size)
            space.free()[: len(data)] = data
            found.append([kind for kind, _ in space.take(len(data))])
        return found


class World:
    def __init__(self) -> None:
        self.loop, self.wire = HandLoop(), Wire()
        self.store = ServedStore(0, lambda *_: None, lambda _: None)
        line = SocketLine(cast(asyncio.AbstractEventLoop, self.loop), self.store, lambda: None)
        line.connection_made(cast(asyncio.Transport, self.wire))
        assert self.wire.kinds() == [[SWITCH]]

    def remove(self, *, is_awaited: bool) -> None:
        self.store.commit([Removed(KEY, [1])], lambda _: None, is_awaited=is_awaited)

    def scan(self) -> None:
        self.store.query(Scan(KEY, 0, 1, 1, ANY_STATE), lambda _: None)


def test_an_idle_store_is_asked_at_once_and_a_busy_one_once_in_a_turn() -> None:
    world = World()
    world.remove(is_awaited=True)
    assert world.wire.kinds() == [[COMMIT]]
    world.remove(is_awaited=True)
    world.scan()
    assert world.wire.kinds() == []
    world.loop.turn()
    assert world.wire.kinds() == [[COMMIT, QUERY]]


def test_a_commit_that_nobody_waits_for_goes_with_the_next_request_before_it() -> None:
    world = World()
    world.remove(is_awaited=False)
    world.remove(is_awaited=False)
    world.loop.turn()
    assert world.wire.kinds() == []
    world.scan()  # of a store that has nothing to do, whatever waits here
    assert world.wire.kinds() == [[COMMIT, COMMIT, QUERY]]
    world.loop.wait(UNAWAITED_WAIT_S)
    assert world.wire.kinds() == []


def test_a_commit_that_nobody_waits_for_goes_alone_after_a_while() -> None:
    world = World()
    world.remove(is_awaited=False)
    world.loop.wait(UNAWAITED_WAIT_S)
    assert world.wire.kinds() == [[COMMIT]]
    world.store.told([Done(1)])
    world.remove(is_awaited=False)
    world.loop.wait(UNAWAITED_WAIT_S)
    assert world.wire.kinds() == [[COMMIT]]


def test_a_store_is_stopped_behind_what_nobody_waits_for() -> None:
    world = World()
    world.remove(is_awaited=False)
    world.store.stop()
    assert world.wire.kinds() == [[COMMIT, SWITCH]]
