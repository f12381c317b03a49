"""The Java SDK, unchanged. What is tested is in java/*.java."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_connect_page import examples
from tests.interop.foreign_suite import (
    RUN_TIMEOUT_S,
    Scenario,
    SuiteRun,
    SuiteUnavailable,
    name_of,
    playing,
    scenarios_in,
    stage,
)
from tests.interop.maven import OPTIONS, MavenProject, trust_store
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer

PROJECT = MavenProject(Path(__file__).parent / "java", "twinbus.interop.Suite", common=None)
SCENARIOS = scenarios_in(PROJECT.sources)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    recorder = Recorder("Java SDK", PROJECT.version_of("azure-messaging-servicebus"))
    with (
        stage(tmp_path_factory.mktemp("java")) as variables,
        playing(recorder, SCENARIOS, PROJECT.command, variables) as suite,
    ):
        yield suite


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_the_sdk_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure


def test_the_example_of_the_page_on_connecting_works_as_it_stands(tmp_path: Path) -> None:
    (example,) = examples("java")
    (tmp_path / "Orders.java").write_text(example)
    try:
        libraries = PROJECT.libraries()
    except SuiteUnavailable as missing:
        pytest.skip(f"the Java SDK cannot be run: {missing}")
    running = RunningServer(tmp_path / "data", store_count=2)
    try:
        assert running.server.tls_authority is not None
        store = trust_store(running.server.tls_authority, tmp_path)
        trusting = (f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=changeit")
        command = ["java", *OPTIONS, *trusting, "-cp", f"{libraries}/*", str(tmp_path / "Orders.java")]
        environment = {**os.environ, "SERVICE_BUS": running.connection_string}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    finally:
        running.stop()
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
