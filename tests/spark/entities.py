"""Entities with names that no other test has, and messages in them."""

import uuid
from collections.abc import Sequence
from typing import Any

from tests.pairing.namespaces import NamespaceProcess
from twinbus.client.blocking import BlockingNamespace
from twinbus.client.message import encode_message


class Entities:
    """Of one namespace; its `options` are what a source or sink needs to connect."""

    def __init__(self, broker: NamespaceProcess) -> None:
        self.broker = broker
        self.options = {"connectionString": broker.connection_string}

    def queue(self, **description: Any) -> str:
        """`description` is that of the official `create_queue`. The name of the queue."""
        return self.broker.create_queue(**description)

    def topic(self, *subscriptions: str, **description: Any) -> str:
        """With subscriptions that take every message. The name of the topic."""
        name = f"t-{uuid.uuid4().hex[:8]}"
        with self.broker.administration() as administration:
            administration.create_topic(name, **description)
            for subscription in subscriptions:
                administration.create_subscription(name, subscription)
        return name

    def send(self, path: str, bodies: Sequence[str]) -> None:
        """Many plain messages, quickly; their ids are their bodies."""
        self.send_encoded(path, [encode_message(body, message_id=body) for body in bodies])

    def send_encoded(self, path: str, payloads: Sequence[bytes]) -> None:
        """`path` is a queue or topic."""
        with BlockingNamespace.connect(self.broker.connection_string) as namespace:
            errors = namespace.sender(path).send_batches(payloads)
        assert not any(errors)

    def dead_letter(self, path: str, count: int, reason: str) -> None:
        """The first ones of a queue or subscription."""
        with BlockingNamespace.connect(self.broker.connection_string) as namespace:
            receiver = namespace.receiver(path, credit=count)
            assert not any(receiver.dead_letter(receiver.collect(count, 10), reason))
            receiver.close()
