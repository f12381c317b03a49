"""What entities do with messages without a client, for the meter: copies for subscriptions, and forwarded messages.

No connection did it, so these operations name no client. Copies are recorded by the burst: they are not billed, and a
topic may make thousands of them for a message.
"""

from collections.abc import Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.clock import Millis
from twinbus.meter.operation import NO_METER, Cause, EntityType, Operation, path_of, units_of
from twinbus.model.content import PREFIX
from twinbus.model.message import Message
from twinbus.model.paths import parse_address

NOBODY = ""


def meter_copies(fragment: Fragment, count: int, size: int, now: Millis) -> None:
    """Of messages that a subscription took; `size` is what they take in the store."""
    broker = fragment.broker
    if broker.meter is NO_METER:
        return
    entity, bytes_ = fragment.settings.path, size - count * PREFIX.size
    path, kind = path_of(entity, NOBODY), EntityType.SUBSCRIPTION
    index = fragment.index
    broker.meter.record(
        Operation(now, Cause.COPY, entity, index, count, bytes_, 0, path, NOBODY, entity_type=kind, operations=count)
    )


def meter_forwards(fragment: Fragment, messages: Sequence[Message], numbers: Sequence[int], now: Millis) -> None:
    """Of messages that left this fragment for another entity, with the numbers they had here."""
    broker = fragment.broker
    if broker.meter is NO_METER:
        return
    entity = fragment.settings.path
    path, kind = path_of(entity, NOBODY), _entity_type(entity)
    for message, number in zip(messages, numbers, strict=True):
        size = len(message.content) - PREFIX.size
        units = units_of(size)
        broker.meter.record(
            Operation(
                now,
                Cause.FORWARD,
                entity,
                fragment.index,
                1,
                size,
                units,
                path,
                NOBODY,
                message.message_id,
                number,
                kind,
            )
        )


def _entity_type(path: str) -> EntityType:
    return EntityType.SUBSCRIPTION if parse_address(path).subscription is not None else EntityType.QUEUE
