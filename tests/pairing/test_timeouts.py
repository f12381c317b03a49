"""A send to a peer that says nothing ends within 0.2 s of its timeout, for threads and for tasks. Time is the test's."""

import asyncio
import selectors
import socket
import threading
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus.exceptions import OperationTimeoutError

from twinbus.clock import Millis
from twinbus.pairing.aio.guarded_sender import GuardedSender as AioGuardedSender
from twinbus.pairing.attendant import LOOK_INTERVAL, until_next_look
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.stock.guarded_sender import GuardedSender
from twinbus.testing.sim_clock import SimClock

LATE_MAX: Millis = 200
TIMEOUTS_S = [0.3, 3.0, 10.0]
PATIENCE_S = 60.0


class SilentPeer:
    """A connection that the other side never writes to. `stock` has it where the SDK keeps its socket."""

    def __init__(self) -> None:
        self.own, self.other = socket.socketpair()
        self.other.setblocking(False)
        transport = SimpleNamespace(sock=self.own)
        self.stock: Any = SimpleNamespace(
            _handler=SimpleNamespace(_connection=SimpleNamespace(_transport=transport)), close=lambda: None
        )
        self.is_waiting = threading.Event()

    def send(self, stock: Any, timeout_s: float) -> None:
        """Blocks in a system call, whatever the timeout, as the SDK does while it connects."""
        self.is_waiting.set()
        assert self.own.recv(1) == b""
        raise ConnectionError("the connection is gone")

    @property
    def is_cut(self) -> bool:
        try:
            return self.other.recv(1) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        self.own.close()
        self.other.close()


@pytest.fixture
def peer() -> Iterator[SilentPeer]:
    made = SilentPeer()
    yield made
    made.close()


@pytest.mark.parametrize("timeout_s", TIMEOUTS_S)
@pytest.mark.parametrize("phase", [0, 1, 49, 50, 51, 99])
def test_a_thread_whose_peer_says_nothing_is_released_in_time(
    peer: SilentPeer, timeout_s: float, phase: Millis
) -> None:
    """Whenever the pair's thread happens to look: it does so at least every tenth of a second."""
    clock = SimClock()
    sender, errors = GuardedSender(lambda: peer.stock, clock), list[BaseException]()

    def send() -> None:
        try:
            sender.run(peer.send, timeout_s)
        except OperationTimeoutError as error:
            errors.append(error)

    blocked = threading.Thread(target=send, daemon=True)
    blocked.start()
    assert peer.is_waiting.wait(PATIENCE_S)
    availability = SendAvailability(SendAvailabilityPairedNamespaceOptions(), {0: "b"}, Random(1))
    began_at = clock.now()
    clock.advance(phase)
    while not peer.is_cut:
        sender.interrupt_if_late(clock.now())
        clock.advance(until_next_look(availability, clock.now(), LOOK_INTERVAL) if not peer.is_cut else 0)
        assert clock.now() - began_at < timeout_s * 1000 + 1_000
    assert timeout_s * 1000 < clock.now() - began_at <= timeout_s * 1000 + LATE_MAX
    blocked.join(PATIENCE_S)
    assert len(errors) == 1


class _Leaping(selectors.DefaultSelector):
    """Instead of waiting for nothing, it moves the loop's clock."""

    now_s = 1_000.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.now_s += timeout
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """Its time passes only while all tasks wait, and then at once."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.now_s


@pytest.mark.parametrize("timeout_s", TIMEOUTS_S)
def test_a_task_whose_peer_says_nothing_is_released_in_time(timeout_s: float) -> None:
    async def silent(stock: Any, timeout_s: float) -> None:
        await asyncio.get_running_loop().create_future()

    async def close() -> None: ...

    async def send() -> float:
        stock: Any = SimpleNamespace(close=close)
        sender = AioGuardedSender(lambda: stock, SimClock())
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        with pytest.raises(OperationTimeoutError):
            await sender.run(silent, timeout_s)
        return loop.time() - began_at

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        took_s = runner.run(send())
    assert timeout_s < took_s <= timeout_s + LATE_MAX / 1000
