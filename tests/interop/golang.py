"""Go and its SDK: the suite in go/, built once into the build folder, which git ignores. A change of its sources builds it again.

Suites of frameworks in Go are built the same way, from folders of their own.
"""

import re
import shutil
import subprocess
from pathlib import Path

from tests.interop.foreign_suite import SuiteUnavailable, build_folder, start_anew

FOLDER = Path(__file__).parent / "go"
SOURCES = sorted(FOLDER.glob("*.go"))
BUILD_TIMEOUT_S = 50.0


def sdk_version() -> str:
    return module_version("github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus")


def module_version(module: str, folder: Path = FOLDER) -> str:
    found = re.search(rf"{re.escape(module)} v(\S+)", (folder / "go.mod").read_text())
    assert found is not None
    return found[1]


def built_suite(folder: Path = FOLDER, shared: Path | None = None, timeout_s: float = BUILD_TIMEOUT_S) -> Path:
    """The program. Raises SuiteUnavailable where Go is missing or cannot get the modules.

    `shared`: the folder of a module that several suites have in common.
    """
    if shutil.which("go") is None:
        raise SuiteUnavailable("go is not installed")
    common = () if shared is None else sorted(shared.glob("*.go"))
    sources = (*sorted(folder.glob("*.go")), folder / "go.mod", folder / "go.sum", *common)
    program = build_folder(folder.name, sources) / "suite"
    if not program.exists():
        start_anew(program.parent)
        _build(program, folder, timeout_s)
    return program


def _build(program: Path, folder: Path, timeout_s: float) -> None:
    _get_modules(folder, timeout_s)
    try:
        command = ["go", "build", "-o", str(program), "."]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise SuiteUnavailable("go did not build the suite in time; what it built is kept, so try again") from None
    assert done.returncode == 0, f"the suite does not build: {done.stderr}"


def _get_modules(folder: Path, timeout_s: float) -> None:
    try:
        command = ["go", "mod", "download"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise SuiteUnavailable("go could not get the modules of the SDK in time") from None
    if done.returncode != 0:
        raise SuiteUnavailable(f"go could not get the modules of the SDK: {done.stderr.strip()[-500:]}")
