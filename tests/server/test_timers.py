import asyncio

import pytest

from twinbus.clock import Clock, Millis, NamespaceClock, SystemClock
from twinbus.server.timers import Beat
from twinbus.testing.sim_clock import SimClock

WAIT_S = 5.0
HOUR = 3_600_000


class Broken:
    def tick(self, now: Millis) -> None:
        raise ZeroDivisionError

    def clock_stepped(self, by: Millis) -> None:
        raise ZeroDivisionError


class Good:
    def __init__(self) -> None:
        self.is_told = asyncio.Event()
        self.told: list[str] = []
        self.now: Millis = 0

    def tick(self, now: Millis) -> None:
        self.now = now
        self.told.append("tick")
        self.is_told.set()

    def clock_stepped(self, by: Millis) -> None:
        self.told.append(f"stepped by {by}")


class Wall:
    """A wall clock that somebody sets by an hour, once the namespace has started."""

    def __init__(self, by: Millis) -> None:
        self._readings = iter([10 * HOUR])
        self._later = 10 * HOUR + by

    def __call__(self) -> int:
        return next(self._readings, self._later) * 1_000_000


async def beats(clock: Clock, broker: Good, connection: Good) -> None:
    beat = Beat(
        asyncio.get_running_loop(),
        clock,
        [Broken(), broker],
        lambda: [Broken(), connection],
        [Broken(), broker],
    )
    beat.start()
    async with asyncio.timeout(WAIT_S):
        for _ in range(3):
            broker.is_told.clear()
            await broker.is_told.wait()
        await connection.is_told.wait()
    beat.stop()


async def test_a_tick_that_raises_does_not_keep_others_from_being_ticked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, connection = Good(), Good()
    beat = Beat(asyncio.get_running_loop(), SystemClock(), [Broken(), broker], lambda: [Broken(), connection])
    beat.start()
    async with asyncio.timeout(WAIT_S):
        await broker.is_told.wait()
        await connection.is_told.wait()
    beat.stop()
    caplog.clear()


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["forward", "back"])
async def test_all_are_told_that_the_clock_was_set_before_they_see_the_new_time(
    by: Millis, caplog: pytest.LogCaptureFixture
) -> None:
    broker, connection = Good(), Good()
    await beats(NamespaceClock(Wall(by), lambda: 0, lambda: 0), broker, connection)
    assert broker.told[:3] == [f"stepped by {by}", "tick", "tick"]
    assert connection.told[:2] == [f"stepped by {by}", "tick"]
    assert broker.now == 10 * HOUR + by
    logged = [record for record in caplog.records if record.message == "clock_stepped"]
    assert [record.__dict__["fields"] for record in logged] == [{"ms": by}]
    caplog.clear()


async def test_a_clock_that_a_test_moves_makes_no_steps(caplog: pytest.LogCaptureFixture) -> None:
    broker, connection = Good(), Good()
    clock = SimClock()
    clock.advance(HOUR)
    await beats(clock, broker, connection)
    assert set(broker.told) == {"tick"}
    caplog.clear()
