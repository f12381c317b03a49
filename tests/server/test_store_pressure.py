"""Who waits when a store is behind, and who is let in again."""

from collections.abc import Callable
from functools import partial

import pytest

from twinbus.server.stores.pressure import (
    ALLOWED_BYTES_MAX,
    ALLOWED_BYTES_MIN,
    ALLOWED_S,
    EXPECTED_S,
    LIGHT_FOR_S,
    MEASURED_S,
    PART_BYTES,
    READ_BYTES,
    Pace,
    StorePressure,
)
from twinbus.server.stores.served_store import Done, Pressed, ServedStore
from twinbus.store.changes import Change


class ByteLine:
    """A line whose commits have a size that the test chooses."""

    def __init__(self) -> None:
        self.size = 0

    def commit(self, changes: list[Change], /, *, is_awaited: bool = True) -> int:
        return self.size

    def query(self, read: object, /) -> None: ...

    def switch(self, name: str, /, *arguments: float) -> None: ...


class World:
    def __init__(self, store_count: int = 1) -> None:
        self.now = 0.0
        self.woken: list[str] = []
        self.lines = [ByteLine() for _ in range(store_count)]
        self.stores = [ServedStore(index, lambda *_: None, lambda _: None) for index in range(store_count)]
        for store, line in zip(self.stores, self.lines, strict=True):
            store.connect(line, lambda *_: None)
        self.later: list[Callable[[], None]] = []
        self.pressure = StorePressure(self.stores, lambda: self.now, lambda _, call: self.later.append(call))
        self.wakes = [partial(self.woken.append, name) for name in "abcdefgh"]

    def commit(self, size: int, index: int = 0) -> None:
        self.lines[index].size = size
        self.stores[index].commit([], lambda _: None)

    def answer(self, count: int = 1, index: int = 0, after: float = 0.0) -> None:
        self.now += after
        self.stores[index].told([Done(count)])

    @property
    def is_high(self) -> bool:
        """For those who send much, while others send little."""
        return self.must_wait(lambda: None)

    def must_wait(self, wake: Callable[[], None]) -> bool:
        """Somebody who sends much, while others send little."""
        self.pressure.light_sent()
        is_held_back = self.pressure.must_wait(0, True, wake)
        self.pressure.heard_of(wake)
        return is_held_back

    def hold_back(self, *wakes: Callable[[], None]) -> None:
        assert all(self.must_wait(wake) for wake in wakes)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        later, self.later = self.later, []
        for call in later:
            call()


@pytest.fixture
def world() -> World:
    return World()


def test_a_store_is_behind_with_more_than_it_writes_in_a_moment(world: World) -> None:
    world.commit(ALLOWED_BYTES_MAX)
    assert not world.is_high
    world.commit(1)
    assert world.is_high
    world.answer()
    assert not world.is_high


def test_a_slow_store_may_have_less_waiting(world: World) -> None:
    for _ in range(6):
        world.commit(1 << 20)
    for _ in range(3):
        world.answer(after=MEASURED_S)
    # A megabyte in 50 ms.
    assert world.pressure._paces[0].allowed_bytes == max(ALLOWED_BYTES_MIN, int((1 << 20) / MEASURED_S * ALLOWED_S))
    assert world.is_high


def test_who_was_held_back_first_is_woken_first_and_as_many_as_there_is_room_for(world: World) -> None:
    world.commit(ALLOWED_BYTES_MAX - READ_BYTES)
    world.commit(READ_BYTES + 1)
    world.commit(1)
    world.hold_back(*world.wakes[:3], world.wakes[0])
    world.stores[0].told([])
    assert world.woken == []
    # One is answered: room for a little more than all but one read.
    world.commit(ALLOWED_BYTES_MAX - 2 * READ_BYTES)
    world.answer()
    assert world.woken == ["a"]
    world.answer(2)
    assert world.woken == ["a", "b", "c"]


def test_there_is_room_for_those_who_were_let_in_until_they_have_sent_something(world: World) -> None:
    world.commit(ALLOWED_BYTES_MAX - READ_BYTES + 1)
    world.pressure.light_sent()
    first, second, third = world.wakes[:3]
    assert not world.pressure.must_wait(0, True, first)
    assert not world.pressure.must_wait(0, True, first), "it has not sent anything since"
    assert world.pressure.must_wait(0, True, second), "an answer for both of them must not let in both"
    world.pressure.heard_of(first)
    assert world.pressure.must_wait(0, True, first), "it is not first in the line any more"
    assert world.pressure.must_wait(0, True, third)
    world.commit(0)
    world.answer(2)
    assert world.woken == ["b", "a", "c"]


def test_who_was_let_in_and_has_nothing_to_send_keeps_nobody_out(world: World) -> None:
    world.commit(ALLOWED_BYTES_MAX - READ_BYTES + 1)
    world.pressure.light_sent()
    assert not world.pressure.must_wait(0, True, world.wakes[0])
    world.pass_time(EXPECTED_S / 2)
    assert world.pressure.must_wait(0, True, world.wakes[1])
    assert world.woken == []
    world.pass_time(EXPECTED_S)
    assert world.woken == ["b"]
    world.pass_time(EXPECTED_S)
    assert world.later == []


def test_a_store_with_nothing_to_do_lets_everybody_in(world: World) -> None:
    world.commit(2 * ALLOWED_BYTES_MAX)
    world.hold_back(*world.wakes)
    world.answer(after=10.0)
    assert world.woken == list("abcdefgh")


def test_a_store_that_falls_behind_holds_back_whatever_waits_until_it_does_so_no_longer(world: World) -> None:
    world.stores[0].told([Pressed(True)])
    world.hold_back(*world.wakes[:2])
    world.commit(1)
    world.answer()
    assert world.woken == []
    world.stores[0].told([Pressed(False)])
    assert world.woken == ["a", "b"]


def test_nobody_is_let_in_while_another_store_is_behind() -> None:
    world = World(2)
    world.commit(2 * ALLOWED_BYTES_MAX, index=1)
    world.hold_back(world.wakes[0])
    world.commit(1)
    world.answer()
    assert world.woken == []
    world.stores[1].disconnect("gone")
    assert world.woken == ["a"]


def test_a_pause_says_nothing_about_the_pace_of_a_store() -> None:
    pace = Pace()
    pace.wrote(1_000, 100.0, is_idle=True)
    assert pace.allowed_bytes == ALLOWED_BYTES_MAX
    pace.wrote(100, 100.1, is_idle=False)
    assert pace.allowed_bytes == ALLOWED_BYTES_MIN
    pace.wrote(1 << 30, 101.0, is_idle=True)
    assert pace.allowed_bytes == ALLOWED_BYTES_MAX


def test_who_sends_little_never_waits(world: World) -> None:
    world.commit(2 * ALLOWED_BYTES_MAX)
    world.stores[0].told([Pressed(True)])
    assert world.is_high
    assert not world.pressure.must_wait(PART_BYTES, False, world.wakes[0])
    assert world.pressure.must_wait(PART_BYTES + 1, False, world.wakes[0])


def test_those_who_send_much_have_a_store_for_themselves_while_nobody_sends_little(world: World) -> None:
    world.commit(ALLOWED_BYTES_MAX)
    world.commit(1)
    assert world.is_high
    world.now += LIGHT_FOR_S
    wake = world.wakes[0]
    assert not world.pressure.must_wait(0, True, wake)
    assert world.pressure.must_wait(PART_BYTES + 1, True, wake)
    world.answer()
    world.stores[0].told([Pressed(True)])
    assert not world.pressure.must_wait(PART_BYTES + 1, True, wake)
