"""Messages as bytes through the SDK, whose decoder forgets types and whose encoder guesses them: payloads in and out, unchanged.

The SDK has no public way to a payload. On the way in, the link of a stock receiver is given a stand-in for each message, with all
that stands before the body and an empty body, and the payload is kept aside until the message is asked for by its lock. On the way
out, a batch is what carries encoded messages anyway: each is added by a stand-in with its ids, which is then replaced.
"""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from azure.servicebus import ServiceBusMessageBatch, ServiceBusReceivedMessage, ServiceBusReceiver
from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.amqp.codec.sections import DataBody, Sections, encode_sections
from twinbus.amqp.errors import DecodeError
from twinbus.client.batches import read_identity_of
from twinbus.model import wire_names
from twinbus.model.received_payload import read_front, without

DELIVERY_ID, DELIVERY_TAG, MORE, PAYLOAD = 1, 2, 5, 11
"""Places of a transfer frame's fields in the SDK."""
DATA_SECTIONS = 5
"""Place in the SDK's batch."""

BATCH_SIZE_MAX = 2**31 - 1
_LOCKED_UNTIL = frozenset({wire_names.LOCKED_UNTIL})


class StockPayloads:
    """Of one stock receiver. `watch` is called before each receive: a link that breaks is replaced by the SDK."""

    def __init__(self, receiver: ServiceBusReceiver) -> None:
        self._receiver = receiver
        self._link: object = None
        self._kept: dict[bytes, bytes] = {}

    def watch(self) -> None:
        """Opens the link if it is not open. Raises what the SDK raises for that."""
        self._receiver.__enter__()
        link: Any = self._receiver._handler._link
        if link is self._link:
            return
        self._link, self._kept = link, {}
        link._incoming_transfer = _Keeper(link._incoming_transfer, self._kept)

    def take(self, message: ServiceBusReceivedMessage) -> bytes | None:
        """The payload of a message; None for one that came by a link that was not watched yet."""
        return self._kept.pop(token_of(message), None)


def token_of(message: ServiceBusReceivedMessage) -> bytes:
    """Its lock, as links carry it; empty if it has none."""
    token = message.lock_token
    return b"" if token is None else UUID(str(token)).bytes_le


class _Keeper:
    """Stands before a link: takes the frames of a delivery, and passes on one with the stand-in."""

    def __init__(self, pass_on: Callable[[Any], None], kept: dict[bytes, bytes]) -> None:
        self._pass_on, self._kept = pass_on, kept
        self._first: list[Any] | None = None
        self._payload = bytearray()

    def __call__(self, frame: Any) -> None:
        if self._first is None:
            self._first = list(frame)
        self._payload += frame[PAYLOAD]
        if frame[MORE]:
            return
        first, payload = self._first, bytes(self._payload)
        self._first, self._payload = None, bytearray()
        first[MORE], first[PAYLOAD] = False, memoryview(_stand_in(payload))
        self._kept[bytes(first[DELIVERY_TAG])] = payload
        self._pass_on(first)


def _stand_in(payload: bytes) -> bytes:
    """What the SDK needs to settle it and to say what it is. Not when its lock ends: the SDK would compare that with this machine's
    clock, and refuse to complete what the broker, whose clock counts, would let it complete."""
    try:
        sections, _ = read_front(payload)
    except DecodeError:
        sections = Sections()
    return encode_sections(
        Sections(
            delivery_annotations=sections.delivery_annotations,
            message_annotations=without(sections.message_annotations, _LOCKED_UNTIL) or None,
            body=DataBody([b""]),
        )
    )


def batch_of(payloads: Iterable[bytes]) -> ServiceBusMessageBatch:
    """The envelope has the ids of the first message, as in any batch of the SDK's."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=BATCH_SIZE_MAX)
    encoded: list[Any] = batch._message[DATA_SECTIONS]
    for payload in payloads:
        message_id, session_id, partition_key = read_identity_of(payload)
        annotations = None if partition_key is None else {wire_names.PARTITION_KEY: partition_key}
        ids = {"message_id": message_id, "group_id": session_id}
        batch.add_message(AmqpAnnotatedMessage(data_body=b"", properties=ids, annotations=annotations))
        encoded[-1] = bytearray(payload)
    return batch
