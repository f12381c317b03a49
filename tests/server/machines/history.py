"""What clients of a namespace saw while machines failed, and whether it may have been so: events in, violations out.

Clients log when they asked for something and what they heard. An answer that never came, or was an error, proves nothing; what was answered
proves that it happened between question and answer.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class Hold:
    """A receiver that accepted a message session: what it is known to have done under its lock."""

    session: str
    since: float  # when the answer came
    proven_until: float  # when the last settlement that succeeded was asked for


@dataclass(slots=True)
class History:
    invoked: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    received: list[tuple[float, str]] = field(default_factory=list)
    completed: dict[str, float] = field(default_factory=dict)
    """When the answer came."""
    completed_in_order: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By message session; bodies end in a slash and a number, which counts what the sender sent one after the other."""
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
        for session, bodies in self.completed_in_order.items():
            # One whose sender heard an error may have been stored at any later time.
            numbers = [int(body.rpartition("/")[2]) for body in bodies if body in self.acknowledged]
            if numbers != sorted(numbers):
                found.append(f"session {session} was completed out of order: {numbers}")
        by_session: dict[str, list[Hold]] = defaultdict(list)
        for hold in self.holds:
            by_session[hold.session].append(hold)
        for session, holds in by_session.items():
            holds.sort(key=lambda hold: hold.since)
            for one, other in pairwise(holds):
                if one.proven_until > other.since:
                    found.append(f"session {session} was held twice: {one} and {other}")
        return found
