"""Goal: whatever frames come, a connection answers in the protocol or ends with a condition; it never raises, hangs or grows.

Method: the frames of a conversation, most of them damaged (`damaged_frames`), to connections whose application answers everything.
"""

import gc
import time
from random import Random
from typing import NamedTuple

import pytest

from tests.amqp.damaged_frames import Damager, check_answer, memory_kb, split_frames
from tests.amqp.test_connection_fuzz import App, conversation
from tests.measured import Measured
from twinbus.amqp.connection import Role, State

FRAMES_PER_CONNECTION = 60
HANDSHAKE = 4
"""Headers, SASL and open."""
CONNECTION_SECONDS_MAX = 2.0
"""Of the processor. Sixty frames take some milliseconds."""
MEMORY_GROWN_KB_MAX = 16_384


class Counts(NamedTuple):
    frames: int
    connections: int
    ended: int  # with a condition
    slowest_ms: float
    memory_grown_kb: int


class _QuickApp(App):
    """Looks at what the connection says only once it ends."""

    def check_output(self, data: bytes) -> None:
        if self.connection.state is not State.OPEN:
            check_answer(data)


class Side:
    """What the peer of a role says."""

    def __init__(self, role: Role, random: Random) -> None:
        self.role = role
        self._random = random
        self._pieces = split_frames(conversation()[0 if role is Role.SERVER else 1])
        self._first = Damager(self._pieces[:HANDSHAKE], random, left_out=())
        self._later = Damager(self._pieces, random)

    def begin(self) -> tuple[bytes, Damager]:
        """The conversation up to some frame, and what follows."""
        count = self._random.choice((0, 1, 2, 3, *[6] * 6, *[8] * 22))
        return b"".join(self._pieces[:count]), self._later if count > HANDSHAKE else self._first


def fuzz(frame_count: int, seed: int) -> Counts:
    random = Random(seed)
    sides = [Side(role, random) for role in [Role.SERVER] * 9 + [Role.CLIENT]]
    frames = connections = ended = 0
    slowest = 0.0
    memory = list[int]()
    while frames < frame_count:
        side = random.choice(sides)
        opening, damager = side.begin()
        said = [opening]
        connections += 1
        begun = time.process_time()
        try:
            app = _QuickApp(side.role)
            app.feed(opening)
            while len(said) <= FRAMES_PER_CONNECTION and not app.connection.should_disconnect:
                said.append(damager.draw())
                app.feed(said[-1])
            ended += app.connection.state is not State.OPEN
            app.finish()
            took = time.process_time() - begun
            assert took < CONNECTION_SECONDS_MAX
        except BaseException as error:
            error.add_note(f"connection {connections}, {side.role}: {[piece.hex() for piece in said]}")
            raise
        frames += len(said) - 1
        slowest = max(slowest, took)
        if connections % 5_000 == 0:
            gc.collect()
            memory.append(memory_kb())
    grown = memory[-1] - memory[0] if memory else 0
    return Counts(frames, connections, ended, round(1e3 * slowest, 1), grown)


def test_damaged_frames_never_break_a_connection() -> None:
    counts = fuzz(10_000, seed=1)
    assert counts.ended > counts.connections // 2
    assert counts.frames > 3 * counts.connections, "most of them get further than the first damage"


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(19))
def test_ten_million_damaged_frames_never_break_a_connection(seed: int, measured: Measured) -> None:
    counts = fuzz(500_000, 100 + seed)
    measured("fuzzed frames, connection", {"frames": counts.frames, "connections": counts.connections})
    assert counts.memory_grown_kb < MEMORY_GROWN_KB_MAX
