"""What taking messages means where they have names: those that the fragment knows keep the numbers that they have there.

All of them wait for the same commit, known or not: what is known may be on its way to the store.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from twinbus.broker.fragment.decision import Decision
from twinbus.clock import Millis
from twinbus.model.message import Message


class Staging(Protocol):
    """What a queue or topic does with messages: see `Placement`."""

    @property
    def stage(self) -> Callable[[Decision, Sequence[Message], Millis, Sequence[int] | None], list[int]]: ...

    def stage_in_steps(
        self, decision: Decision, messages: Sequence[Message], now: Millis, origins: Sequence[int] | None
    ) -> Generator[None, Millis, list[int]]: ...


class NamedStage:
    """In place of that, for as many messages as there are names."""

    def __init__(self, staging: Staging, names: Sequence[str]) -> None:
        self._staging = staging
        self._names = names

    def stage(
        self, decision: Decision, messages: Sequence[Message], now: Millis, origins: Sequence[int] | None
    ) -> list[int]:
        fresh, numbers = decision.fragment.names.fresh(self._names), list[int]()
        if fresh:
            numbers = self._staging.stage(decision, *_only(fresh, messages, now, origins))
        return self._take(decision, fresh, numbers, now)

    def stage_in_steps(
        self, decision: Decision, messages: Sequence[Message], now: Millis, origins: Sequence[int] | None
    ) -> Generator[None, Millis, list[int]]:
        fresh, numbers = decision.fragment.names.fresh(self._names), list[int]()
        if fresh:
            numbers = yield from self._staging.stage_in_steps(decision, *_only(fresh, messages, now, origins))
        return self._take(decision, fresh, numbers, now)

    def _take(self, decision: Decision, fresh: list[int], numbers: list[int], now: Millis) -> list[int]:
        known = decision.fragment.names
        if fresh:
            decision.write(known.take([self._names[place] for place in fresh], numbers, now))
        return known.numbers(self._names)


def _only(
    places: list[int], messages: Sequence[Message], now: Millis, origins: Sequence[int] | None
) -> tuple[list[Message], Millis, list[int] | None]:
    chosen = None if origins is None else [origins[place] for place in places]
    return [messages[place] for place in places], now, chosen
