"""The Java SDK, unchanged. What is tested is in java/*.java."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_connect_page import examples
from tests.interop.foreign_suite import RUN_TIMEOUT_S, Scenario, SuiteRun, SuiteUnavailable, scenarios_in, stage
from tests.interop.java_sdk import JVM, SOURCES, sdk_libraries, sdk_version, suite_command
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer

SCENARIOS = scenarios_in(SOURCES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    recorder = Recorder("Java SDK", sdk_version())
    try:
        command = suite_command()
    except SuiteUnavailable as missing:
        for scenario in SCENARIOS:
            recorder.record(scenario.feature, scenario.name, "skip", str(missing))
        pytest.skip(f"the Java SDK cannot be run: {missing}")
    with stage(tmp_path_factory.mktemp("java")) as variables:
        suite = SuiteRun(command, variables, recorder)
        yield suite
        suite.end()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.feature}: {scenario.name}")
def test_the_sdk_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure


def test_the_example_of_the_page_on_connecting_works_as_it_stands(tmp_path: Path) -> None:
    (example,) = examples("java")
    (tmp_path / "Orders.java").write_text(example)
    try:
        libraries = sdk_libraries()
    except SuiteUnavailable as missing:
        pytest.skip(f"the Java SDK cannot be run: {missing}")
    running = RunningServer(tmp_path / "data", store_count=2)
    try:
        authority, store = str(running.server.tls_authority), str(tmp_path / "twinbus.p12")
        trust = ["keytool", "-importcert", "-noprompt", "-alias", "twinbus", "-file", authority, "-keystore", store]
        subprocess.run([*trust, "-storepass", "changeit"], check=True, capture_output=True, timeout=RUN_TIMEOUT_S)
        trusting = (f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStorePassword=changeit")
        command = ["java", *JVM, *trusting, "-cp", f"{libraries}/*", str(tmp_path / "Orders.java")]
        environment = {**os.environ, "SERVICE_BUS": running.connection_string}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    finally:
        running.stop()
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
