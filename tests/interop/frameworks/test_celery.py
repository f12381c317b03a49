"""Celery with kombu's transport for Service Bus, unchanged: a worker and a program, from what `twinbus up` prints. What is tested
is in python/celery_*.py."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.interop.foreign_suite import Scenario, SuiteRun, name_of, playing, scenarios_in
from tests.interop.frameworks.suites import AZURE_NAME, described_by, network, what_up_prints
from tests.interop.frameworks.venvs import PYTHON, Environment
from tests.interop.results import Recorder

ENVIRONMENT = Environment("celery")
PROGRAM = PYTHON / "celery_scenarios.py"
SCENARIOS = scenarios_in([PROGRAM])
STOP_TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    version = f"{ENVIRONMENT.version_of('celery')}, kombu {ENVIRONMENT.version_of('kombu')}"
    with ExitStack() as stack:
        options = ("--tls", "--tls-port", "0", "--tls-name", AZURE_NAME)
        printed = stack.enter_context(what_up_prints(tmp_path_factory.mktemp("data"), *options))
        results = str(tmp_path_factory.mktemp("results"))
        variables = {**described_by(printed), **network(printed["tls_authority"]), "TWINBUS_RESULTS": results}

        def command() -> list[str]:
            python = str(ENVIRONMENT.python())
            stack.enter_context(working(python, variables))
            return [python, str(PROGRAM)]

        yield stack.enter_context(playing(Recorder("Celery", version), SCENARIOS, command, variables))


@contextmanager
def working(python: str, variables: dict[str, str]) -> Iterator[None]:
    command = [python, "-m", "celery", "-A", "celery_app", "worker", "-Q", "orders,reports", "--loglevel=WARNING"]
    command += ["--pool=threads", "--concurrency=4"]
    worker = subprocess.Popen(command, cwd=PYTHON, env={**os.environ, **variables})
    try:
        yield
    finally:
        worker.terminate()
        try:
            worker.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_an_application_with_celery_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure
