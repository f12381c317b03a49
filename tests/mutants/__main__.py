"""Changes the broker at random, one change at a time, and reports which changes no quick test notices.

python -m tests.mutants [--seed N] [--count N] [--minutes N] [--package NAME] [--file PATH]
    [--processes N] [--reach FILE]

Seed and count decide which changes are made, so a run can be repeated; without a seed it is another one every day. Ends with 1
if fewer than 97 % are noticed, not counting those that `equivalent.toml` lists.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import NamedTuple

from tests.mutants.callers import Callers, ReachReport
from tests.mutants.equivalent import Equivalents
from tests.mutants.mutations import KINDS, Mutation, is_valid, mutations
from tests.mutants.trial import Tree

ROOT = Path(__file__).parents[2]
PACKAGES = ("amqp", "broker", "gateway", "model", "store")
LEFT_OUT = ("model/properties_page.py",)
"""No part of the broker: writes a page, which a test compares as a whole."""
NOTICED_MIN = 0.97

FOLDERS = (
    *("amqp", "broker", "client", "cluster", "contract", "contract_a", "definitions", "gateway", "http", "management"),
    *("meter", "model", "server", "simulation", "store"),
)
"""Of tests that start no process; those of `client`, `http` and `server` start namespaces in their own."""
FOREIGN = ("tests/server/machines/", "tests/server/nodes/", "tests/server/test_postgres_")
"""Their namespaces are processes of their own, in which nobody sees what is reached."""
FILES_TOGETHER = 4
PROCESSES = 2


class Mutant(NamedTuple):
    file: str  # below `src/twinbus`
    mutation: Mutation
    source: bytes

    @property
    def where(self) -> str:
        return f"src/twinbus/{self.file}:{self.mutation.line}"

    def diff(self) -> str:
        before, after = self.source.decode(), self.mutation.apply(self.source).decode()
        lines = unified_diff(before.splitlines(), after.splitlines(), n=2, lineterm="")
        return "\n".join(f"    {line}" for line in list(lines)[2:])


def every_mutant(source: Path, packages: Sequence[str], files: Collection[str] | None) -> Iterator[Mutant]:
    for package in packages:
        for path in sorted((source / package).rglob("*.py")):
            name = path.relative_to(source).as_posix()
            if name not in LEFT_OUT and (files is None or name in files):
                content = path.read_bytes()
                yield from (Mutant(name, mutation, content) for mutation in mutations(content))


def sample(mutants: Iterator[Mutant], count: int, seed: int) -> list[Mutant]:
    """As many of each kind, because most calls have arguments and few expressions an `and`."""
    chance = random.Random(seed)
    by_kind: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for mutant in mutants:
        by_kind[mutant.mutation.kind].append(mutant)
    for found in by_kind.values():
        chance.shuffle(found)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(by_kind.values()):
        for found in by_kind.values():
            while found:
                mutant = found.pop()
                if is_valid(mutant.mutation.apply(mutant.source)):
                    chosen.append(mutant)
                    break
    return chosen[:count]


def main() -> int:
    options = _options()
    ends_at = time.monotonic() + 60 * options.minutes
    equivalents = Equivalents.load()
    with ExitStack() as stack:
        trees = [
            stack.enter_context(Tree(ROOT, [f"tests/{folder}" for folder in FOLDERS])) for _ in range(options.processes)
        ]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: _abandon(trees))
        source = trees[0].source
        chosen = sample(every_mutant(source, options.package or PACKAGES, options.file), options.count, options.seed)
        print(f"{len(chosen)} changes with seed {options.seed}; first a run of all tests without a change", flush=True)
        tests = _reach(trees, options.reach)
        print(f"{tests.count} tests pass", flush=True)
        for failed in tests.failed:
            print(f"fails without a change, and is left out: {failed}")
        trials = Trials(trees, tests, equivalents, ends_at)
        return _report(*trials.run(chosen))


def _abandon(trees: list[Tree]) -> None:
    """Or processes and folders would stay behind, and threads keep this one waiting. Once: `timeout` signals twice."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for tree in trees:
        tree.end_processes()
    # By somebody else: it takes a while on a busy machine, and whoever signals may not wait for long.
    subprocess.Popen(["rm", "-rf", *[str(tree.folder) for tree in trees]], start_new_session=True)
    os._exit(1)


