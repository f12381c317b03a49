"""The compatibility page: what the interop suites recorded in, Markdown out (`make compatibility`).

    python -m tests.interop.compatibility > docs/compatibility.md

Nothing on the page is written by hand but the clients that cannot run here, with the reason.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import get_args

from tests.interop.results import Feature, ScenarioResult, read_results

ELSEWHERE = {
    ".NET SDK, MassTransit, NServiceBus, Rebus, Wolverine": "need .NET, which the tests do not install; "
    "what the .NET client puts on the wire is played as scripts (see `.NET SDK, as scripts`)",
    "Redpanda Connect": "the checksum database of Go does not know the versions of its module that the proxy has",
}
"""Clients that no suite runs."""

HEAD = """# Compatibility

`make compatibility` runs every client against a real namespace and generates this page from what each scenario did. A suite
whose toolchain is missing is skipped, and its rows stay empty.
"""


def page(results: Sequence[ScenarioResult]) -> str:
    parts = [HEAD, "## Clients\n", _summary(results), "## Features\n", *_features(results), *_exceptions(results)]
    parts += ["## Not run\n", "\n".join(f"- {name}: {reason}." for name, reason in ELSEWHERE.items()) + "\n"]
    return "\n".join(parts)


def _summary(results: Iterable[ScenarioResult]) -> str:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for result in results:
        counts.setdefault((result.client, result.version), Counter())[result.outcome] += 1
    rows = [
        (client, version, str(count.total()), str(count["pass"]), str(count["fail"]), str(count["skip"]))
        for (client, version), count in counts.items()
    ]
    return _table(("Client", "Version", "Scenarios", "Passed", "Failed", "Skipped"), rows)


def _features(results: Sequence[ScenarioResult]) -> Iterable[str]:
    """What was seen to work: the number of scenarios that passed, by client and feature."""
    yield "Scenarios that passed; `5 of 6` where one did not, nothing where the suite has no scenario for it.\n"
    clients = list(dict.fromkeys((result.client, result.version) for result in results))
    rows = []
    for client, version in clients:
        own = [result for result in results if (result.client, result.version) == (client, version)]
        cells = (f"{feature} {_cell(own, feature)}" for feature in get_args(Feature) if _cell(own, feature))
        rows.append((f"{client} {version}", ", ".join(cells)))
    yield _table(("Client", "Scenarios by feature"), rows)


def _cell(results: Iterable[ScenarioResult], feature: str) -> str:
    ran = [result.outcome for result in results if result.feature == feature and result.outcome != "skip"]
    passed = ran.count("pass")
    return "" if not ran else str(passed) if passed == len(ran) else f"{passed} of {len(ran)}"


def _exceptions(results: Iterable[ScenarioResult]) -> Iterable[str]:
    for outcome, title in (("fail", "Failed"), ("skip", "Skipped")):
        rows = [
            (f"{result.client} {result.version}", result.feature, result.scenario, " ".join(result.reason.split()))
            for result in results
            if result.outcome == outcome
        ]
        if rows:
            yield f"## {title}\n"
            yield _table(("Client", "Feature", "Scenario", "Reason"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    print(page(read_results()), end="")
