"""What clients did, for the compatibility page: one line of JSON for each scenario, in build/interop-results.

    {"client": "Java SDK", "version": "7.17.20", "feature": "sessions", "scenario": "a session is taken by its name", "outcome": "pass",
     "reason": ""}

A suite opens one Recorder for each client and version that it runs and records every scenario, whatever its outcome. Each
suite has a file of its own, which starts anew with its first result of a run, so that suites may run at the same time and
a scenario that no longer exists leaves nothing behind.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

FOLDER = Path(__file__).parents[2] / "build" / "interop-results"

Feature = Literal[
    "administration",
    "send",
    "batch",
    "receive",
    "processor",
    "settlement",
    "dead-letter",
    "deferral",
    "scheduling",
    "sessions",
    "topics and rules",
    "transactions",
    "batch delete",
    "lock renewal",
    "duplicate detection",
    "partitioned entities",
    "reconnect",
    "errors",
    "TLS",
    "WebSockets",
]
"""The columns of the page, in its order."""

Outcome = Literal["pass", "fail", "skip"]


@dataclass(frozen=True)
class ScenarioResult:
    client: str
    """As the page calls it, such as `Java SDK`."""
    version: str
    feature: Feature
    scenario: str
    """What the client does, in words; with the transport if it does so over several."""
    outcome: Outcome
    reason: str = ""
    """Why it failed or was skipped."""

    def __post_init__(self) -> None:
        if self.feature not in get_args(Feature):
            raise ValueError(f"'{self.feature}' is not a feature; the features are {', '.join(get_args(Feature))}")
        if self.outcome not in get_args(Outcome):
            raise ValueError(f"'{self.outcome}' is not an outcome; the outcomes are {', '.join(get_args(Outcome))}")
        if not (self.client and self.version and self.scenario):
            raise ValueError(f"a result needs a client, a version and a scenario: {self}")


class Recorder:
    """The results of one client and version in one suite, such as the test file that runs it."""

    def __init__(self, client: str, version: str, suite: str = "", folder: Path = FOLDER) -> None:
        self._client = client
        self._version = version
        words = (word for word in (client, version, suite) if word)
        self._path = folder / f"{re.sub(r'[^a-z0-9.]+', '-', ' '.join(words).lower())}.jsonl"
        self._is_started = False

    def record(self, feature: Feature, scenario: str, outcome: Outcome, reason: str = "") -> None:
        result = ScenarioResult(self._client, self._version, feature, scenario, outcome, reason)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a" if self._is_started else "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")
        self._is_started = True


def read_results(folder: Path = FOLDER) -> list[ScenarioResult]:
    """Everything that was recorded, by client, version, feature and scenario. A scenario that ran more than once counts once,
    with its worst outcome."""
    worst: dict[tuple[str, str, str, str], ScenarioResult] = {}
    for result in _lines(sorted(folder.glob("*.jsonl"))):
        key = (result.client, result.version, result.feature, result.scenario)
        if key not in worst or _BADNESS[result.outcome] > _BADNESS[worst[key].outcome]:
            worst[key] = result
    return [worst[key] for key in sorted(worst)]


_BADNESS: dict[Outcome, int] = {"skip": 0, "pass": 1, "fail": 2}


def _lines(paths: Iterable[Path]) -> Iterable[ScenarioResult]:
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            yield ScenarioResult(**json.loads(line))
