"""Which functions each test calls, a plugin for pytest: `-p tests.mutants.reach` writes a file of JSON.

Only calls are traced, not lines: that costs little, and a change inside a function can be noticed by nobody who does not call it.
A function is named as `amqp/session.py:Session.begin`; lambdas and comprehensions count as the function they are in. What a file
has outside of its functions is noticed by those who import from it: `amqp/session.py:`, for every test of a file that does.
"""

import ast
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import pytest

REPORT = "TWINBUS_REACH_REPORT"
INNER = ".<locals>.<"


def function_name(file: str, qualified: str) -> str:
    """`qualified` as Python has it, such as `Session.begin.<locals>.<lambda>`."""
    return f"{file}:{qualified.partition(INNER)[0].replace('.<locals>', '')}"


@cache
def imports(test_file: Path) -> frozenset[str]:
    """The files that it imports something from, as functions without a name."""
    found = [node for node in ast.walk(ast.parse(test_file.read_bytes())) if isinstance(node, ast.ImportFrom)]
    modules = {
        name
        for node in found
        if node.module is not None and node.module.startswith("twinbus.")
        for name in (node.module, *[f"{node.module}.{alias.name}" for alias in node.names])
    }
    return frozenset(function_name(f"{name.removeprefix('twinbus.').replace('.', '/')}.py", "") for name in modules)


def clear_caches() -> None:
    """Or only the first test that needs a function with a cache would be seen to call it."""
    for name in [name for name in sys.modules if name.startswith("twinbus.")]:
        for value in list(vars(sys.modules[name]).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()


class Reach:
    def __init__(self, source: Path, report: Path) -> None:
        self._source = f"{source}{os.sep}"
        self._report = report
        self._called: set[CodeType] = set()
        self._tests: dict[str, tuple[float, set[str]]] = {}
        self._failed: set[str] = set()

    def _trace(self, frame: FrameType, event: str, _: object) -> None:
        self._called.add(frame.f_code)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._called = set()
        clear_caches()
        # Not by the clock: on a machine that is busy with other things every test would seem too slow to be tried.
        started = time.process_time()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        yield
        sys.settrace(None)
        threading.settrace(None)
        self._tests[item.nodeid] = (time.process_time() - started, self._functions() | imports(item.path))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        tests = {
            test: {"seconds": round(seconds, 4), "functions": sorted(functions)}
            for test, (seconds, functions) in self._tests.items()
            if test not in self._failed
        }
        self._report.write_text(json.dumps({"tests": tests, "failed": sorted(self._failed)}))

    def _functions(self) -> set[str]:
        return {
            function_name(code.co_filename[len(self._source) :], code.co_qualname)
            for code in self._called.copy()
            if code.co_filename.startswith(self._source)
        }


def pytest_configure(config: pytest.Config) -> None:
    source = config.rootpath / "src" / "twinbus"
    config.pluginmanager.register(Reach(source, Path(os.environ[REPORT])))
