"""The tests of the tree by the lines that they reach: what `tests.mutants.reach` has seen in, the tests of a change out."""

import json
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.mutations import Lines, Mutation
from tests.mutants.reach import bits, digest

NEAREST = {"store": ("store", "contract")}
"""Folders of tests for a package, where that is not the one of its name."""
NEAR_SECONDS_MAX, FAR_SECONDS_MAX = 60.0, 30.0
"""Of tests that try one change, the quickest first: a change to what everybody calls would be tried by all of them."""


class TimedTest(NamedTuple):
    node_id: str
    seconds: float  # of the processor
    clock: float  # less what others made it wait


class Callers:
    def __init__(self, test_files: Mapping[str, Any], imported: Mapping[str, int]) -> None:
        self._imported = imported
        self.failed: list[str] = []
        self._by_file: dict[str, list[tuple[TimedTest, int]]] = {}  # with the lines of that file
        self.count = 0
        for facts in test_files.values():
            self.failed += facts["failed"]
            self.count += len(facts["tests"])
            for node_id, test in facts["tests"].items():
                timed = TimedTest(node_id, test["seconds"], test["clock"])
                for file, lines in test["lines"].items():
                    self._by_file.setdefault(file, []).append((timed, int(lines, 16)))

    def of(self, file: str, mutation: Mutation) -> tuple[str, list[TimedTest]]:
        """The function to be changed, and the tests that reach the change: the nearest ones, and the others.

        What is reached while files are imported counts as outside of all functions: its results are there before a test begins.
        """
        if mutation.function:
            is_imported = self._imported.get(file, 0) & bits(_all(mutation.statement_lines))
            tests = self._reaching(file, mutation.statement_lines)
            if tests or not is_imported:
                return "" if is_imported else mutation.function, self._ordered(file, tests)
        return "", self._ordered(file, [test for test, _ in self._by_file.get(file, [])])

    def _reaching(self, file: str, lines: Lines) -> list[TimedTest]:
        wanted = bits(_all(lines))
        return [test for test, reached in self._by_file.get(file, []) if reached & wanted]

    def _ordered(self, file: str, tests: list[TimedTest]) -> list[TimedTest]:
        package = file.partition("/")[0]
        folders = tuple(f"tests/{folder}/" for folder in NEAREST.get(package, (package,)))
        tests = sorted(tests, key=lambda test: (test.clock, test.node_id))
        near = [test for test in tests if test.node_id.startswith(folders)]
        far = [test for test in tests if not test.node_id.startswith(folders)]
        return [*_first(near, NEAR_SECONDS_MAX), *_first(far, FAR_SECONDS_MAX)]


def _all(lines: Lines) -> range:
    return range(lines.first, lines.last + 1)


def _first(tests: list[TimedTest], seconds_max: float) -> list[TimedTest]:
    ends = accumulate([test.clock for test in tests])
    return [test for test, end in zip(tests, ends, strict=True) if end <= seconds_max or test is tests[0]]


class ReachReport:
    """A file that keeps what was seen, of each file of tests for as long as neither it nor anything that it reached changes."""

    def __init__(self, root: Path, path: Path | None) -> None:
        self._root = root
        self._path = path
        source = root / "src" / "twinbus"
        self._source = {each.relative_to(source).as_posix(): digest([each]) for each in source.rglob("*.py")}
        self.test_files: dict[str, Any] = {}
        self.imported: dict[str, int] = {}
        if path is not None and path.exists():
            kept = json.loads(path.read_text())
            changed = {file for file, known in kept["source"].items() if self._source.get(file) != known}
            self.test_files = {
                name: facts for name, facts in kept["test_files"].items() if changed.isdisjoint(_reached(facts))
            }
            self.imported = {file: lines for file, lines in kept["imported"].items() if file not in changed}

    def missing(self, test_files: Iterable[str]) -> list[str]:
        """And forgets what is out of date."""
        self.test_files = {
            name: facts
            for name, facts in self.test_files.items()
            if (self._root / name).exists() and facts["digest"] == digest([self._root / name])
        }
        return [name for name in test_files if name not in self.test_files]

    def add(self, test_files: Iterable[str], report: str) -> None:
        """What running these has shown; of some of them nothing is run."""
        nothing = {name: {"digest": digest([self._root / name]), "tests": {}, "failed": []} for name in test_files}
        found = json.loads(report)
        self.test_files |= nothing | found["test_files"]
        for file, lines in found["imported"].items():
            self.imported[file] = self.imported.get(file, 0) | int(lines, 16)
        if self._path is not None:
            kept = {"source": self._source, "test_files": self.test_files, "imported": self.imported}
            self._path.write_text(json.dumps(kept))


def _reached(facts: Mapping[str, Any]) -> set[str]:
    return {file for test in facts["tests"].values() for file in test["lines"]}
