"""How messages are settled and what the outcome is: Service Bus verbs in, AMQP delivery states out; and a place for the
outcome of each message that was handed in together with others, with one future for all of them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from twinbus.amqp.codec.delivery_state import DeliveryState, Modified, Outcome, Rejected, TransactionalState
from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.types import Symbol, Value
from twinbus.errors import MessagingError
from twinbus.model import wire_names


class Settles(Protocol):
    """Gets the outcome of each index once: None if the peer has done it, otherwise the error."""

    def settle(self, index: int, error: MessagingError | None) -> None: ...


class Outcomes:
    """`done` resolves when all have their outcome; `left` counts those that have none yet."""

    __slots__ = ("done", "left", "outcomes")

    def __init__(self, count: int) -> None:
        self.outcomes: list[MessagingError | None] = [None] * count
        self.left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not count:
            self.done.set_result(None)

    def settle(self, index: int, error: MessagingError | None) -> None:
        if error is not None:
            self.outcomes[index] = error
        self.left -= 1
        # The task that waited may have been cancelled, and the future with it.
        if not self.left and not self.done.done():
            self.done.set_result(None)

    async def wait(self) -> list[MessagingError | None]:
        await self.done
        return self.outcomes


class SharedOutcome:
    """One outcome for several places: the outcome of a batch is that of each message in it."""

    __slots__ = ("_outcomes", "_places")

    def __init__(self, outcomes: Outcomes, places: Sequence[int]) -> None:
        self._outcomes = outcomes
        self._places = places

    def settle(self, index: int, error: MessagingError | None) -> None:
        for place in self._places:
            self._outcomes.settle(place, error)


def outcome_in(state: DeliveryState | None) -> DeliveryState | None:
    """The outcome in a delivery state, inside a transaction or not."""
    return state.outcome if isinstance(state, TransactionalState) else state


def abandoned(properties: Mapping[str, Value] | None = None) -> Outcome:
    return Modified(delivery_failed=True, undeliverable_here=False, message_annotations=_symbols(properties))


def deferred(properties: Mapping[str, Value] | None = None) -> Outcome:
    return Modified(delivery_failed=True, undeliverable_here=True, message_annotations=_symbols(properties))


def dead_lettered(
    reason: str | None = None, description: str | None = None, properties: Mapping[str, Value] | None = None
) -> Outcome:
    info = {**(_symbols(properties) or {})}
    if reason is not None:
        info[Symbol(wire_names.DEAD_LETTER_REASON)] = reason
    if description is not None:
        info[Symbol(wire_names.DEAD_LETTER_DESCRIPTION)] = description
    return Rejected(error=ErrorCondition(condition=wire_names.DEAD_LETTER_CONDITION, info=info))


def _symbols(properties: Mapping[str, Value] | None) -> dict[Symbol, Value] | None:
    return None if properties is None else {Symbol(name): value for name, value in properties.items()}
