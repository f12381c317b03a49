"""Goal: whatever frames come, a gateway answers in the protocol, and nothing below it breaks, hangs or grows."""

from pathlib import Path

import pytest

from tests.gateway.frame_fuzzer import Fuzz
from tests.measured import Measured

MEMORY_GROWN_KB_MAX = 32_768


async def test_damaged_frames_never_break_a_gateway(tmp_path: Path) -> None:
    counts = await Fuzz(tmp_path, seed=1).run(2_000)
    assert counts.closed > counts.connections // 2
    assert counts.frames > 3 * counts.connections, "most of them get further than the first damage"


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(4))
async def test_many_damaged_frames_never_break_a_gateway(tmp_path: Path, seed: int, measured: Measured) -> None:
    counts = await Fuzz(tmp_path, 100 + seed).run(100_000)
    measured("fuzzed frames, gateway", {"frames": counts.frames, "connections": counts.connections})
    assert counts.memory_grown_kb < MEMORY_GROWN_KB_MAX
