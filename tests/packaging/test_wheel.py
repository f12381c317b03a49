"""What is shipped works where nothing else is: a wheel is built, installed in a clean environment, and used from there.

Needs the package index, for setuptools and for what twinbus depends on.
"""

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

INSTALL_MAX_S = 600.0
SHIPPED = (
    "twinbus/py.typed",
    "twinbus/store/folder/sql/schema.sql",
    "twinbus/cost/example_prices.toml",
    "twinbus/rehearsal/rehearsal.py",
    "pyspark_servicebus/__init__.py",
)

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(command, check=True, timeout=INSTALL_MAX_S)
    (made,) = folder.glob("twinbus-*.whl")
    return made


@pytest.fixture(scope="module")
def twinbus(source: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment that has the wheel, what it depends on, and nothing else."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    command = [
        home / "bin/python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        source / "constraints.txt",
        wheel,
    ]
    subprocess.run([str(word) for word in command], check=True, timeout=INSTALL_MAX_S)
    return home / "bin" / "twinbus"


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somewhere else, with nothing of this repository on the way."""
    monkeypatch.chdir(tmp_path)
    for name in ("PYTHONPATH", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def said(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_what_is_not_python_too(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert names.issuperset(SHIPPED)
    assert not any(name.startswith(("tests/", "bench/")) for name in names)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_it_says_its_version_and_looks_at_the_machine(twinbus: Path, clean: Path) -> None:
    assert said(twinbus, "--version").count(".") == 2
    checks = subprocess.run([twinbus, "doctor", "--json"], capture_output=True, text=True, timeout=60, check=False)
    names = {finding["check"] for finding in json.loads(checks.stdout)}
    assert {"python", "azure-servicebus"} <= names


def test_it_serves_and_a_message_goes_through(twinbus: Path, clean: Path) -> None:
    options = ["--data", "data", "--amqp-port", "0", "--http-port", "0", "--queue", "orders"]
    with subprocess.Popen(
        [twinbus, "serve", "primary", *options, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as serving:
        assert serving.stdout is not None
        assert serving.stdout.readline()
        try:
            said(twinbus, "send", "orders", "hello", "--data", "data")
            assert "hello" in said(twinbus, "receive", "orders", "--data", "data")
        finally:
            serving.send_signal(signal.SIGINT)
    assert serving.returncode == 0


def test_it_rehearses_an_outage_without_spark(twinbus: Path, clean: Path) -> None:
    report = json.loads(said(twinbus, "rehearse", "--duration", "6", "--json", "--report", "report.html"))
    assert report["is_balanced"]
    assert report["settings"]["engine"] == "process"
    assert os.path.getsize("report.html") > 10_000


def test_a_price_sheet_comes_with_it(twinbus: Path, clean: Path) -> None:
    assert "price sheet 'example'" in said(twinbus, "cost", "prices")
