"""A copy of the tree in which files are changed and tests run: a change in, what noticed it out.

The working tree is never touched. Tests are chosen by what they call (`tests.mutants.reach`): first those in the folder
that belongs to the package, the quickest first, then all others.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutants import chosen, reach
from tests.mutants.mutations import Mutation

FOLDERS = (
    *("amqp", "broker", "contract", "contract_a", "definitions", "gateway", "http", "management", "meter", "model"),
    *("server", "simulation", "store"),
)
"""Of tests that start no process; those of `http` and `server` start namespaces in their own."""

NEAREST = {"store": ("store", "contract")}
"""Folders of tests for a package, where that is not the one of its name."""

COPIED = ("src", "tests", "bench", "docs", "examples", "pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "node_modules")

REACH_TIMEOUT_S = 1_800
START_TIMEOUT_S = 60
SLOWDOWN_MAX = 10
"""How much longer than without a change tests may take. A change that makes a loop endless is noticed by that alone."""


class TimedTest(NamedTuple):
    node_id: str
    seconds: float


class Callers:
    """The tests of the tree by the functions that they call."""

    def __init__(self, report: str) -> None:
        found = json.loads(report)
        self.failed: list[str] = found["failed"]
        self.count = len(found["tests"])
        self._by_function: dict[str, list[TimedTest]] = {}
        self._by_file: dict[str, dict[TimedTest, None]] = {}
        for node_id, facts in found["tests"].items():
            test = TimedTest(node_id, facts["seconds"])
            for function in facts["functions"]:
                self._by_function.setdefault(function, []).append(test)
                self._by_file.setdefault(function.partition(":")[0], {})[test] = None

    def sample(self) -> list[TimedTest]:
        """One of each file."""
        tests = [test for tests in self._by_file.values() for test in tests]
        return list(
            {test.node_id.partition("::")[0]: test for test in sorted(tests, key=lambda test: -test.seconds)}.values()
        )

    def of(self, file: str, function: str) -> list[list[TimedTest]]:
        """Those that call the function, or anything in the file if it is not in one: the nearest ones, and the others."""
        if function:
            tests = self._by_function.get(f"{file}:{function}", [])
        else:
            tests = list(self._by_file.get(file, {}))
        package = file.partition("/")[0]
        folders = tuple(f"tests/{folder}/" for folder in NEAREST.get(package, (package,)))
        tests = sorted(tests, key=lambda test: test.seconds)
        near = [test for test in tests if test.node_id.startswith(folders)]
        far = [test for test in tests if not test.node_id.startswith(folders)]
        return [group for group in (near, far) if group]


class Tree:
    """The copy. Use it in a `with`: it is deleted at the end."""

    def __init__(self, root: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="twinbus-mutants-"))
        self.root = self._folder / "tree"
        for name in COPIED:
            source, target = root / name, self.root / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=IGNORED)
            else:
                shutil.copy2(source, target)
        self.source = self.root / "src" / "twinbus"

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def tests(self) -> Callers:
        """Runs them all once. It also leaves compiled files behind, which later runs read and never write."""
        report = self._folder / "reach.json"
        folders = [f"tests/{folder}" for folder in FOLDERS]
        environment = {reach.REPORT: str(report)}
        status, output = self._pytest(["-p", "tests.mutants.reach", *folders], environment, REACH_TIMEOUT_S)
        if not report.exists():
            raise RuntimeError(f"The tests cannot be run (exit code {status}):\n{output}")
        tests = Callers(report.read_text())
        # If tests that pass fail here, then every change would seem to be noticed.
        control = self._first_failure(tests.sample())
        if control is not None:
            raise RuntimeError(f"Without a change, tests fail in the copy of the tree: {control}")
        return tests

    def notices(self, file: str, mutation: Mutation, tests: Callers) -> str | None:
        """What noticed the change: a test, or that the time was up. None if nothing did."""
        path = self.source / file
        original = path.read_bytes()
        # A compiled file counts as current by size and second, and a change often has neither of them.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_bytes(mutation.apply(original))
        try:
            for group in tests.of(file, mutation.function):
                found = self._first_failure(group)
                if found is not None:
                    return found
            return None
        finally:
            path.write_bytes(original)

    def _first_failure(self, tests: Sequence[TimedTest]) -> str | None:
        listed = self._folder / "chosen.txt"
        listed.write_text("\n".join([test.node_id for test in tests]))
        files = dict.fromkeys(test.node_id.partition("::")[0] for test in tests)
        environment = {chosen.CHOSEN: str(listed), "PYTHONDONTWRITEBYTECODE": "1"}
        timeout = START_TIMEOUT_S + SLOWDOWN_MAX * sum(test.seconds for test in tests)
        status, output = self._pytest(["-x", "-p", "tests.mutants.chosen", *files], environment, timeout)
        if status is None:
            return "the time limit"
        if status == 0:
            return None
        if status == pytest.ExitCode.NO_TESTS_COLLECTED:
            raise RuntimeError(f"Tests that were there before are not found any more:\n{output}")
        failures = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return failures[0].split()[1] if failures else f"pytest, with exit code {status}"

    def _pytest(self, arguments: list[str], environment: dict[str, str], timeout: float) -> tuple[int | None, str]:
        """Exit code and output; None if it was not over in time."""
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hypothesis-seed", "0", "-m", "not slow"]
        # Before the installed package, whose path comes after these.
        paths = f"{self.root / 'src'}{os.pathsep}{self.root}"
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=self.root,
            env={**os.environ, **environment, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            # With what the tests started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return process.returncode, output
