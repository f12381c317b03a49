"""How a receiver settles a message: Service Bus verbs in, AMQP delivery states out."""

from collections.abc import Mapping

from twinbus.amqp.codec.delivery_state import DeliveryState, Modified, Outcome, Rejected, TransactionalState
from twinbus.amqp.codec.error_condition import ErrorCondition
from twinbus.amqp.codec.types import Symbol, Value
from twinbus.model import wire_names


def outcome_in(state: DeliveryState | None) -> DeliveryState | None:
    """The outcome of a message, inside a transaction or not."""
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
