"""The SDK looks for progress every 50 ms while it opens a link, and its close waits for a thread that sleeps a second.

Neither is what a test of ours is about, so here both are ten times as quick: the modules that sleep get a `time` or an
`asyncio` of their own.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from azure.servicebus import _servicebus_receiver, _servicebus_sender
from azure.servicebus._pyamqp import _connection, client, session
from azure.servicebus._pyamqp.aio import _client_async, _connection_async, _session_async
from azure.servicebus.aio import _servicebus_receiver_async, _servicebus_sender_async

SPEED = 10
SLEEPERS: tuple[ModuleType, ...] = (_servicebus_receiver, _servicebus_sender, _connection, client, session)
AIO_SLEEPERS: tuple[ModuleType, ...] = (
    _servicebus_receiver_async,
    _servicebus_sender_async,
    _client_async,
    _connection_async,
    _session_async,
)


class QuickTime:
    """The module `time`, but for its sleeps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(seconds / SPEED)


class QuickAsyncio:
    """The module `asyncio`, but for its sleeps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)


SLOW: tuple[tuple[ModuleType, str, ModuleType], ...] = (
    *((module, "time", time) for module in SLEEPERS),
    *((module, "asyncio", asyncio) for module in AIO_SLEEPERS),
)
for _module, _name, _slow in SLOW:
    assert getattr(_module, _name) is _slow, f"{_module.__name__} does not sleep by this name any more"


@contextmanager
def quick_sdk() -> Iterator[None]:
    """What it finds it puts back, so that one may run inside another."""
    quick: dict[str, object] = {"time": QuickTime(), "asyncio": QuickAsyncio()}
    found = [getattr(module, name) for module, name, _ in SLOW]
    for module, name, _ in SLOW:
        setattr(module, name, quick[name])
    try:
        yield
    finally:
        for (module, name, _), before in zip(SLOW, found, strict=True):
            setattr(module, name, before)
