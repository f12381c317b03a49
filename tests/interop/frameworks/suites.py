"""Frameworks as suites: what plays the scenarios, against which namespace, and what becomes of it where it cannot run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.foreign_suite import Scenario, SuiteRun, SuiteUnavailable
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer

NETWORK = Path(__file__).parent / "python" / "network"
AZURE_NAME = "twinbus-tests.servicebus.windows.net"


@contextmanager
def playing(
    recorder: Recorder,
    scenarios: Sequence[Scenario],
    command: Callable[[], Sequence[str]],
    variables: Mapping[str, str],
) -> Iterator[SuiteRun]:
    """The process that plays them. Where it cannot be built, its tests are skipped with the reason."""
    try:
        built = command()
    except SuiteUnavailable as missing:
        for scenario in scenarios:
            recorder.record(scenario.feature, scenario.name, "skip", str(missing))
        pytest.skip(f"it cannot be run: {missing}")
    run = SuiteRun(built, variables, recorder)
    try:
        yield run
    finally:
        run.end()


def described(server: RunningServer) -> dict[str, str]:
    """A namespace with TLS as the variables that its clients need."""
    namespace = server.server
    return {
        "TWINBUS_PLAIN": server.connection_string,
        "TWINBUS_TLS": namespace.tls_connection_string or "",
        "TWINBUS_AUTHORITY": str(namespace.tls_authority),
        "TWINBUS_AMQP_PORT": str(namespace.amqp_port),
        "TWINBUS_HTTP_PORT": str(namespace.http_port),
        "TWINBUS_TLS_PORT": str(namespace.tls_port),
        "TWINBUS_KEY_NAME": namespace.root_rule.name,
        "TWINBUS_KEY": namespace.root_rule.primary_key,
    }


def name_of(scenario: Scenario) -> str:
    return f"{scenario.feature}: {scenario.name}"


@contextmanager
def azure_named_server(data: Path) -> Iterator[RunningServer]:
    """A namespace whose certificate is also for a name such as namespaces in Azure have."""
    running = RunningServer(data, store_count=4, tls_port=0, tls_names=(AZURE_NAME,))
    try:
        yield running
    finally:
        running.stop()


def network(server: RunningServer) -> dict[str, str]:
    """For Python processes: that name leads to the namespace; see python/network."""
    authority = str(server.server.tls_authority)
    return {"TWINBUS_NAME": AZURE_NAME, "PYTHONPATH": str(NETWORK), "REQUESTS_CA_BUNDLE": authority}
