"""The syphon over the SDK: a receiver per pump, and one sender per destination shared by all pumps."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from twinbus.clock import NEVER, Clock, Millis
from twinbus.meter.operation import SYPHON_PRODUCT
from twinbus.model.message_limits import MESSAGE_SIZE_CEILING
from twinbus.pairing.backlog.survey import pages, peek
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.stock.guarded_sender import GuardedSender, close_all, interrupt
from twinbus.pairing.stock.side_by_side import side_by_side
from twinbus.pairing.stock.steps import run
from twinbus.pairing.syphon.stock_payloads import StockPayloads, batch_of, token_of
from twinbus.pairing.syphon.transport import (
    HELD_SIZE_MAX,
    Abandon,
    Answer,
    Chunk,
    Complete,
    DeadLetter,
    GiveBackLeft,
    LookInto,
    Receive,
    Request,
    SendAll,
    Taken,
    Wait,
    taken_of,
)

SEND_TIMEOUT_S = 30.0
SENDS_AT_ONCE = 16
"""Of one pump, to as many destinations."""
RECEIVER_GRACE_S = 60.0
"""For opening a link and for settling a batch, beyond the time that a receive may wait for messages."""

DESCRIPTION_MAX = 4096
ABANDONED = "abandoned"


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
                self._senders[path] = GuardedSender(
                    lambda: as_syphon(self._primary.get_queue_sender(path)), self._clock
                )
            return self._senders[path]

    def interrupt_if_late(self, now: Millis) -> None:
        for sender in list(self._senders.values()):
            sender.interrupt_if_late(now)

    def close(self) -> None:
        with self._lock:
            opened, self._senders = list(self._senders.values()), {}
        close_all(opened)


class StockTransport:
    """Of one pump; only what interrupts may be called from another thread.

    The SDK's receivers, like its senders, can block for ever while they connect to a peer that says nothing, so
    somebody has to watch the deadline.

    It asks for messages by number. How large they are is not known before they have come: it expects them to be as large as any can
    be, then half as large with every take, and never smaller than those that came last.
    """

    def __init__(
        self,
        receiver: ServiceBusReceiver,
        destinations: DestinationSenders,
        wait: Callable[[Millis], None],
        clock: Clock,
        open_receiver: Callable[[str], ServiceBusReceiver],
    ) -> None:
        self._receiver = receiver
        self._open_receiver = open_receiver
        self._looking: ServiceBusReceiver | None = None
        self._payloads = StockPayloads(receiver)
        self._destinations = destinations
        self._wait = wait
        self._clock = clock
        self._deadline: Millis = NEVER
        self._expected_size = MESSAGE_SIZE_CEILING

    def perform(self, request: Request) -> Answer:
        waits_s = request.wait_s if isinstance(request, Receive) else 0.0
        if not isinstance(request, SendAll | Wait):
            self._deadline = self._clock.now() + int((waits_s + RECEIVER_GRACE_S) * 1000)
        try:
            return self._perform(request)
        finally:
            self._deadline = NEVER

    def _perform(self, request: Request) -> Answer:
        match request:
            case Receive(count_max, wait_s):
                return self._receive(count_max, wait_s)
            case SendAll(chunks):
                # One that hangs would keep the others from home until their locks have ended.
                return side_by_side(self._send, chunks, SENDS_AT_ONCE, "twinbus-pump")
            case Complete(taken):
                self._each(taken, self._receiver.complete_message)
            case Abandon(taken):
                self._each(taken, self._receiver.abandon_message)
            case GiveBackLeft():
                self._give_back_left(request)
            case LookInto(queue, until):
                return self._look_into(queue, until)
            case DeadLetter(each, reason, description):
                text = description[:DESCRIPTION_MAX]
                self._receiver.dead_letter_message(_message(each), reason=reason, error_description=text)
            case Wait(duration):
                self._wait(duration)
        return None

    def interrupt(self) -> None:
        """End a receive that waits."""
        interrupt(self._receiver)
        if (looking := self._looking) is not None:
            interrupt(looking)

    def interrupt_if_late(self, now: Millis) -> None:
        if now > self._deadline:
            self.interrupt()

    def close(self) -> None:
        self._receiver.close()

    def _receive(self, count_max: int, wait_s: float) -> list[Taken]:
        self._payloads.watch()
        taken: list[Taken] = []
        count = max(1, min(count_max, HELD_SIZE_MAX // self._expected_size))
        largest = 0
        for message in self._receiver.receive_messages(max_message_count=count, max_wait_time=wait_s):
            payload = self._payloads.take(message)
            if payload is None:
                self._receiver.abandon_message(message)  # the SDK has opened another link meanwhile; it comes again
            else:
                largest = max(largest, len(payload))
                taken.append(taken_of(message, payload, token_of(message)))
        if taken:
            self._expected_size = max(largest, self._expected_size // 2)
        return taken

    def _give_back_left(self, left: GiveBackLeft) -> None:
        # The SDK gives back one message at a time, and by the link that brought it, which may be gone.
        for tokens in left.in_requests():
            locks: list[UUID | str] = [UUID(bytes_le=token) for token in tokens.values()]
            self._receiver._settle_message_via_mgmt_link(ABANDONED, locks)

    def _look_into(self, queue: str, until: Millis) -> Survey:
        survey = Survey(0)
        with self._open_receiver(queue) as receiver:
            self._looking = receiver
            try:
                run(pages(0, survey, until), partial(peek, receiver))
            finally:
                self._looking = None
        return survey

    def _send(self, chunk: Chunk) -> Exception | None:
        def send(stock: ServiceBusSender, timeout_s: float) -> None:
            stock.send_messages(batch, timeout=timeout_s)

        try:
            batch = batch_of(transfer.message for transfer in chunk.transfers if isinstance(transfer.message, bytes))
            self._destinations.at(chunk.path).run(send, SEND_TIMEOUT_S)
        except ServiceBusError as error:
            return error
        except ValueError as error:
            # The SDK has nothing to say about these bytes: the application has closed the client.
            return ServiceBusConnectionError(message=f"The primary's client was closed: {error}", error=error)
        except Exception as error:
            return error
        return None

    def _each(self, taken: Sequence[Taken], settle: Callable[[ServiceBusReceivedMessage], None]) -> None:
        """All of them are tried: that the lock of one is lost says nothing about the others."""
        failure: Exception | None = None
        for each in taken:
            try:
                settle(_message(each))
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure


def _message(taken: Taken) -> ServiceBusReceivedMessage:
    assert isinstance(taken.handle, ServiceBusReceivedMessage)
    return taken.handle


USER_AGENT = "user-agent"

T = TypeVar("T")


def as_syphon(stock: T) -> T:
    """Put the syphon's name before the user agent, so that a namespace that counts operations knows whose they are.

    The client is the application's, so its own user agent stays, and the SDK takes no other for a single link. Where
    it keeps its properties elsewhere, the operations are counted as the application's.
    """
    properties = getattr(stock, "_properties", None)
    if isinstance(properties, dict) and isinstance(agent := properties.get(USER_AGENT), str):
        properties[USER_AGENT] = f"{SYPHON_PRODUCT} {agent}"
    return stock
