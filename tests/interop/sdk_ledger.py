"""What somebody with the official SDK in hand did, counted on his side: an account to hold the operations log against."""

from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import Any, NamedTuple

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

UNIT = 64 * 1024


class Line(NamedTuple):
    entity: str
    cause: str


def encoded_size(message: ServiceBusMessage) -> int:
    encoded = bytearray()
    encode_payload(encoded, PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message))
    return len(encoded)


class Ledger:
    """`operations` and `units` by line; `steps` are the single steps of messages, as (cause, entity, message id)."""

    def __init__(self) -> None:
        self.operations: Counter[Line] = Counter()
        self.units: Counter[Line] = Counter()
        self.steps: Counter[tuple[str, str, str]] = Counter()
        self.numbers: dict[tuple[str, str], int | None] = {}

    def sent(self, entity: str, messages: Sequence[ServiceBusMessage], cause: str = "send") -> None:
        for message in messages:
            self._step(cause, entity, str(message.message_id), ceil(encoded_size(message) / UNIT))

    def received(self, entity: str, messages: Sequence[ServiceBusReceivedMessage]) -> list[ServiceBusReceivedMessage]:
        """One that returned nothing is counted too."""
        if not messages:
            self.did("empty_receive", entity)
        for message in messages:
            self._step("receive", entity, str(message.message_id), ceil(_body_size(message) / UNIT) or 1)
            self.numbers[entity, str(message.message_id)] = message.sequence_number
        return list(messages)

    def peeked(self, entity: str, messages: Sequence[Any]) -> None:
        if not messages:
            self.did("peek", entity)
        for message in messages:
            self._step("peek", entity, str(message.message_id), 1)

    def forwarded(self, entity: str, message: ServiceBusMessage) -> None:
        self._step("forward", entity, str(message.message_id), 1)

    def did(self, cause: str, entity: str, count: int = 1) -> None:
        self.operations[Line(entity, cause)] += count
        self.units[Line(entity, cause)] += 0 if cause in ("settle", "copy") else count

    def _step(self, cause: str, entity: str, message_id: str, units: int) -> None:
        self.operations[Line(entity, cause)] += 1
        self.units[Line(entity, cause)] += units
        self.steps[cause, entity, message_id] += 1


def _body_size(message: ServiceBusReceivedMessage) -> int:
    """Without the properties, which here never make a unit more."""
    return sum(len(part) for part in message.body)
