"""Which lines each test reaches, a plugin for pytest: `-p tests.mutants.reach` writes a file of JSON.

A change in a line can be noticed by nobody who does not reach it. Lines are bits of a number for each file, and bit 0 stands for what a
file has outside of its functions, which is noticed by those who import from it: every test of a file that does. Functions may be called
while files are imported, too: those lines are reported apart from the tests. A function that is called again and again is traced for
the first calls only, and then counts as reached with all of its lines.
"""

import ast
import hashlib
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.mutants.unhindered import unhindered_time

REPORT = "TWINBUS_REACH_REPORT"
CALLS_TRACED = 40
"""Of one function in one test."""


def bits(lines: Iterable[int]) -> int:
    """`lines` may have None in it, as Python's own list of the lines of a function has."""
    found = 0
    for line in set(lines):
        found |= 1 << (line or 0)
    return found


def digest(paths: Iterable[Path]) -> str:
    """Of all of them together, to see whether anything has changed."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(path.name.encode())
        found.update(path.read_bytes())
    return found.hexdigest()


@cache
def imports(test_file: Path) -> frozenset[str]:
    """The files that it imports something from."""
    found = [node for node in ast.walk(ast.parse(test_file.read_bytes())) if isinstance(node, ast.ImportFrom)]
    modules = {
        name
        for node in found
        if node.module is not None and node.module.startswith("twinbus.")
        for name in (node.module, *[f"{node.module}.{alias.name}" for alias in node.names])
    }
    return frozenset(f"{name.removeprefix('twinbus.').replace('.', '/')}.py" for name in modules)


def clear_caches() -> None:
    """Or only the first test that needs a function with a cache would be seen to call it."""
    for name in [name for name in sys.modules if name.startswith("twinbus.")]:
        for value in list(vars(sys.modules[name]).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()


class Tracer:
    """The lines of one test, or of all imports."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._calls_left: dict[CodeType, int] = {}
        self._lines: set[tuple[CodeType, int]] = set()

    def begin(self) -> None:
        threading.settrace(self.call)
        sys.settrace(self.call)

    def end(self) -> dict[str, int]:
        sys.settrace(None)
        threading.settrace(None)
        return self._by_file()

    def call(self, frame: FrameType, event: str, _: object) -> "Callable[[FrameType, str, Any], Any] | None":
        code = frame.f_code
        left = self._calls_left.get(code)
        if left is None:
            left = CALLS_TRACED if code.co_filename.startswith(self._source) else 0
        self._calls_left[code] = max(0, left - 1)
        return self._line if left else None

    def _line(self, frame: FrameType, event: str, _: object) -> "Callable[[FrameType, str, Any], Any]":
        self._lines.add((frame.f_code, frame.f_lineno))
        return self._line

    def _by_file(self) -> dict[str, int]:
        found: defaultdict[str, set[int]] = defaultdict(set)
        for code, line in self._lines.copy():
            found[code.co_filename].add(line)
        for code, left in self._calls_left.copy().items():
            if not left and code.co_filename.startswith(self._source):
                found[code.co_filename].update(line for _, _, line in code.co_lines() if line)
        return {file[len(self._source) :]: bits(lines) for file, lines in found.items()}


class Reach:
    def __init__(self, root: Path, report: Path) -> None:
        self._root = root
        self._source = f"{root / 'src' / 'twinbus'}{os.sep}"
        self._report = report
        self._importing = Tracer(self._source)
        self._imported: dict[str, int] = {}
        self._tests: dict[str, dict[str, Any]] = {}
        self._failed: set[str] = set()

    def begin(self) -> None:
        self._importing.begin()

    def pytest_collection_finish(self) -> None:
        self._imported = self._importing.end()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        tracer = Tracer(self._source)
        clear_caches()
        started, started_cpu = unhindered_time(os.getpid()), time.process_time()
        tracer.begin()
        yield
        found = tracer.end()
        reached = dict.fromkeys(imports(item.path), 1)
        for file, lines in found.items():
            reached[file] = reached.get(file, 0) | lines
        self._tests[item.nodeid] = {
            "seconds": round(time.process_time() - started_cpu, 4),
            "clock": round(unhindered_time(os.getpid()) - started, 4),
            "lines": _in_hex(reached),
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        files: dict[str, dict[str, Any]] = {}
        for test, facts in self._tests.items():
            name = test.partition("::")[0]
            file = files.get(name)
            if file is None:
                file = files[name] = {"digest": digest([self._root / name]), "tests": {}, "failed": []}
            if test in self._failed:
                file["failed"].append(test)
            else:
                file["tests"][test] = facts
        self._report.write_text(json.dumps({"test_files": files, "imported": _in_hex(self._imported)}))


def _in_hex(lines: dict[str, int]) -> dict[str, str]:
    return {file: f"{found:x}" for file, found in lines.items()}


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything of ours is imported."""
    reach = Reach(early_config.rootpath, Path(os.environ[REPORT]))
    early_config.pluginmanager.register(reach)
    reach.begin()
