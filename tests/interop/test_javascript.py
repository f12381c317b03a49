"""The JavaScript SDK, unchanged, over every transport. What is tested is in js/*.test.js."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.test_connect_page import examples
from tests.interop.foreign_suite import SuiteUnavailable
from tests.interop.frameworks.suites import what_up_prints
from tests.interop.javascript import (
    RUN_TIMEOUT_S,
    TestRun,
    clock_control,
    installed_packages,
    sdk_version,
)
from tests.interop.results import Recorder
from tests.interop.running_server import RunningProcesses, RunningServer

TRANSPORTS = ("tcp", "tls", "wss")
SCRIPTS = (
    "administration.test.js",
    "amqp.test.js",
    "errors.test.js",
    "partitioned.test.js",
    "queues.test.js",
    "sessions.test.js",
    "topics.test.js",
)


@pytest.fixture(scope="module")
def packages() -> Path:
    try:
        return installed_packages()
    except SuiteUnavailable as missing:
        pytest.skip(f"the JavaScript SDK cannot be run: {missing}")


@pytest.fixture(scope="module")
def recorder(packages: Path) -> Recorder:
    return Recorder("JavaScript SDK", sdk_version(packages))


@pytest.fixture(scope="module")
def tls_server(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("data"), tls_port=0)
    yield running
    running.stop()


def ends_of(runs: Sequence[TestRun], recorder: Recorder) -> list[str]:
    """What the runs said that failed. Every test of every run is recorded."""
    failures = [failure for run in runs if (failure := run.failure())]
    for run in runs:
        run.record(recorder)
    return failures


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_sdk_gets_what_it_expects_over_every_transport(
    tls_server: RunningServer, packages: Path, script: str, recorder: Recorder, tmp_path: Path
) -> None:
    runs = [TestRun(script, transport, tls_server, packages, tmp_path) for transport in TRANSPORTS]
    failures = ends_of(runs, recorder)
    assert not failures, "\n".join(failures)


@pytest.fixture(scope="module")
def processes(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProcesses]:
    running = RunningProcesses(tmp_path_factory.mktemp("data"), 2)
    yield running
    running.stop()


@pytest.mark.nightly
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_sdk_cannot_tell_how_many_processes_serve_the_namespace(
    processes: RunningProcesses, packages: Path, script: str, recorder: Recorder, tmp_path: Path
) -> None:
    runs = [TestRun(script, transport, processes, packages, tmp_path) for transport in TRANSPORTS]
    failures = ends_of(runs, recorder)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("script", ["scheduling.test.js", "faults.test.js"])
def test_the_sdk_learns_what_has_ended_and_goes_on_after_faults(
    tmp_path: Path, packages: Path, script: str, recorder: Recorder
) -> None:
    """On servers of their own: the scripts move the clock and cut connections."""
    with ExitStack() as stack:
        runs = []
        for transport in TRANSPORTS:
            server = RunningServer(tmp_path / transport, store_count=2, tls_port=0)
            stack.callback(server.stop)
            clock_url = stack.enter_context(clock_control(server))
            runs.append(TestRun(script, transport, server, packages, tmp_path, clock_url))
        failures = ends_of(runs, recorder)
    assert not failures, "\n".join(failures)


def test_the_sdk_can_be_shown_the_way_to_a_websocket_without_tls_on_the_port_of_amqp(
    tls_server: RunningServer, packages: Path, recorder: Recorder, tmp_path: Path
) -> None:
    assert not ends_of([TestRun("sessions.test.js", "ws", tls_server, packages, tmp_path)], recorder)


def test_the_example_of_the_page_on_connecting_works_as_it_stands(packages: Path, tmp_path: Path) -> None:
    """With what `twinbus up` prints, one connection string for everything: messages without TLS, administration with it."""
    (example,) = examples("javascript")
    (tmp_path / "orders.js").write_text(example)
    with what_up_prints(tmp_path) as printed:
        environment = {
            **os.environ,
            "NODE_PATH": str(packages),
            "NODE_EXTRA_CA_CERTS": printed["tls_authority"],
            "SERVICE_BUS": printed["connection_string"],
        }
        command = ["node", str(tmp_path / "orders.js")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
