"""What a request to a `$management` node is on the bill: its result in, operations out (`twinbus.meter.operation`).

A request that fails is none.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinbus.broker.consumer import TakenMessage
from twinbus.broker.operations.range_peek import RangePage
from twinbus.clock import Millis
from twinbus.meter.operation import Cause
from twinbus.model.wire_names import SEQUENCE_BITS
from twinbus.store.changes import StoredMessage

if TYPE_CHECKING:
    from twinbus.gateway.requests.call import Call


def as_request(call: "Call", _: Any) -> None:
    call.meter.counted(Cause.MANAGEMENT)


def as_peek(call: "Call", messages: Sequence[StoredMessage]) -> None:
    call.meter.peeked(messages)


def as_range_peek(call: "Call", page: RangePage) -> None:
    call.meter.peeked(page.rows)


def as_receive(call: "Call", deliveries: Sequence[TakenMessage]) -> None:
    call.meter.handed_out([delivery.message for delivery in deliveries])


def as_claim(call: "Call", numbers: Sequence[int]) -> None:
    """A receive of messages whose content stays where it is: each is one unit, whatever its size."""
    if not numbers:
        call.meter.counted(Cause.EMPTY_RECEIVE)
    for fragment, count in Counter(number >> SEQUENCE_BITS for number in numbers).items():
        call.meter.counted(Cause.RECEIVE, count, messages=count, fragment=fragment)


def as_removal(call: "Call", numbers: Sequence[int]) -> None:
    for fragment, count in Counter(number >> SEQUENCE_BITS for number in numbers).items():
        call.meter.counted(Cause.SETTLE, count, messages=count, fragment=fragment)


def as_settlement(call: "Call", _: Any) -> None:
    count = len(call.arguments.values("lock-tokens"))
    call.meter.counted(Cause.SETTLE, count, messages=count)


def as_renewal(call: "Call", ends: Sequence[Millis]) -> None:
    call.meter.counted(Cause.RENEW, len(ends), messages=len(ends))


def as_session_renewal(call: "Call", _: Any) -> None:
    call.meter.counted(Cause.RENEW)


def as_session_request(call: "Call", state: Any) -> None:
    """Its size is that of the state, read or written."""
    written = call.arguments.fields.get("session-state")
    shown = state if isinstance(state, bytes) else written if isinstance(written, bytes) else b""
    call.meter.counted(Cause.SESSION, size=len(shown))


def as_cancellation(call: "Call", _: Any) -> None:
    count = len(call.arguments.values("sequence-numbers"))
    call.meter.counted(Cause.CANCEL, count, messages=count)


def by_itself(call: "Call", _: Any) -> None:
    """The operation tells the meter what it did: its result does not say enough."""
