"""A queue as a whole: where messages are sent to, and the sub-queues they are received from."""

from twinbus.broker.message_queue import MessageQueue
from twinbus.broker.replies import Reply, SendReply
from twinbus.clock import Millis
from twinbus.model.descriptions import QueueDescription
from twinbus.model.message import Message


class QueueEntity:
    id: int
    description: QueueDescription
    main: MessageQueue
    dead_letter: MessageQueue
    transfer_dead_letter: MessageQueue

    def send_each(self, messages: list[Message], now: Millis, reply: SendReply) -> None:
        """Take independent messages that arrived together; each is answered when it is durable."""
        raise NotImplementedError

    def send_batch(self, messages: list[Message], now: Millis, reply: Reply[list[int]]) -> None:
        """Take all or none, into one fragment; replies the sequence numbers (0 for a dropped duplicate)."""
        raise NotImplementedError

    def schedule(self, messages: list[Message], now: Millis, reply: Reply[list[int]]) -> None:
        """As `send_batch`; each becomes active at its `scheduled_at`."""
        raise NotImplementedError

    def cancel_scheduled(self, numbers: list[int], now: Millis, reply: Reply[None]) -> None:
        """Remove scheduled messages, all of them or MessageNotFound."""
        raise NotImplementedError
