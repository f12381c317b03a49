"""The Go SDK, unchanged. What is tested is in go/*.go."""

from collections.abc import Iterator

import pytest

from tests.interop.foreign_suite import Scenario, SuiteRun, SuiteUnavailable, scenarios_in, stage
from tests.interop.golang import SOURCES, built_suite, sdk_version
from tests.interop.results import Recorder

SCENARIOS = scenarios_in(SOURCES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    recorder = Recorder("Go SDK", sdk_version())
    try:
        program = built_suite()
    except SuiteUnavailable as missing:
        for scenario in SCENARIOS:
            recorder.record(scenario.feature, scenario.name, "skip", str(missing))
        pytest.skip(f"the Go SDK cannot be run: {missing}")
    with stage(tmp_path_factory.mktemp("go")) as variables:
        suite = SuiteRun([str(program)], variables, recorder)
        yield suite
        suite.end()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario.feature}: {scenario.name}")
def test_the_sdk_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure
