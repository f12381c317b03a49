"""The server that the official SDKs are run against, and SDKs that do not idle while they poll."""

import time
from collections.abc import Iterator
from types import SimpleNamespace

import azure.servicebus._pyamqp.client
import azure.servicebus._servicebus_receiver
import azure.servicebus._servicebus_sender
import pytest

from tests.interop.running_server import RunningServer

POLL_S = 0.005


@pytest.fixture(scope="session", autouse=True)
def quick_polling() -> Iterator[None]:
    """Opening and closing a link costs the SDK a second of sleep between polls, whatever the server does."""
    patient = SimpleNamespace(**vars(time))
    patient.sleep = lambda seconds: time.sleep(min(seconds, POLL_S))
    with pytest.MonkeyPatch.context() as patch:
        for module in (
            azure.servicebus._servicebus_sender,
            azure.servicebus._servicebus_receiver,
            azure.servicebus._pyamqp.client,
        ):
            patch.setattr(module, "time", patient)
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for each file: every test makes entities of its own."""
    running = RunningServer(tmp_path_factory.mktemp("data"))
    yield running
    running.stop()
