"""Spring Boot with the starter of Spring Cloud Azure for Service Bus over JMS, unchanged. What is tested is in jvm/spring."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.interop.foreign_suite import Scenario, SuiteRun, name_of, playing, scenarios_in, taking_orders
from tests.interop.frameworks.relay import relayed
from tests.interop.frameworks.suites import AZURE_NAME, azure_named_server, described
from tests.interop.maven import JVM, MavenProject, trust_store
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer

PROJECT = MavenProject(JVM / "spring", "SpringScenarios")
SCENARIOS = scenarios_in(PROJECT.sources)
QUEUES = ["answers", "failing", "from", "messages", "queue", "questions", "template", "to"]


def entities(server: RunningServer) -> None:
    for name in QUEUES:
        server.create_queue(f"spring-{name}")
    server.create_topic("spring-topic", "all")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    recorder = Recorder("Spring Cloud Azure", PROJECT.version_of("spring-cloud-azure-starter-servicebus-jms"))
    with ExitStack() as stack:
        server = stack.enter_context(azure_named_server(tmp_path_factory.mktemp("data")))
        entities(server)
        variables = {**described(server), "TWINBUS_NAME": AZURE_NAME}

        def command() -> list[str]:
            assert server.server.tls_authority is not None
            assert server.server.tls_port is not None
            relay = stack.enter_context(relayed(server.server.tls_port))
            variables["TWINBUS_CUT"] = stack.enter_context(taking_orders(lambda order: relay.cut()))
            folder = tmp_path_factory.mktemp("jvm")
            hosts = folder / "hosts"
            hosts.write_text(f"127.0.0.1 localhost\n{relay.address} {AZURE_NAME}\n")
            store = trust_store(server.server.tls_authority, folder)
            trusted = [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=changeit"]
            return PROJECT.command(f"-Djdk.net.hosts.file={hosts}", *trusted)

        yield stack.enter_context(playing(recorder, SCENARIOS, command, variables))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_an_application_with_spring_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure
