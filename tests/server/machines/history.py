"""What clients of a namespace saw while machines failed, and whether it may have been so: events in, violations out.

Clients log when they asked for something and what they heard. An answer that never came, or was an error, proves nothing; what was answered
proves that it happened between question and answer.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple


@dataclass(slots=True)
class Hold:
    """A receiver that accepted a message session: what it is known to have done under its lock."""

    session: str
    since: float  # when the answer came
    proven_until: float  # when the last settlement that succeeded was asked for


class Completion(NamedTuple):
    body: str  # ends in a slash and a number, which counts what the sender sent one after the other
    asked: float
    answered: float


@dataclass(slots=True)
class History:
    invoked: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    received: list[tuple[float, str]] = field(default_factory=list)
    completed: dict[str, float] = field(default_factory=dict)
    """When the answer came."""
    completed_of: dict[str, list[Completion]] = field(default_factory=lambda: defaultdict(list))
    """By message session."""
    holds: list[Hold] = field(default_factory=list)
    failed_sends: list[tuple[float, str, str]] = field(default_factory=list)

    def violations(self) -> list[str]:
        """After everything was drained."""
        found: list[str] = []
        seen = {body for _, body in self.received}
        if lost := self.acknowledged - seen:
            found.append(f"{len(lost)} of {len(self.acknowledged)} acknowledged are lost: {sorted(lost)[:5]}")
        if strange := seen - self.invoked:
            found.append(f"delivered and never sent: {sorted(strange)[:5]}")
        again = [body for at, body in self.received if at > self.completed.get(body, at)]
        if again:
            found.append(f"delivered again after they were completed: {again[:5]}")
        for session, completions in self.completed_of.items():
            # One whose sender heard an error may have been stored at any later time.
            of_known = [each for each in completions if each.body in self.acknowledged]
            if early := overtaken(of_known):
                found.append(f"session {session} was completed out of order: {early}")
        by_session: dict[str, list[Hold]] = defaultdict(list)
        for hold in self.holds:
            by_session[hold.session].append(hold)
        for session, holds in by_session.items():
            holds.sort(key=lambda hold: hold.since)
            for one, other in pairwise(holds):
                if one.proven_until > other.since:
                    found.append(f"session {session} was held twice: {one} and {other}")
        return found


def overtaken(completions: list[Completion]) -> list[Completion]:
    """Those that were asked for only after a message had been completed that was sent later. Answers alone prove no order: one
    that a frozen node gives when it goes on may come after that of a later message."""
    found: list[Completion] = []
    first_answer_of_later = inf
    for each in sorted(completions, key=lambda each: int(each.body.rpartition("/")[2]), reverse=True):
        if each.asked > first_answer_of_later:
            found.append(each)
        first_answer_of_later = min(first_answer_of_later, each.answered)
    return found