def _reach(trees: list[Tree], path: Path | None) -> Callers:
    """Piece by piece, so that a run that is ended has not seen them in vain."""
    root = trees[0].root
    report = ReachReport(root, path)
    files = sorted(
        file.relative_to(root).as_posix() for name in FOLDERS for file in (root / "tests" / name).rglob("test_*.py")
    )
    missing = report.missing(file for file in files if not file.startswith(FOREIGN))
    pieces = [missing[start : start + FILES_TOGETHER] for start in range(0, len(missing), FILES_TOGETHER)]
    free = SimpleQueue[Tree]()
    for tree in trees:
        free.put(tree)

    def trace(piece: list[str]) -> None:
        tree = free.get()
        found = tree.trace(piece)
        free.put(tree)
        with lock:
            report.add(piece, found)

    lock = Lock()
    with ThreadPoolExecutor(len(trees)) as pool:
        for done in as_completed([pool.submit(trace, piece) for piece in pieces]):
            done.result()
    return Callers(report.test_files, report.imported)


class Trials:
    """Changes that are tried in several trees at a time."""

    def __init__(self, trees: list[Tree], tests: Callers, equivalents: Equivalents, ends_at: float) -> None:
        self._trees = trees
        self._tests = tests
        self._equivalents = equivalents
        self._ends_at = ends_at
        self._results: Counter[str] = Counter()
        self._missed: list[Mutant] = []
        self._lock = Lock()

    def run(self, chosen: list[Mutant]) -> tuple[Counter[str], list[Mutant]]:
        waiting = iter(chosen)
        with ThreadPoolExecutor(len(self._trees)) as pool:
            for done in [pool.submit(self._work, tree, waiting) for tree in self._trees]:
                done.result()
        self._results["left"] = len(chosen) - self._results.total()
        return self._results, self._missed

    def _work(self, tree: Tree, waiting: Iterator[Mutant]) -> None:
        tree.warm_up()
        while time.monotonic() < self._ends_at:
            with self._lock:
                mutant = next(waiting, None)
            if mutant is None:
                return
            if self._equivalents.has(mutant.file, mutant.mutation, mutant.source):
                with self._lock:
                    self._results["equivalent"] += 1
                continue
            started = time.monotonic()
            noticed = tree.notices(mutant.file, mutant.mutation, self._tests)
            with self._lock:
                self._add(mutant, noticed, time.monotonic() - started)

    def _add(self, mutant: Mutant, noticed: str | None, seconds: float) -> None:
        self._results["missed" if noticed is None else "noticed"] += 1
        print(f"{mutant.mutation.kind:10} {mutant.where}: {noticed or 'NOT NOTICED'} ({seconds:.1f} s)", flush=True)
        if noticed is None:
            self._missed.append(mutant)
            print(mutant.diff(), flush=True)


def _report(results: Counter[str], missed: list[Mutant]) -> int:
    tried = results["noticed"] + results["missed"]
    if missed:
        print("\nNobody noticed:\n")
    for mutant in missed:
        print(f"{mutant.where} in {mutant.mutation.function or 'the module'}\n{mutant.diff()}\n")
    if results["left"]:
        print(f"The time was up with {results['left']} changes left.")
    if not tried:
        print("Nothing was tried.")
        return 1
    share = results["noticed"] / tried
    print(f"{tried} changes, {results['noticed']} noticed ({share:.1%}); {results['equivalent']} more are equivalent")
    return 0 if share >= NOTICED_MIN else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    today = datetime.now(UTC).date().toordinal()
    parser.add_argument("--seed", type=int, default=today, help="of the sample; today's number if omitted")
    parser.add_argument("--count", type=int, default=100, help="of changes; 100 if omitted")
    parser.add_argument(
        "--minutes", type=float, default=30, help="after which no further change is tried; 30 if omitted"
    )
    parser.add_argument("--package", action="append", choices=PACKAGES, help="all if omitted; may be repeated")
    parser.add_argument(
        "--file", action="append", help="one file alone, such as broker/fragment/locks.py; may be repeated"
    )
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"that try changes; {PROCESSES} if omitted")
    parser.add_argument(
        "--reach", type=Path, help="keeps the lines that each test reaches; later runs trace only files that changed"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
