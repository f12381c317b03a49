"""The entities of a namespace, as gateways and the control plane see them: each a target, a source, or several.

`twinbus.broker.entity.entities.Entities` is that of a single node, `twinbus.cluster.fronts.fronts.Fronts` that of one among several.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from twinbus.broker.replies import Holdings, Reply
from twinbus.broker.source import Source
from twinbus.broker.target import Target
from twinbus.clock import Millis
from twinbus.model.descriptions import QueueDescription, TopicDescription


class Undelivered(Protocol):
    """Whatever has a queue for messages that could not be handed on."""

    @property
    def transfer_dead_letter(self) -> Source: ...


class SubscriptionNode(Undelivered, Protocol):
    """What messages are received from: a subscription, and a queue as well."""

    @property
    def main(self) -> Source: ...

    @property
    def dead_letter(self) -> Source: ...


class QueueNode(Target, SubscriptionNode, Protocol):
    @property
    def is_topic(self) -> Literal[False]: ...

    @property
    def description(self) -> QueueDescription: ...


class TopicNode(Target, Undelivered, Protocol):
    @property
    def is_topic(self) -> Literal[True]: ...

    @property
    def description(self) -> TopicDescription: ...


class Directory(Protocol):
    def find(self, path: str) -> QueueNode | TopicNode | None: ...

    def subscription(self, topic: str, name: str) -> SubscriptionNode:
        """Raises EntityNotFound."""
        ...

    def queues(self) -> Sequence[QueueNode]: ...

    def count(self, path: str, now: Millis, reply: Reply[Holdings]) -> None:
        """Of a queue, topic or subscription. Replies EntityNotFound if there is none of that path."""
        ...
