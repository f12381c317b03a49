"""The server that the official SDKs are run against, and SDKs that do not idle while they poll."""

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from azure.servicebus import _servicebus_receiver, _servicebus_sender
from azure.servicebus._pyamqp import client
from azure.servicebus._pyamqp.aio import _client_async
from azure.servicebus.aio import _servicebus_receiver_async, _servicebus_sender_async

from tests.interop.running_server import RunningServer

POLL_S = 0.005


@pytest.fixture(scope="module", autouse=True)
def quick_polling() -> Iterator[None]:
    """Opening and closing a link costs the SDK a second of sleep between polls, whatever the server does.

    For one file at a time: other tests have an SDK that sleeps as they need it.
    """
    blocking, awaiting = SimpleNamespace(**vars(time)), SimpleNamespace(**vars(asyncio))
    blocking.sleep = lambda seconds: time.sleep(min(seconds, POLL_S))
    awaiting.sleep = lambda seconds: asyncio.sleep(min(seconds, POLL_S))
    with pytest.MonkeyPatch.context() as patch:
        for module in (_servicebus_sender, _servicebus_receiver, client):
            patch.setattr(module, "time", blocking)
        for module in (_servicebus_sender_async, _servicebus_receiver_async, _client_async):
            patch.setattr(module, "asyncio", awaiting)
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for each file: every test makes entities of its own."""
    running = RunningServer(tmp_path_factory.mktemp("data"))
    yield running
    running.stop()
