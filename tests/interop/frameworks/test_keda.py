"""KEDA's scaler for Service Bus, unchanged, in a program of our own that calls it as its operator does: see go/keda."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from tests.interop.foreign_suite import Scenario, SuiteRun, name_of, playing, scenarios_in
from tests.interop.golang import built_suite, module_version
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer

GO = Path(__file__).parent / "go"
FOLDER = GO / "keda"
BUILD_TIMEOUT_S = 1_500.0
"""KEDA's scalers are one package, with the clients of everything that it can measure."""
SCENARIOS = scenarios_in([FOLDER / "main.go"])


def entities(server: RunningServer) -> None:
    for name, count in (("orders", 3), ("other", 1), ("empty", 0)):
        server.put(server.create_queue(f"keda-{name}"), *["x"] * count)
    server.create_topic("keda-news", "all", "also", "none")
    server.run(server.server.control.delete_rule("keda-news", "none", "$Default"))
    with server.client() as client, client.get_topic_sender("keda-news") as sender:
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    recorder = Recorder("KEDA", module_version("github.com/kedacore/keda/v2", FOLDER))
    server = RunningServer(tmp_path_factory.mktemp("data"), store_count=4)
    entities(server)
    variables = {
        "TWINBUS_CONNECTION": server.connection_string,
        "SSL_CERT_FILE": str(server.server.tls_authority),
    }
    with playing(
        recorder, SCENARIOS, lambda: [str(built_suite(FOLDER, GO / "scenarios", BUILD_TIMEOUT_S))], variables
    ) as suite:
        yield suite
    server.stop()


@pytest.mark.nightly
@pytest.mark.timeout(2 * BUILD_TIMEOUT_S)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_a_scaler_of_keda_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure
