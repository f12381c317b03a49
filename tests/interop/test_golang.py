"""The Go SDK, unchanged. What is tested is in go/*.go."""

import os
import shutil
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
from tests.interop.golang import FOLDER, SOURCES, built_suite, sdk_version
from tests.interop.results import Recorder
from tests.interop.running_server import RunningServer

SCENARIOS = scenarios_in(SOURCES)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRun]:
    recorder = Recorder("Go SDK", sdk_version())
    with (
        stage(tmp_path_factory.mktemp("go")) as variables,
        playing(recorder, SCENARIOS, lambda: [str(built_suite())], variables) as suite,
    ):
        yield suite


@pytest.mark.parametrize("scenario", SCENARIOS, ids=name_of)
def test_the_sdk_gets_what_it_expects(run: SuiteRun, scenario: Scenario) -> None:
    assert not (failure := run.failure(scenario)), failure


def test_the_example_of_the_page_on_connecting_works_as_it_stands(tmp_path: Path) -> None:
    (example,) = examples("go")
    folder = tmp_path / "page-go"
    folder.mkdir()
    (folder / "main.go").write_text(example)
    for name in ("go.mod", "go.sum"):
        shutil.copy(FOLDER / name, folder)
    try:
        program = built_suite(folder)
    except SuiteUnavailable as missing:
        pytest.skip(f"the Go SDK cannot be run: {missing}")
    running = RunningServer(tmp_path / "data", store_count=2)
    try:
        environment = {
            **os.environ,
            "SERVICE_BUS": running.connection_string,
            "SSL_CERT_FILE": str(running.server.tls_authority),
        }
        done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    finally:
        running.stop()
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
