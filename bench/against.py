"""This source beside that of another checkout, in the same rounds: what a change did to rates and to the cost of a message.

    python -m bench.against CHECKOUT [--rounds 5] [--seconds 2] [--only REGEX]

CHECKOUT is a folder with another state of this repository, such as `git worktree add FOLDER COMMIT` makes. Both are served by the
Python and the libraries that run this. Whichever goes first changes from round to round. Shown are medians of both, and the median
of the ratios of the rounds, this source to the other one, with the middle half of them in brackets: rates, then processor time a message
of the namespace with its stores.
"""

import argparse
import re
import statistics
from contextlib import ExitStack
from pathlib import Path

from bench.scenarios import Scenario, scenarios
from bench.targets import Target, own_targets

CHOSEN = "^(send-1k|drain-1k|both-1k)"


def show(checkout: Path, seconds: float, rounds: int, only: str) -> None:
    chosen = [each for each in scenarios(seconds) if each.is_rate and re.search(only, each.name)]
    with ExitStack() as stack:
        ours = stack.enter_context(own_targets("--no-meter"))
        others = stack.enter_context(own_targets("--no-meter", checkout=checkout))
        print(f"{'':30}{'other':>10}{'this':>10}{'ratio':>21}{'other us':>10}{'this us':>10}{'ratio':>21}")
        for scenario in chosen:
            for mine, other in zip(ours, others, strict=True):
                _show_row(scenario, mine, other, rounds)


def _show_row(scenario: Scenario, mine: Target, other: Target, rounds: int) -> None:
    results = [_pair(scenario, mine, other, is_swapped=number % 2 == 1) for number in range(rounds)]
    text = f"{scenario.name + ' ' + mine.name:30}"
    for figure, digits in ((scenario.figure, 0), ("server_us", 1)):
        pairs = [(theirs[figure], own[figure]) for own, theirs in results]
        theirs, own = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = sorted(b / a for a, b in pairs)
        middle = f"({ratios[len(ratios) // 4]:.2f}-{ratios[-1 - len(ratios) // 4]:.2f})"
        text += f"{theirs:10,.{digits}f}{own:10,.{digits}f}{statistics.median(ratios):8.3f} {middle:>12}"
    print(text, flush=True)


def _pair(
    scenario: Scenario, mine: Target, other: Target, *, is_swapped: bool
) -> tuple[dict[str, float], dict[str, float]]:
    if is_swapped:
        theirs = other.run(scenario)
        return mine.run(scenario), theirs
    return mine.run(scenario), other.run(scenario)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=CHOSEN, help="regular expression on scenario names")
    options = parser.parse_args()
    if not (options.checkout / "src/twinbus").is_dir():
        parser.error(f"{options.checkout} is not a checkout of this repository")
    show(options.checkout, options.seconds, options.rounds, options.only)


if __name__ == "__main__":
    main()
