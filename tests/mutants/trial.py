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
from itertools import accumulate
from pathlib import Path
from typing import IO, NamedTuple

from tests.mutants import reach, warm
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

REACH_TIMEOUT_S = 5_400
START_TIMEOUT_S = 60
NICENESS = 10
"""Nobody waits for it: whatever else the machine does comes first."""
NEAR_SECONDS_MAX, FAR_SECONDS_MAX = 60.0, 30.0
"""Of tests that try one change, the quickest first: a change to what everybody calls would be tried by all of them."""
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
        return [group for group in (_first(near, NEAR_SECONDS_MAX), _first(far, FAR_SECONDS_MAX)) if group]


def _first(tests: list[TimedTest], seconds_max: float) -> list[TimedTest]:
    ends = accumulate([test.seconds for test in tests])
    return [test for test, end in zip(tests, ends, strict=True) if end <= seconds_max or test is tests[0]]


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
        self._warm: TestProcess | None = None

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, *_: object) -> None:
        if self._warm is not None:
            self._warm.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def tests(self, report: Path | None = None) -> Callers:
        """Runs them all once, and leaves behind which functions each of them calls; unless an earlier run did."""
        report = self._folder / "reach.json" if report is None else report.absolute()
        folders = [f"tests/{folder}" for folder in FOLDERS]
        if not report.exists():
            self._trace(folders, report)
        tests = Callers(report.read_text())
        self._warm = TestProcess(self.root, folders)
        # If tests that pass fail here, then every change would seem to be noticed.
        control = self._warm.first_failure(tests.sample())
        if control is not None:
            raise RuntimeError(f"Without a change, tests fail in the copy of the tree: {control}")
        return tests

    def _trace(self, folders: list[str], report: Path) -> None:
        with open(self._folder / "reach.log", "wb") as log:
            process = _start(self.root, ["-p", "tests.mutants.reach", *folders], {reach.REPORT: str(report)}, log)
            try:
                status = process.wait(REACH_TIMEOUT_S)
            finally:
                _kill(process)
        if not report.exists():
            output = (self._folder / "reach.log").read_text(errors="replace")
            raise RuntimeError(f"The tests cannot be run (exit code {status}):\n{output}")

    def notices(self, file: str, mutation: Mutation, tests: Callers) -> str | None:
        """What noticed the change: a test, or that the time was up. None if nothing did."""
        path = self.source / file
        original = path.read_bytes()
        # A compiled file counts as current by size and second, and a change often has neither of them.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_bytes(mutation.apply(original))
        try:
            function = mutation.function
            if function and not tests.of(file, function):
                function = ""  # called by nobody but the file itself, while it is imported
            for group in tests.of(file, function):
                found = self._try(file, function, group)
                if found is not None:
                    return found
            return None
        finally:
            path.write_bytes(original)

    def _try(self, file: str, function: str, tests: Sequence[TimedTest]) -> str | None:
        assert self._warm is not None
        if function:
            found = self._warm.first_failure(tests, file, function)
            if found != warm.NO_PLACE:
                return found
        files = dict.fromkeys(test.node_id.partition("::")[0] for test in tests)
        try:
            own = TestProcess(self.root, list(files))
        except BrokenTests:
            return "the import"
        try:
            return own.first_failure(tests)
        finally:
            own.end()


class BrokenTests(Exception):
    """They cannot even be collected."""


class TestProcess:
    """pytest with these folders or files collected, which tries changes in copies of itself (`tests.mutants.warm`)."""

    __test__ = False  # for pytest, which would take it for tests

    def __init__(self, root: Path, folders: Sequence[str]) -> None:
        trials, self._to = os.pipe()
        self._from, answers = os.pipe()
        environment = {warm.PIPES: f"{trials} {answers}", "PYTHONDONTWRITEBYTECODE": "1"}
        arguments = ["-p", "tests.mutants.warm", *folders]
        self._process = _start(root, arguments, environment, subprocess.DEVNULL, (trials, answers))
        os.close(trials)
        os.close(answers)
        self._answers = os.fdopen(self._from)
        if not self._answers.readline():
            self.end()
            raise BrokenTests

    def first_failure(self, tests: Sequence[TimedTest], file: str = "", function: str = "") -> str | None:
        timeout = START_TIMEOUT_S + SLOWDOWN_MAX * sum(test.seconds for test in tests)
        trial = warm.Trial([test.node_id for test in tests], timeout, file, function)
        os.write(self._to, f"{json.dumps(trial._asdict())}\n".encode())
        found: str | None = json.loads(self._answers.readline())
        return found

    def end(self) -> None:
        self._answers.close()
        os.close(self._to)
        _kill(self._process)


def _start(
    root: Path, arguments: list[str], environment: dict[str, str], output: int | IO[bytes], kept: tuple[int, ...] = ()
) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--hypothesis-seed", "0", "-m", "not slow"]
    # Before the installed package, whose path comes after these.
    paths = f"{root / 'src'}{os.pathsep}{root}"
    return subprocess.Popen(
        [*command, "--basetemp", str(root.parent / "tmp"), *arguments],
        cwd=root,
        env={**os.environ, **environment, "PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=kept,
        start_new_session=True,
        preexec_fn=lambda: os.nice(NICENESS),
    )


def _kill(process: "subprocess.Popen[bytes]") -> None:
    # With what the tests started.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
