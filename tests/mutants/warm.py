"""Tests that are collected once and run in copies of that process, one for each change: a plugin for pytest,
`-p tests.mutants.warm`.

A copy (`fork`) has everything imported that the tests need, which takes longer than most tests. In the copy the changed function
gets new code, wherever it is used already; what is not imported yet, and processes that a test starts, find the changed file.
What is changed outside of all functions has been carried out by then, so a process of its own has to try that (`trial.Tree`).

Trials come as lines of JSON on one pipe, answers go back on another. A copy reports the test that it begins, and how it ended.
"""

import gc
import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest
from hypothesis import Phase, settings

from tests.mutants.unhindered import unhindered_time

PIPES = "TWINBUS_TRIAL_PIPES"
BEGIN_SECONDS_MAX = 60.0


class TestLimits(NamedTuple):
    """A test, and how long it may take: endless loops take processor time, and what is never told only time."""

    node_id: str
    cpu_seconds: float
    seconds: float


class Trial(NamedTuple):
    tests: list[TestLimits]  # in this order, up to the first that fails
    file: str = ""  # below `src/twinbus`; without, nothing is changed
    function: str = ""


class Answer(NamedTuple):
    """Without a test, all have passed."""

    test: str = ""
    how: str = ""
    seconds: float = 0.0  # that the last test took, less what others made it wait
    is_placed: bool = True  # whether the code of the change could be put in place


class Warm:
    def __init__(self, source: Path, trials: int, answers: int) -> None:
        self._source = source
        self._trials = os.fdopen(trials)
        self._answers = os.fdopen(answers, "w")
        self._has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed = self._has_failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        by_id = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()  # or every copy would write to all pages when it collects
        self._answer(sorted(by_id))
        for line in self._trials:
            found = json.loads(line)
            trial = Trial([TestLimits(*each) for each in found["tests"]], found["file"], found["function"])
            self._answer(self._fork(trial, by_id)._asdict())
        return True

    def _answer(self, answer: object) -> None:
        self._answers.write(f"{json.dumps(answer)}\n")
        self._answers.flush()

    def _fork(self, trial: Trial, by_id: dict[str, pytest.Item]) -> Answer:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            try:
                self._run(trial, by_id, write_end)
            finally:
                os._exit(1)
        os.close(write_end)
        try:
            return _result(child, read_end, trial)
        finally:
            os.close(read_end)
            # With what the tests started.
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _run(self, trial: Trial, by_id: dict[str, pytest.Item], progress: int) -> None:
        if trial.file and trial.function and not self._put_in_place(trial):
            _tell(progress, "no place")
            return
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        chosen = [(number, by_id[test.node_id]) for number, test in enumerate(trial.tests) if test.node_id in by_id]
        following = [*[item for _, item in chosen[1:]], None]
        for (number, item), next_item in zip(chosen, following, strict=True):
            _tell(progress, number)
            signal.setitimer(signal.ITIMER_PROF, trial.tests[number].cpu_seconds)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            if self._has_failed:
                _tell(progress, "failed")
                return
        signal.setitimer(signal.ITIMER_PROF, 0)
        _tell(progress, "passed")

    def _put_in_place(self, trial: Trial) -> bool:
        """In every function that was made of the changed code, also those that others have wrapped or keep."""
        path = self._source / trial.file
        if str(path) not in {getattr(module, "__file__", None) for module in sys.modules.values()}:
            return True
        codes = list(_codes(compile(path.read_bytes(), str(path), "exec")))
        gc.unfreeze()  # what is frozen is not among the objects
        functions = [
            each
            for each in gc.get_objects()
            if isinstance(each, FunctionType) and each.__code__.co_filename == str(path)
        ]
        gc.freeze()
        replaced = [_set_code(each, codes) for each in functions if _is_around(each, trial.function)]
        return bool(replaced) and all(replaced)


def _tell(progress: int, what: int | str) -> None:
    os.write(progress, f"{json.dumps(what)}\n".encode())


def _result(child: int, read_end: int, trial: Trial) -> Answer:
    test, limit, received = "", BEGIN_SECONDS_MAX, b""
    began_at = unhindered_time(child)

    def taken() -> float:
        return unhindered_time(child) - began_at

    while True:
        if not select.select([read_end], [], [], max(0.0, limit - taken()))[0]:
            if taken() < limit:
                continue  # others had the processors
            return Answer(test, "the time limit", taken())
        piece = os.read(read_end, 65_536)
        if not piece:
            # By the limit of processor time as well.
            return Answer(test, "the end of the process", taken())
        *lines, received = (received + piece).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if told == "no place":
                return Answer(is_placed=False)
            if told == "passed":
                return Answer(seconds=taken())
            if told == "failed":
                return Answer(test, "failed", taken())
            test, limit = trial.tests[told].node_id, trial.tests[told].seconds
            began_at = unhindered_time(child)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _is_around(function: FunctionType, changed: str) -> bool:
    """Whether it is the changed function or has that inside, as a function or a lambda of its own."""
    name = function.__code__.co_qualname.replace(".<locals>", "").partition(".<")[0]
    return f"{changed}.".startswith(f"{name}.")


def _set_code(function: FunctionType, codes: list[CodeType]) -> bool:
    old = function.__code__
    found = [code for code in codes if code.co_qualname == old.co_qualname and code.co_freevars == old.co_freevars]
    if len(found) > 1:
        # A property and its setter; a change moves what is behind it at most.
        found = [code for code in found if code.co_firstlineno == old.co_firstlineno]
    for code in found:
        function.__code__ = code
    return bool(found)


def pytest_configure(config: pytest.Config) -> None:
    trials, answers = map(int, os.environ[PIPES].split())
    # That an example fails is enough: nobody reads a smaller one.
    settings.register_profile("mutants", settings.default, phases=(Phase.explicit, Phase.generate), database=None)
    settings.load_profile("mutants")
    config.pluginmanager.register(Warm(config.rootpath / "src" / "twinbus", trials, answers))
