"""Goal: whatever comes over a WebSocket, the server answers in the protocol, and no exception reaches the loop."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.websocket_fuzzer import WebSocketFuzz
from tests.measured import Measured

MEMORY_GROWN_KB_MAX = 32_768


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    names = ("uvicorn.error", "twinbus")
    before = {name: (logging.getLogger(name).handlers[:], logging.getLogger(name).propagate) for name in names}
    yield
    for name, (handlers, is_propagating) in before.items():
        logging.getLogger(name).handlers, logging.getLogger(name).propagate = handlers, is_propagating


async def test_damaged_frames_never_break_a_websocket(tmp_path: Path) -> None:
    counts = await WebSocketFuzz(tmp_path, seed=3).run(1_000)
    assert counts.upgraded > counts.connections // 2
    assert counts.ended > counts.connections // 2


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(2))
async def test_many_damaged_frames_never_break_a_websocket(tmp_path: Path, seed: int, measured: Measured) -> None:
    counts = await WebSocketFuzz(tmp_path, 100 + seed).run(50_000)
    measured("fuzzed frames, WebSocket", {"frames": counts.frames, "connections": counts.connections})
    assert counts.memory_grown_kb < MEMORY_GROWN_KB_MAX
