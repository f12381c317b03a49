"""Reports what a pair's senders and pings cost to the meter of its options, for a namespace that keeps no log itself."""

import logging
from collections.abc import Sequence

from azure.servicebus import ServiceBusMessageBatch

from twinbus.clock import Millis
from twinbus.meter.operation import NO_FRAGMENT, NO_METER, Cause, Meter, Operation, path_of, units_of
from twinbus.pairing.rewriting.transfer import AnyMessage, annotated

PAIR_PRODUCT = "twinbus-pair"
MEASURED_SIZE_MAX = 2**31 - 1

_LOGGER = logging.getLogger(__name__)


def record(meter: Meter, operation: Operation) -> None:
    """Report to the user's meter. Its failure must not look like a failed send: the operation has been done."""
    try:
        meter.record(operation)
    except Exception:
        _LOGGER.exception("meter failed for a %s", operation.cause.value)


class PairMeter:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.is_on = meter is not NO_METER

    def sent(self, cause: Cause, entity: str, messages: Sequence[AnyMessage], now: Millis) -> None:
        """Accepted, by the primary or by a backlog queue. Their numbers are not known here."""
        if self.is_on:
            for message in messages:
                self._record(cause, entity, now, 1, size_of(message), _id_of(message))

    def cancelled(self, entity: str, count: int, now: Millis) -> None:
        if self.is_on:
            for _ in range(count):
                self._record(Cause.CANCEL, entity, now, 1, 0, None)

    def peeked(self, queue: str, count: int, now: Millis) -> None:
        """A look into a backlog queue, whether anything was there or not."""
        if self.is_on:
            self._record(Cause.PEEK, queue, now, count, 0, None)

    def pinged(self, entity: str, now: Millis) -> None:
        """Whether it was answered or not: only the service knows which of those it bills."""
        if self.is_on:
            self._record(Cause.PING, entity, now, 1, 0, None)

    def _record(self, cause: Cause, entity: str, now: Millis, messages: int, size: int, message_id: str | None) -> None:
        path = path_of(entity, PAIR_PRODUCT)
        units = units_of(size)
        record(
            self._meter,
            Operation(now, cause, entity, NO_FRAGMENT, messages, size, units, path, PAIR_PRODUCT, message_id),
        )


def size_of(message: AnyMessage) -> int:
    """About its bytes on the wire: a batch measures as it is filled, the SDK's one public way to the size of a message."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=MEASURED_SIZE_MAX)
    empty = batch.size_in_bytes
    batch.add_message(annotated(message))
    return batch.size_in_bytes - empty


def _id_of(message: AnyMessage) -> str | None:
    properties = annotated(message).properties
    message_id = None if properties is None else properties.message_id
    if isinstance(message_id, bytes):
        return message_id.decode(errors="replace")
    return None if message_id is None else str(message_id)
