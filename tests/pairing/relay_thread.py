"""A relay to a namespace on a thread of its own, for tests that are not on an event loop: hold it, or stop it."""

import asyncio
import re
import threading
from types import TracebackType

from tests.client.relay import Relay


class RelayThread:
    """Between two ports of this machine, from `with` on."""

    def __init__(self, target_port: int, delay_s: float = 0.0) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._relay = Relay(target_port, delay_s=delay_s)
        self._is_open = True

    @property
    def port(self) -> int:
        return self._relay.port

    @property
    def connections(self) -> int:
        """So far."""
        return self._relay.connections

    @property
    def open_connections(self) -> int:
        return self._relay.open_connections

    def __enter__(self) -> "RelayThread":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._relay.start(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pass_on()
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self) -> None:
        """Connections stay and are taken, and what is written into them goes nowhere."""
        self._loop.call_soon_threadsafe(self._relay.hold)

    def hold_at(self, pattern: bytes) -> None:
        """As soon as a client says this."""
        self._relay.holds_at = re.compile(pattern, re.DOTALL)

    def pass_on(self) -> None:
        self._loop.call_soon_threadsafe(self._relay.pass_on)

    def cut(self) -> None:
        """Connections are reset; new ones are taken."""
        self._loop.call_soon_threadsafe(self._relay.cut)

    def refuse(self) -> None:
        """Connections are cut, and new ones refused, for good."""
        if self._is_open:
            self._is_open = False
            asyncio.run_coroutine_threadsafe(self._relay.stop(), self._loop).result()
