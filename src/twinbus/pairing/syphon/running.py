"""A syphon inside of an application, whatever it runs on."""

from typing import Protocol

from twinbus.clock import Millis


class RunningSyphon(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None:
        """Blocks until passes under way are finished; seconds at most."""
        ...

    def interrupt_if_late(self, now: Millis) -> None:
        """Called a few times a second: end calls that are past their deadlines."""
        ...
