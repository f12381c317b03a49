"""What a receiver may decide about a message it holds: the outcomes of settlement, as values.

`gateway/links/outcome_states.py` says which AMQP delivery state means which of them, `fragment/settlement.py` what each does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from twinbus.clock import Millis
from twinbus.model.descriptions import DAY

DELAY_MAX: Millis = 7 * DAY
"""How long an abandoned message may stay hidden."""


@dataclass(frozen=True, slots=True)
class Complete:
    """The message is done with and removed."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Back to where it was, with a higher delivery count, and hidden for `delay` or until `due_at`, whichever is later."""

    properties: Mapping[str, object] = field(default_factory=dict)
    delay: Millis = 0
    due_at: Millis = 0

    def hidden_until(self, now: Millis) -> Millis:
        """0: not at all."""
        end = max(now + self.delay, self.due_at)
        return end if end > now else 0


@dataclass(frozen=True, slots=True)
class Defer:
    """Set aside: only receive-by-sequence-number finds it again."""

    properties: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """To the dead-letter queue. Reason and description become properties of the message, as what the receiver sent."""

    reason: object = None
    description: object = None
    properties: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """Back to where it was as if it had never been handed over."""


Outcome: TypeAlias = Complete | Abandon | Defer | DeadLetter | Release

COMPLETE = Complete()
RELEASE = Release()
