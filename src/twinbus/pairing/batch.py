"""A batch that a paired sender can take apart again, for a failover between filling and sending it."""

from collections.abc import Mapping
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.pairing.preflight import check
from twinbus.pairing.transfer import AnyMessage, as_it_is_now


class PairedMessageBatch(ServiceBusMessageBatch):
    """The SDK's batch that also keeps its messages, each as it is when it is added, and checks it."""

    def __init__(self, destination: str, message_size_max: int, max_size_in_bytes: int) -> None:
        super().__init__(max_size_in_bytes=max_size_in_bytes)
        self.destination = destination
        self.messages: list[AnyMessage] = []
        self._message_size_max = message_size_max

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]) -> None:
        if isinstance(message, Mapping):
            message = ServiceBusMessage(**message)
        check(message, self.destination, self._message_size_max)
        super().add_message(message)
        self.messages.append(as_it_is_now(message))
