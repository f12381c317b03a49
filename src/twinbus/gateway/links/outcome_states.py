"""Outcomes as AMQP delivery states: a receiver's disposition in, the broker's outcome and the confirmation out.

    accepted -> complete      modified -> abandon, or defer if undeliverable here; `x-opt-delivery-time` hides it until then
    rejected -> dead-letter   released -> release

The confirmation is the same outcome without the client's error: the SDKs take an echoed error for a failed settlement.
"""

from collections.abc import Mapping, Sequence

from twinbus.amqp.codec.delivery_state import (
    ACCEPTED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
)
from twinbus.amqp.codec.types import Described
from twinbus.broker.outcomes import COMPLETE, RELEASE, Abandon, DeadLetter, Defer, Outcome
from twinbus.clock import Millis
from twinbus.errors import ArgumentError
from twinbus.model import wire_names
from twinbus.model.rules.values import DATETIME_OFFSET, DATETIME_OFFSET_EPOCH_TICKS

REJECTED = Rejected()
TICKS_PER_MILLISECOND = 10_000


def outcome_of(state: DeliveryState | None) -> Outcome | None:
    """None if the state decides nothing yet, or is not one that we know. Raises ArgumentError for one that makes no sense."""
    if state is None:
        # Settled without an outcome: the client did not say that it is done with the message, so the message stays.
        return RELEASE
    if isinstance(state, Accepted):
        return COMPLETE
    if isinstance(state, Modified):
        properties = _texts(state.message_annotations)
        return Defer(properties) if state.undeliverable_here else abandon(properties)
    if isinstance(state, Rejected):
        return _dead_letter(state)
    if isinstance(state, Released):
        return RELEASE
    return None


def abandon(properties: dict[str, object], delay: Millis = 0) -> Abandon:
    """Abandon the message with these properties to modify, one of which may be the time it is to come again."""
    due_at = properties.pop(wire_names.DELIVERY_TIME, None)
    if isinstance(due_at, Described) and due_at.descriptor == DATETIME_OFFSET and isinstance(due_at.value, int):
        due_at = (due_at.value - DATETIME_OFFSET_EPOCH_TICKS) // TICKS_PER_MILLISECOND
    if due_at is None:
        return Abandon(properties, delay)
    if not isinstance(due_at, int) or isinstance(due_at, bool):
        raise ArgumentError(f"'{wire_names.DELIVERY_TIME}' has to be a time in milliseconds since 1970.")
    return Abandon(properties, delay, int(due_at))


def confirmation(state: DeliveryState | None) -> DeliveryState:
    if isinstance(state, Rejected):
        return REJECTED
    if isinstance(state, Accepted):
        return ACCEPTED
    if state is None or isinstance(state, Received):
        return RELEASED
    return state


def is_refusal(answer: DeliveryState | None) -> bool:
    """Whether it reports a failure, rather than a message that was dead-lettered as asked."""
    return isinstance(answer, Rejected) and answer.error is not None


def _dead_letter(state: Rejected) -> DeadLetter:
    if state.error is None:
        return DeadLetter()
    info = dict(_texts(state.error.info))
    reason, description = (
        info.pop(wire_names.DEAD_LETTER_REASON, None),
        info.pop(wire_names.DEAD_LETTER_DESCRIPTION, None),
    )
    if reason is None and description is None and not info:
        # Not from one of the SDKs, whose own condition says nothing: the error itself is the reason.
        reason = None if state.error.condition == wire_names.DEAD_LETTER_CONDITION else state.error.condition
        return DeadLetter(reason, state.error.description)
    return DeadLetter(reason, description, info)


def _texts(mapping: Mapping[object, object] | None) -> dict[str, object]:
    return {} if mapping is None else {str(key): value for key, value in mapping.items()}


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of consecutive delivery ids as (first, last), so that one disposition answers many.

    Each id occurs once, except -1, which stands for deliveries that nobody waits for; it may begin a run.
    """
    ordered = sorted(numbers)
    if not ordered:
        return []
    first, last = ordered[0], ordered[-1]
    if last - first == len(ordered) - 1 and first != -1:  # nearly always: a burst of one link, answered whole
        return [(first, last)]
    runs, last = [], first
    for number in ordered[1:]:
        if number != last + 1:
            runs.append((first, last))
            first = number
        last = number
    return [*runs, (first, last)]
