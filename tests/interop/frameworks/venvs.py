"""Environments for Python frameworks: the folder of one, with exactly the packages of a file, once it is installed.

Installed once into the build folder, which git ignores; a change of the file installs it again.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

from tests.interop.foreign_suite import SuiteUnavailable, build_folder, start_anew

PYTHON = Path(__file__).parent / "python"
INSTALL_TIMEOUT_S = 110.0


class Environment:
    """`name`: of the file of its packages, `python/NAME.txt`, which pins all of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._packages = PYTHON / f"{name}.txt"

    def version_of(self, package: str) -> str:
        found = re.search(rf"^{package}==(\S+)$", self._packages.read_text(), re.MULTILINE)
        assert found is not None
        return found[1]

    def python(self) -> Path:
        """Raises SuiteUnavailable where pip cannot get the packages."""
        folder = build_folder(f"python-{self._name}", [self._packages])
        python = folder / "bin" / "python"
        if not (folder / "installed").exists():
            venv.create(start_anew(folder), symlinks=True)
            _install(python, self._packages)
            (folder / "installed").touch()
        return python


def _install(python: Path, packages: Path) -> None:
    command = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--retries=1", "--only-binary=:all:", "--requirement", str(packages)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise SuiteUnavailable("pip could not get the packages in time; what it got is kept, so try again") from None
    if done.returncode != 0:
        raise SuiteUnavailable(f"pip could not install the packages: {done.stderr.strip()[-500:]}")
