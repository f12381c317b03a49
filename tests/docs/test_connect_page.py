"""The Python of the page on connecting works with what a namespace prints. Its JavaScript, Java and Go are in tests/interop."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.running_server import RunningServer

PAGE = Path(__file__).parents[2] / "docs/how-to/connect.md"
RUN_TIMEOUT_S = 60.0


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    running = RunningServer(tmp_path_factory.mktemp("data"), store_count=2)
    authority = str(running.server.tls_authority)
    yield {**os.environ, "SERVICE_BUS": running.connection_string, "AUTHORITY": authority}
    running.stop()


def said(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_works_as_it_stands(environment: dict[str, str]) -> None:
    (example,) = examples("python")
    assert said([sys.executable, "-c", example], environment) == "hello\n"


@pytest.mark.parametrize("language", ["javascript", "java", "go", "csharp"])
def test_other_languages_have_an_example(language: str) -> None:
    assert examples(language)
