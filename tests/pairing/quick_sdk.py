"""The SDK looks for progress every 50 ms while it opens a link, and its close waits for a thread that sleeps a second.

Neither is what a test of ours is about, so here both are ten times as quick: the modules that sleep get a `time` of their own.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from azure.servicebus import _servicebus_receiver, _servicebus_sender
from azure.servicebus._pyamqp import _connection, client, session

SPEED = 10
SLEEPERS: tuple[ModuleType, ...] = (_servicebus_receiver, _servicebus_sender, _connection, client, session)


class QuickTime:
    """The module `time`, but for its sleeps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(seconds / SPEED)


@contextmanager
def quick_sdk() -> Iterator[None]:
    for module in SLEEPERS:
        assert module.time is time, f"{module.__name__} does not sleep by this name any more"
        module.time = QuickTime()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in SLEEPERS:
            module.time = time  # type: ignore[attr-defined]
