"""A copy of the tree in which files are changed and tests run: a change in, what noticed it out.

The working tree is never touched. Tests are chosen by the lines that they reach (`tests.mutants.callers`): first those in the folder
that belongs to the package, the quickest first, then all others. What takes too long with a change has noticed it only if it passes
without the change, in much less time than the limit; what fails, if it passes in such a time, or if both happen twice.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import IO

import psutil

from tests.mutants import reach, warm
from tests.mutants.callers import Callers, TimedTest
from tests.mutants.mutations import Mutation

COPIED = (
    "src",
    "tests",
    "bench",
    "deploy",
    "docs",
    "examples",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
)
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "node_modules")

TREE = "TWINBUS_MUTANTS_TREE"
"""In the environment of all processes that run tests of a tree, and of all that those start: PostgreSQL is in no group of theirs."""
REACH_TIMEOUT_S = 5_400
END_TIMEOUT_S = 10.0
NICENESS = 10
"""Nobody waits for it: whatever else the machine does comes first."""
CPU_SECONDS_MIN, CPU_SLOWDOWN_MAX = 3.0, 5
SECONDS_MIN, SLOWDOWN_MAX = 20.0, 10
"""How much longer than without a change a test may take. A change that makes a loop endless is noticed by that alone."""
CONTROL_SHARE = 0.25
"""Of its limit: a test that needs more without a change cannot say that a change has made it slow."""


def limits(test: TimedTest) -> warm.TestLimits:
    return warm.TestLimits(
        test.node_id,
        max(CPU_SECONDS_MIN, CPU_SLOWDOWN_MAX * test.seconds),
        max(SECONDS_MIN, SLOWDOWN_MAX * test.clock),
    )


class Tree:
    """The copy. Use it in a `with`: it is deleted at the end."""

    def __init__(self, root: Path, folders: Sequence[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="twinbus-mutants-"))
        self.root = self.folder / "tree"
        for name in COPIED:
            source, target = root / name, self.root / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=IGNORED)
            else:
                shutil.copy2(source, target)
        self.source = self.root / "src" / "twinbus"
        self._folders = folders
        self._warm: TestProcess | None = None

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, *_: object) -> None:
        if self._warm is not None:
            self._warm.end()
        self.end_processes()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end_processes(self) -> None:
        """Another thread may still work here: what it starts meanwhile ends as well."""
        deadline = time.monotonic() + END_TIMEOUT_S
        while (found := _processes(self.root)) and time.monotonic() < deadline:
            for process in found:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(found, END_TIMEOUT_S)

    def trace(self, files: Sequence[str]) -> str:
        """Runs the tests of these files once, and returns what `tests.mutants.reach` says about them."""
        report, log_path = self.folder / "reach.json", self.folder / "reach.log"
        report.unlink(missing_ok=True)  # of the files before
        with open(log_path, "wb") as log:
            process = _start(self.root, ["-p", "tests.mutants.reach", *files], {reach.REPORT: str(report)}, log)
            try:
                status = process.wait(REACH_TIMEOUT_S)
            finally:
                _kill(process)
        if not report.exists():
            raise RuntimeError(f"The tests cannot be run (exit code {status}):\n{log_path.read_text(errors='replace')}")
        return report.read_text()

    def warm_up(self) -> None:
        self._warm = TestProcess(self.root, self._folders)

    def notices(self, file: str, mutation: Mutation, tests: Callers) -> str | None:
        """What noticed the change: a test, or that the time was up. None if nothing did."""
        function, chosen = tests.of(file, mutation)
        if not chosen:
            return None
        path = self.source / file
        original = path.read_bytes()
        changed = mutation.apply(original)
        # A compiled file counts as current by size and second, and a change often has neither of them.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

        def attempt(tests: Sequence[TimedTest]) -> warm.Answer:
            path.write_bytes(changed)
            try:
                return self._try(file, function, tests)
            finally:
                path.write_bytes(original)

        while chosen:
            found = attempt(chosen)
            if not found.test:
                return None
            names = [test.node_id for test in chosen]
            at = names.index(found.test)
            passed = self._passed(chosen[at])
            if passed is Passed.SLOWLY and found.how == "failed":
                # The machine is busy with other things. What fails again, and then passes again, fails because of the change.
                is_noticed = attempt([chosen[at]]).how == "failed" and self._passed(chosen[at]) is not Passed.NOT
            else:
                is_noticed = passed is Passed.IN_TIME
            if is_noticed:
                return found.test if found.how == "failed" else f"{found.test}: {found.how}"
            chosen = chosen[at + 1 :]
        return None

    def _try(self, file: str, function: str, tests: Sequence[TimedTest]) -> warm.Answer:
        assert self._warm is not None
        if function:
            found = self._warm.first_failure(tests, file, function)
            if found.is_placed:
                return found
        files = dict.fromkeys(test.node_id.partition("::")[0] for test in tests)
        try:
            own = TestProcess(self.root, list(files))
        except BrokenTests:
            return warm.Answer(tests[0].node_id, "the import")
        try:
            return own.first_failure(tests)
        finally:
            own.end()

    def _passed(self, test: TimedTest) -> "Passed":
        """Without the change."""
        assert self._warm is not None
        found = self._warm.first_failure([test])
        if found.test:
            return Passed.NOT
        is_in_time = found.seconds <= CONTROL_SHARE * limits(test).seconds
        return Passed.IN_TIME if is_in_time else Passed.SLOWLY


class Passed(Enum):
    NOT = auto()
    SLOWLY = auto()
    IN_TIME = auto()


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

    def first_failure(self, tests: Sequence[TimedTest], file: str = "", function: str = "") -> warm.Answer:
        trial = warm.Trial([limits(test) for test in tests], file, function)
        line = memoryview(f"{json.dumps(trial._asdict())}\n".encode())
        while line:
            line = line[os.write(self._to, line) :]
        return warm.Answer(**json.loads(self._answers.readline()))

    def end(self) -> None:
        self._answers.close()
        os.close(self._to)
        _kill(self._process)


def _start(
    root: Path, arguments: list[str], environment: dict[str, str], output: int | IO[bytes], kept: tuple[int, ...] = ()
) -> "subprocess.Popen[bytes]":
    command = ["nice", "-n", str(NICENESS), sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += ["--hypothesis-seed", "0", "-m", "not slow"]
    # Before the installed package, whose path comes after these.
    paths = f"{root / 'src'}{os.pathsep}{root}"
    return subprocess.Popen(
        [*command, "--basetemp", tempfile.mkdtemp(dir=root.parent), *arguments],
        cwd=root,
        env={**os.environ, **environment, "PYTHONPATH": paths, TREE: str(root)},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=kept,
        start_new_session=True,
    )


def _kill(process: "subprocess.Popen[bytes]") -> None:
    # With what the tests started.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _processes(root: Path) -> list[psutil.Process]:
    """Whatever runs tests of this tree, or was started by them."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(TREE) == str(root):
                found.append(process)
    return found
