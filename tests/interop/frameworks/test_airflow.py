"""Airflow's operators and hooks for Service Bus, unchanged, with what `twinbus up` prints. What is tested is in python/airflow_scenarios.py."""

import json
from collections.abc import Iterator

import pytest

from tests.interop.foreign_suite import Scenario, SuiteRun, name_of, playing, scenarios_in
from tests.interop.frameworks.suites import what_up_prints
from tests.interop.frameworks.venvs import PYTHON, Environment
from tests.interop.results import Recorder

ENVIRONMENT = Environment("airflow")
PROGRAM = PYTHON / "airflow_scenarios.py"
SCENARIOS = scenarios_in([PROGRAM])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    provider = ENVIRONMENT.version_of("apache-airflow-providers-microsoft-azure")
    recorder = Recorder(
        "Airflow's Azure provider", f"{provider}, Airflow {ENVIRONMENT.version_of('apache-airflow-core')}"
    )
    with what_up_prints(tmp_path_factory.mktemp("data")) as printed:
        connection = {"conn_type": "azure_service_bus", "schema": printed["connection_string"]}
        variables = {
            "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "AIRFLOW_CONN_AZURE_SERVICE_BUS_DEFAULT": json.dumps(connection),
            "PYTHONWARNINGS": "ignore",
            "REQUESTS_CA_BUNDLE": printed["tls_authority"],
        }
        with playing(recorder, SCENARIOS, lambda: [str(ENVIRONMENT.python()), str(PROGRAM)], variables) as suite:
            yield suite


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_a_task_with_airflows_operators_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure
