"""The syphon over the SDK: a receiver per pump, and one sender per destination shared by all pumps."""

import threading
from collections.abc import Sequence

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

from twinbus.clock import Clock, Millis
from twinbus.pairing.guarded_sender import GuardedSender
from twinbus.pairing.interrupt import interrupt
from twinbus.pairing.syphon.stock_message import transfer_of
from twinbus.pairing.syphon.transport import Taken, Transfer

SEND_TIMEOUT_S = 30.0


class DestinationSenders:
    """Un-paired senders of the primary, opened when first needed."""

    def __init__(self, primary: ServiceBusClient, clock: Clock) -> None:
        self._primary = primary
        self._clock = clock
        self._senders: dict[str, GuardedSender] = {}
        self._lock = threading.Lock()

    def at(self, path: str) -> GuardedSender:
        with self._lock:
            if path not in self._senders:
                self._senders[path] = GuardedSender(self._primary.get_queue_sender(path), self._clock)
            return self._senders[path]

    def interrupt_if_late(self, now: Millis) -> None:
        for sender in list(self._senders.values()):
            sender.interrupt_if_late(now)

    def close(self) -> None:
        with self._lock:
            opened, self._senders = list(self._senders.values()), {}
        for sender in opened:
            sender.close()


class StockTransport:
    """Of one pump; only `interrupt` may be called from another thread."""

    def __init__(self, receiver: ServiceBusReceiver, destinations: DestinationSenders) -> None:
        self._receiver = receiver
        self._destinations = destinations

    def receive(self, count_max: int, wait_s: float) -> list[Taken]:
        received = self._receiver.receive_messages(max_message_count=count_max, max_wait_time=wait_s)
        return [_taken(message) for message in received]

    def send(self, path: str, transfers: Sequence[Transfer]) -> None:
        messages = [transfer.message for transfer in transfers if isinstance(transfer.message, AmqpAnnotatedMessage)]

        def send(stock: ServiceBusSender, timeout_s: float) -> None:
            stock.send_messages(messages[0] if len(messages) == 1 else messages, timeout=timeout_s)

        self._destinations.at(path).run(send, SEND_TIMEOUT_S)

    def complete(self, taken: Sequence[Taken]) -> None:
        """Each by itself: that the lock of one is lost says nothing about the others."""
        failure: Exception | None = None
        for each in taken:
            try:
                self._receiver.complete_message(_message(each))
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure

    def dead_letter(self, taken: Taken, reason: str, description: str) -> None:
        self._receiver.dead_letter_message(_message(taken), reason=reason, error_description=description[:4096])

    def abandon(self, taken: Sequence[Taken]) -> None:
        for each in taken:
            self._receiver.abandon_message(_message(each))

    def interrupt(self) -> None:
        interrupt(self._receiver)

    def close(self) -> None:
        self._receiver.close()


def _taken(message: ServiceBusReceivedMessage) -> Taken:
    assert message.sequence_number is not None
    assert message.locked_until_utc is not None
    locked_until = int(message.locked_until_utc.timestamp() * 1000)
    return Taken(message, message.sequence_number, locked_until, transfer_of(message))


def _message(taken: Taken) -> ServiceBusReceivedMessage:
    assert isinstance(taken.handle, ServiceBusReceivedMessage)
    return taken.handle
