"""What clients of a namespace saw while machines failed, and whether it may have been so: events in, violations out.

Clients log when they asked for something and what they heard. An answer that never came, or was an error, proves nothing; what was answered
proves that it happened between question and answer. A message is known by its body; one that was stored twice has two sequence numbers.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import NamedTuple


@dataclass(slots=True)
class Hold:
    """A receiver that accepted a message session: what it is known to have done under its lock.

    It was locked at some time between `asked` and `since`. If nothing was done under the lock after that, it may have ended before the
    answer came: a node that is frozen between granting it and saying so says it when it goes on.
    """

    session: str
    asked: float
    since: float  # when the answer came
    proven_until: float  # when the last settlement that succeeded was asked for
    node: int = 0


class Receipt(NamedTuple):
    """A message that came to a client. It may have lain in a buffer or been long on its way, so it was handed over some time between
    `since` and `at`."""

    at: float
    body: str
    number: int
    receiver: int  # what this one gets comes in the order in which it was handed over
    since: float


class Completion(NamedTuple):
    body: str  # ends in a slash and a number, which counts what the sender sent one after the other
    asked: float
    answered: float


@dataclass(slots=True)
class History:
    invoked: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    received: list[Receipt] = field(default_factory=list)
    completed: dict[tuple[str, int], Receipt] = field(default_factory=dict)
    """By body and number."""
    completed_of: dict[str, list[Completion]] = field(default_factory=lambda: defaultdict(list))
    """By message session."""
    holds: list[Hold] = field(default_factory=list)
    sent_once: set[str] = field(default_factory=set)
    """Bodies that were sent to where duplicates are detected."""
    refusals: list[str] = field(default_factory=list)
    """Sends without a key that a node refused, or that the SDK's own retries did not bring in."""
    broken_receivers: list[str] = field(default_factory=list)
    """Clients that ended by an error that they do not expect of the SDK: what they were to receive is received by nobody."""

    @property
    def missing(self) -> set[str]:
        """Acknowledged, and not received so far."""
        return self.acknowledged - {receipt.body for receipt in self.received}

    def violations(self) -> list[str]:
        """After everything was drained."""
        found: list[str] = []
        if lost := self.missing:
            senders = dict(Counter(body.rpartition("/")[0] for body in lost))
            found.append(
                f"{len(lost)} of {len(self.acknowledged)} acknowledged are lost: {sorted(lost)[:5]}, by sender {senders}"
            )
        if strange := {receipt.body for receipt in self.received} - self.invoked:
            found.append(f"delivered and never sent: {sorted(strange)[:5]}")
        if again := [receipt for receipt in self.received if self._is_again(receipt)]:
            known = [(receipt, self.completed[receipt.body, receipt.number]) for receipt in again[:5]]
            found.append(f"handed over again after they were completed: {known}")
        for session, completions in self.completed_of.items():
            # One whose sender heard an error may have been stored at any later time.
            of_known = [each for each in completions if each.body in self.acknowledged]
            if early := overtaken(of_known):
                found.append(
                    f"session {session} was completed out of order: {early}; {self._around(session, early[0])}"
                )
        numbers: dict[str, set[int]] = defaultdict(set)
        for receipt in self.received:
            numbers[receipt.body].add(receipt.number)
        if twice := [body for body in self.sent_once if len(numbers[body]) > 1]:
            found.append(f"stored twice where duplicates are detected: {sorted(twice)[:5]}")
        if self.broken_receivers:
            found.append(f"{len(self.broken_receivers)} receivers broke: {self.broken_receivers}")
        if self.refusals:
            found.append(f"{len(self.refusals)} sends without a key failed: {self.refusals[:5]}")
        return found + self._held_twice()

    def _is_again(self, receipt: Receipt) -> bool:
        """Whether it was handed over after somebody got it who then completed it: that one's lock has kept it from everybody since."""
        done = self.completed.get((receipt.body, receipt.number))
        if done is None or receipt is done:
            return False
        return receipt.since > done.at or (receipt.receiver == done.receiver and receipt.at > done.at)

    def _around(self, session: str, late: Completion) -> list[str]:
        """What clients saw of a message session in the time before this."""
        since, sender = late.asked - 15, late.body.rpartition("/")[0]
        first = int(late.body.rpartition("/")[2]) - 2
        events = [
            (receipt.at, f"received {receipt.body} {receipt.number}")
            for receipt in self.received
            if receipt.body.startswith(f"{sender}/") and int(receipt.body.rpartition("/")[2]) >= first
        ]
        events += [(each.asked, f"complete {each.body}") for each in self.completed_of[session]]
        events += [(each.answered, f"completed {each.body}") for each in self.completed_of[session]]
        events += [(hold.since, f"accepted at n{hold.node}") for hold in self.holds if hold.session == session]
        return [f"{at:.3f} {what}" for at, what in sorted(events) if since < at < late.answered + 1]

    def _held_twice(self) -> list[str]:
        found: list[str] = []
        by_session: dict[str, list[Hold]] = defaultdict(list)
        for hold in self.holds:
            by_session[hold.session].append(hold)
        for session, holds in by_session.items():
            holds.sort(key=lambda hold: hold.since)
            for one, other in pairwise(holds):
                is_proven = other.proven_until > other.since or other.asked >= one.since
                if one.proven_until > other.since and is_proven:
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
