"""A topic: what is sent to it is copied to every subscription whose rules match (contract A16)."""

from twinbus.broker.message_queue import MessageQueue
from twinbus.broker.replies import Reply, SendReply
from twinbus.clock import Millis
from twinbus.model.descriptions import RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message


class SubscriptionEntity:
    id: int
    description: SubscriptionDescription
    main: MessageQueue
    dead_letter: MessageQueue
    transfer_dead_letter: MessageQueue
    rules: dict[str, RuleDescription]


class TopicEntity:
    id: int
    description: TopicDescription
    subscriptions: dict[str, SubscriptionEntity]
    """By lower-case name."""

    def send_each(self, messages: list[Message], now: Millis, reply: SendReply) -> None:
        raise NotImplementedError

    def send_batch(self, messages: list[Message], now: Millis, reply: Reply[list[int]]) -> None:
        raise NotImplementedError

    def schedule(self, messages: list[Message], now: Millis, reply: Reply[list[int]]) -> None:
        raise NotImplementedError

    def cancel_scheduled(self, numbers: list[int], now: Millis, reply: Reply[None]) -> None:
        raise NotImplementedError
