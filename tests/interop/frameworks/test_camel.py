"""Apache Camel's component for Service Bus, unchanged. What is tested is in jvm/camel."""

from collections.abc import Iterator

import pytest

from tests.interop.foreign_suite import Scenario, SuiteRun, name_of, playing, scenarios_in
from tests.interop.frameworks.suites import described
from tests.interop.maven import JVM, MavenProject
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer
from twinbus.model.descriptions import RuleDescription, SqlFilter

PROJECT = MavenProject(JVM / "camel", "CamelScenarios")
SCENARIOS = scenarios_in(PROJECT.sources)
QUEUES = ["batch", "delete", "failing", "poison", "queue", "scheduled"]


def entities(server: RunningServer) -> None:
    for name in QUEUES:
        server.create_queue(f"camel-{name}")
    server.create_queue("camel-sessions", requires_session=True)
    server.create_topic("camel-topic", "all", "emea")
    control = server.server.control
    server.run(control.create_rule("camel-topic", "emea", RuleDescription("emea", SqlFilter("region = 'emea'"))))
    server.run(control.delete_rule("camel-topic", "emea", "$Default"))


@pytest.fixture(scope="module")
def run(server: RunningServer) -> Iterator[SuiteRun]:
    entities(server)
    recorder = Recorder("Apache Camel", PROJECT.version_of("camel-azure-servicebus"))
    with playing(recorder, SCENARIOS, PROJECT.command, described(server)) as suite:
        yield suite


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_a_route_of_camel_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure
