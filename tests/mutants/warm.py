"""Tests that are collected once and run in copies of that process, one for each change: a plugin for pytest,
`-p tests.mutants.warm`.

A copy (`fork`) has everything imported that the tests need, which takes longer than most tests. In the copy the changed function
gets new code, wherever it is used already; what is not imported yet, and processes that a test starts, find the changed file.
What is changed outside of all functions has been carried out by then, so a process of its own has to try that (`trial.Tree`).

Trials come as lines of JSON on one pipe, answers go back on another.
"""

import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

PIPES = "TWINBUS_TRIAL_PIPES"
TIME_LIMIT = "the time limit"
NO_PLACE = "no place"
"""The answer where the code of a change cannot be put in place."""


class Trial(NamedTuple):
    tests: list[str]  # ids, in this order, up to the first that fails
    timeout: float
    file: str = ""  # below `src/twinbus`; without, nothing is changed
    function: str = ""


class Warm:
    def __init__(self, source: Path, trials: int, answers: int) -> None:
        self._source = source
        self._trials = os.fdopen(trials)
        self._answers = os.fdopen(answers, "w")
        self._failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = self._failed or report.nodeid

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        by_id = {item.nodeid: item for item in session.items}
        self._answer(sorted(by_id))
        for line in self._trials:
            trial = Trial(**json.loads(line))
            self._answer(self._fork(trial, [by_id[test] for test in trial.tests if test in by_id]))
        return True

    def _answer(self, answer: object) -> None:
        self._answers.write(f"{json.dumps(answer)}\n")
        self._answers.flush()

    def _fork(self, trial: Trial, items: list[pytest.Item]) -> str | None:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            try:
                found = self._run(trial, items)
                os.write(write_end, json.dumps(found).encode())
            finally:
                os._exit(1)
        os.close(write_end)
        try:
            return _result(read_end, trial.timeout)
        finally:
            os.close(read_end)
            # With what the tests started.
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _run(self, trial: Trial, items: list[pytest.Item]) -> str | None:
        if trial.file and trial.function and not self._put_in_place(trial):
            return NO_PLACE
        for item, next_item in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            if self._failed:
                return self._failed
        return None

    def _put_in_place(self, trial: Trial) -> bool:
        """In every function that was made of the changed code, also those that others have wrapped or keep."""
        path = self._source / trial.file
        if str(path) not in {getattr(module, "__file__", None) for module in sys.modules.values()}:
            return True
        codes = list(_codes(compile(path.read_bytes(), str(path), "exec")))
        functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        replaced = [_set_code(each, codes) for each in functions if each.__code__.co_filename == str(path)]
        return any(replaced)


def _result(read_end: int, timeout: float) -> str | None:
    ends_at, found = time.monotonic() + timeout, b""
    while True:
        if not select.select([read_end], [], [], max(0.0, ends_at - time.monotonic()))[0]:
            return TIME_LIMIT
        piece = os.read(read_end, 65_536)
        found += piece
        if not piece:
            break
        with suppress(ValueError):
            result: str | None = json.loads(found)
            return result
    return "the end of the process"


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


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
    config.pluginmanager.register(Warm(config.rootpath / "src" / "twinbus", trials, answers))
