"""The Python SDK from 7.6 to the newest, unchanged. What is tested is in python/scenarios.py."""

from collections.abc import Iterator

import pytest

from tests.interop.python_versions import INSTALLED, OLDER, Environments, ScenarioRun, SdkVersion
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer


@pytest.fixture(scope="module")
def environments() -> Iterator[Environments]:
    found = Environments()
    yield found
    found.close()


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = RunningServer(tmp_path_factory.mktemp("data"), store_count=4, tls_port=0)
    yield running
    running.stop()


@pytest.mark.parametrize("version", [INSTALLED, *OLDER], ids=lambda version: version.number)
def test_an_application_runs_with_every_version_of_the_sdk(
    environments: Environments, tls_server: RunningServer, version: SdkVersion
) -> None:
    if problem := environments.problem(version):
        pytest.skip(f"the Python SDK {version.number} is not there: {problem}")
    run = ScenarioRun(environments.python(version), version, tls_server)
    failure = run.failure()
    run.record(Recorder("Python SDK", version.number))
    assert not failure, failure
