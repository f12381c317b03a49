"""What would be uploaded passes the usual checks, and `pipx install` makes a command of it. Needs the package index."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

INSTALL_MAX_S = 900.0
TOOLS = ("build", "twine", "check-wheel-contents", "pipx")

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("tools")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    command = [home / "bin/python", "-m", "pip", "install", "--quiet", *TOOLS]
    subprocess.run([str(word) for word in command], check=True, timeout=INSTALL_MAX_S)
    return home / "bin"


@pytest.fixture(scope="module")
def built(source: Path, tools: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The source distribution and the wheel, in this order."""
    folder = tmp_path_factory.mktemp("dist")
    run(tools / "python", "-m", "build", "--outdir", folder, source)
    return [*folder.glob("*.tar.gz"), *folder.glob("*.whl")]


def run(*words: object, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=INSTALL_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_index_and_linters_accept_both(built: list[Path], tools: Path) -> None:
    archive, wheel = built
    run(tools / "twine", "check", "--strict", archive, wheel)
    # Spark finds the data source by a package of that name.
    run(tools / "check-wheel-contents", "--toplevel", "twinbus,pyspark_servicebus", wheel)
    with tarfile.open(archive) as opened:
        assert any(name.endswith("/LICENSE") for name in opened.getnames())


def test_pipx_makes_a_command_of_it(built: list[Path], tools: Path, tmp_path: Path) -> None:
    home = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    run(tools / "pipx", "install", "--python", sys.executable, built[1], **home)
    assert run(tmp_path / "bin/twinbus", "--version").count(".") == 2
    assert "Serve two namespaces" in run(tmp_path / "bin/twinbus", "-h")
