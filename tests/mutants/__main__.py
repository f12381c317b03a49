"""Changes the broker at random, one change at a time, and reports which changes no quick test notices.

python -m tests.mutants [--seed N] [--count N] [--minutes N] [--package NAME] [--file PATH] [--reach FILE]

Seed and count decide which changes are made, so a run can be repeated; without a seed it is another one every day. Ends with 1
if fewer than 97 % are noticed, not counting those that `equivalent.toml` lists.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

from tests.mutants.equivalent import Equivalents
from tests.mutants.mutations import KINDS, Mutation, is_valid, mutations
from tests.mutants.trial import Callers, Tree

ROOT = Path(__file__).parents[2]
PACKAGES = ("amqp", "broker", "gateway", "model", "store")
LEFT_OUT = ("model/properties_page.py",)
"""No part of the broker: writes a page, which a test compares as a whole."""
NOTICED_MIN = 0.97


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


def every_mutant(source: Path, packages: Sequence[str], file: str | None) -> Iterator[Mutant]:
    for package in packages:
        for path in sorted((source / package).rglob("*.py")):
            name = path.relative_to(source).as_posix()
            if name not in LEFT_OUT and (file is None or name == file):
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
    with Tree(ROOT) as tree:
        chosen = sample(
            every_mutant(tree.source, options.package or PACKAGES, options.file), options.count, options.seed
        )
        print(f"{len(chosen)} changes with seed {options.seed}; first a run of all tests without a change", flush=True)
        tests = tree.tests(options.reach)
        print(f"{tests.count} tests pass", flush=True)
        for failed in tests.failed:
            print(f"fails without a change, and is left out: {failed}")
        return _report(*_try(tree, tests, chosen, equivalents, ends_at))


def _try(
    tree: Tree, tests: Callers, chosen: list[Mutant], equivalents: Equivalents, ends_at: float
) -> tuple[Counter[str], list[Mutant]]:
    results: Counter[str] = Counter()
    missed: list[Mutant] = []
    for mutant in chosen:
        if time.monotonic() >= ends_at:
            break
        if equivalents.has(mutant.file, mutant.mutation, mutant.source):
            results["equivalent"] += 1
            continue
        noticed = tree.notices(mutant.file, mutant.mutation, tests)
        results["missed" if noticed is None else "noticed"] += 1
        print(f"{mutant.mutation.kind:10} {mutant.where}: {noticed or 'NOT NOTICED'}", flush=True)
        if noticed is None:
            missed.append(mutant)
            print(mutant.diff(), flush=True)
    results["left"] = len(chosen) - results.total()
    return results, missed


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
    parser.add_argument("--file", help="one file alone, such as broker/fragment/locks.py")
    parser.add_argument(
        "--reach", type=Path, help="which functions each test calls: written by the first run, and read by later ones"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
