"""Very many messages that are due at once: when the last of them is there, and what the others feel of it."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.attack.longest_turn import LongestTurn, worked_s
from tests.interop.running_server import ShiftedClock
from tests.measured import Measured
from twinbus.client.message import encode_message
from twinbus.client.namespace import Namespace
from twinbus.testing.local_namespace import LocalNamespace

HOUR_S = 3_600.0
TURN_MAX_S = 0.1
LATE_MAX_S = 30.0
"""Of the loop's own time: it does not rest while its longest turn is looked for, so on a machine that does nothing else this is the
time that passes."""
WAIT_S = 800.0


async def schedule(connection_string: str, count: int, at: datetime) -> None:
    async with await Namespace.connect(connection_string) as client:
        sender = await client.sender("q")
        payloads = [encode_message(b"x" * 100, scheduled_at=at)] * 1_000
        for _ in range(count // len(payloads)):
            assert not any(await sender.send(payloads))


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
@pytest.mark.timeout(1_800)
def test_very_many_schedules_that_are_due_at_once_are_not_late_and_hold_nobody_up(
    tmp_path: Path, count: int, measured: Measured
) -> None:
    clock = ShiftedClock()
    with LocalNamespace(tmp_path, store_count=1, clock=clock) as namespace:
        namespace.create_queue("q", max_size_in_megabytes=5_120)
        asyncio.run(schedule(namespace.connection_string, count, datetime.now(UTC) + timedelta(seconds=HOUR_S)))
        assert namespace.message_count("q") == 0
        began, worked = time.perf_counter(), worked_s(namespace)
        with LongestTurn(namespace) as longest:
            clock.advance(HOUR_S)
            while namespace.message_count("q") < count:
                assert time.perf_counter() - began < WAIT_S
                time.sleep(0.05)
        late, late_at_work = time.perf_counter() - began, worked_s(namespace) - worked
    measured(
        f"{count} schedules", {"ms until the last": int(late * 1e3), "longest turn, us": int(longest.seconds * 1e6)}
    )
    assert longest.seconds < TURN_MAX_S
    assert late_at_work < LATE_MAX_S
