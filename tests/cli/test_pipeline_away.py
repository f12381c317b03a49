"""Jobs on Spark whose namespace cannot be reached. There is no Java here, so one that starts Spark complains about that."""

from pathlib import Path

import pytest

from twinbus.cli.app import run

AWAY = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true"
NOTHING = "twinbus: Nothing answers at 127.0.0.1:1: "


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))


def failure(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["pipeline", *words, "--connection-string", AWAY]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("capture", "orders", "--lake", "lake", "--available-now"),
        ("replay", "orders", "--dead-letters"),
        ("replay", "orders", "--dead-letters", "--dry-run"),
        ("replay", "--lake", "lake"),
    ],
)
def test_a_job_that_needs_its_namespace_looks_for_it_before_spark_starts(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    said = failure(capsys, *words)
    assert said.startswith(NOTHING)
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [("capture", "orders", "--lake", "lake"), ("replay", "--lake", "lake", "--dry-run")],
    ids=["a capture without end may begin in an outage", "a lake can be counted without a namespace"],
)
def test_a_job_that_can_begin_without_its_namespace_starts_spark(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert "no-java" in failure(capsys, *words)
