"""The server that the official SDKs are run against, and SDKs that do not idle while they poll."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version

import pytest

from tests.interop.results import Feature, Outcome, Recorder
from tests.interop.running_server import RunningServer
from tests.pairing.quick_sdk import quick_sdk

FEATURES: dict[str, Feature] = {
    "access": "errors",
    "aio": "receive",
    "batches": "batch",
    "claims": "errors",
    "crash": "reconnect",
    "faults": "reconnect",
    "lock_renewal": "lock renewal",
    "queues": "settlement",
    "sessions": "sessions",
    "store_down": "partitioned entities",
    "transports": "TLS",
}
"""What the tests of test_python_*.py are mostly about, for the compatibility page: they use the newest Python SDK themselves."""


@cache
def recorder_of(name: str) -> Recorder:
    return Recorder("Python SDK", version("azure-servicebus"), name)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    found = re.search(r"interop/test_python_(\w+)\.py::(?:test_)?(.+)$", report.nodeid)
    if found is None or found[1] not in FEATURES or (report.when != "call" and report.passed):
        return
    outcome: Outcome = "pass" if report.passed else "skip" if report.skipped else "fail"
    recorder_of(found[1]).record(FEATURES[found[1]], found[2].replace("_", " "), outcome)


@pytest.fixture(scope="module", autouse=True)
def quick_polling() -> Iterator[None]:
    """For one file at a time: other tests have an SDK that sleeps as they need it."""
    with quick_sdk():
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for each file: every test creates its own entities."""
    running = RunningServer(tmp_path_factory.mktemp("data"))
    yield running
    running.stop()
