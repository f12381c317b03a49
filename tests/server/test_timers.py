import asyncio

import pytest

from twinbus.clock import Millis, SystemClock
from twinbus.server.timers import Beat

WAIT_S = 5.0


class Broken:
    def tick(self, now: Millis) -> None:
        raise ZeroDivisionError


class Good:
    def __init__(self) -> None:
        self.is_told = asyncio.Event()

    def tick(self, now: Millis) -> None:
        self.is_told.set()


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
