"""JMS by Apache Qpid JMS, unchanged. What is tested is in jvm/jms."""

from collections.abc import Iterator

import pytest

from tests.interop.foreign_suite import Scenario, SuiteRun, name_of, playing, scenarios_in
from tests.interop.frameworks.suites import described
from tests.interop.maven import JVM, MavenProject, trust_store
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer
from twinbus.model.descriptions import RuleDescription, SqlFilter

PROJECT = MavenProject(JVM / "jms", "JmsScenarios")
SCENARIOS = scenarios_in(PROJECT.sources)
QUEUES = [
    "anonymous",
    "anonymous-too",
    "asynchronous",
    "automatic",
    "client",
    "commit",
    "expired",
    "failover",
    "from",
    "headers",
    "individual",
    "kinds",
    "large",
    "listener",
    "prefetched",
    "recover",
    "rollback",
    "secure",
    "simplified",
    "to",
    "unsupported",
]


def entities(server: RunningServer) -> None:
    for name in QUEUES:
        server.create_queue(name)
    server.create_queue("poison", max_delivery_count=2)
    server.create_queue("sessions", requires_session=True)
    server.create_topic("topic", "one", "two")
    server.create_topic("ruled", "emea")
    control = server.server.control
    rule = RuleDescription("orders", SqlFilter("region = 'emea' AND sys.Label = 'Order'"))
    server.run(control.create_rule("ruled", "emea", rule))
    server.run(control.delete_rule("ruled", "emea", "$Default"))


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("data"), store_count=4, tls_port=0)
    entities(running)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def run(tls_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    recorder = Recorder("Apache Qpid JMS", PROJECT.version_of("qpid-jms-client"))

    def command() -> list[str]:
        built = PROJECT.command()
        assert tls_server.server.tls_authority is not None
        store = trust_store(tls_server.server.tls_authority, tmp_path_factory.mktemp("trust"))
        trusted = (
            f"transport.trustStoreLocation={store}&transport.trustStorePassword=changeit&transport.storeType=PKCS12"
        )
        variables["TWINBUS_SECURE_URL"] = f"amqps://localhost:{tls_server.server.tls_port}?{trusted}"
        return built

    variables = {**described(tls_server), "TWINBUS_URL": f"amqp://127.0.0.1:{tls_server.server.amqp_port}"}
    with playing(recorder, SCENARIOS, command, variables) as suite:
        yield suite


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_an_application_with_jms_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure


def test_jmsx_group_id_is_the_message_session(run: SuiteRun, tls_server: RunningServer) -> None:
    """As an SDK sees what JMS sent."""
    (sent,) = [scenario for scenario in SCENARIOS if scenario.feature == "sessions"]
    assert not run.failure(sent)
    with tls_server.client() as client, client.get_queue_receiver("sessions", session_id="blue") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        assert message.session_id == "blue"
