"""Dapr's components for Service Bus, unchanged, in a program of our own that calls them as its runtime does: see go/dapr."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.foreign_suite import Scenario, SuiteRun, name_of, playing, scenarios_in
from tests.interop.golang import built_suite, module_version
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer

GO = Path(__file__).parent / "go"
FOLDER = GO / "dapr"
SCENARIOS = scenarios_in([FOLDER / "main.go"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    recorder = Recorder("Dapr", f"components {module_version('github.com/dapr/components-contrib', FOLDER)}")
    server = RunningServer(tmp_path_factory.mktemp("data"), store_count=4)
    variables = {
        "TWINBUS_CONNECTION": server.connection_string,
        "SSL_CERT_FILE": str(server.server.tls_authority),
    }
    with playing(recorder, SCENARIOS, lambda: [str(built_suite(FOLDER, GO / "scenarios"))], variables) as suite:
        yield suite
    server.stop()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_a_component_of_dapr_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure
