"""What a receiver may decide about a message it holds: the outcomes of settlement, as values.

`gateway/links/outcome_states.py` says which AMQP delivery state means which of them, `fragment/settlement.py` what each does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from twinbus.clock import Millis


@dataclass(frozen=True, slots=True)
class Complete:
    """The message is done with and removed."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Back to where it was, with a higher delivery count; a delay keeps it hidden for that long."""

    properties: Mapping[str, object] = field(default_factory=dict)
    delay: Millis = 0


@dataclass(frozen=True, slots=True)
class Defer:
    """Set aside: only receive-by-sequence-number finds it again."""

    properties: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    reason: str | None = None
    description: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """Back to where it was as if it had never been handed over."""


Outcome: TypeAlias = Complete | Abandon | Defer | DeadLetter | Release

COMPLETE = Complete()
RELEASE = Release()
