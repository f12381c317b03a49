"""The Java SDK, unchanged. What is tested is in java/*.java."""

from collections.abc import Iterator

import pytest

from tests.interop.foreign_suite import Scenario, SuiteRun, SuiteUnavailable, scenarios_in, stage
from tests.interop.java_sdk import SOURCES, sdk_version, suite_command
from tests.interop.results import Recorder

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
