"""The syphon in threads: one pump per backlog queue, started and stopped together."""

import threading
from collections.abc import Callable, Iterable

from azure.servicebus import ServiceBusClient

from twinbus.clock import Clock, Millis
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.syphon.pump import Pump
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.stock_transport import DestinationSenders, StockTransport
from twinbus.pairing.syphon.transport import SyphonTransport

STOP_LOOK_S = 0.25
STOP_MAX_S = 10.0


class Syphon:
    """`open_transport` gives each pump its own way to its queue and to the destinations."""

    def __init__(
        self,
        queues: Iterable[str],
        open_transport: Callable[[str], SyphonTransport],
        options: SendAvailabilityPairedNamespaceOptions,
        clock: Clock,
    ) -> None:
        self._stop = threading.Event()
        self._transports: list[SyphonTransport] = []
        self._threads: list[threading.Thread] = []
        rate_cap = RateCap(options.syphon_messages_per_second_max)
        for queue in queues:
            transport = open_transport(queue)
            pump = Pump(queue, transport, options.classifier, rate_cap, clock, self._wait, options.on_event)
            self._transports.append(transport)
            self._threads.append(threading.Thread(target=pump.run, name=f"twinbus-pump {queue}", daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let passes under way finish, end the waits for messages, close.

        A pump that does not end in time is left to itself: it gives back what it may still
        receive, and its thread does not keep the process alive.
        """
        self._stop.set()
        looks = int(STOP_MAX_S / STOP_LOOK_S)
        while looks and any(thread.is_alive() for thread in self._threads):
            looks -= 1
            for thread, transport in zip(self._threads, self._transports, strict=True):
                if thread.is_alive():
                    transport.interrupt()
            for thread in self._threads:
                thread.join(STOP_LOOK_S / len(self._threads))
        for transport in self._transports:
            transport.close()

    def _wait(self, duration: Millis) -> bool:
        return not self._stop.wait(duration / 1000) if duration else not self._stop.is_set()


def stock_syphon(
    primary: ServiceBusClient,
    secondary: ServiceBusClient,
    queues: Iterable[str],
    options: SendAvailabilityPairedNamespaceOptions,
    clock: Clock,
) -> tuple[Syphon, DestinationSenders]:
    """Over two clients of the SDK. The senders are returned so that somebody watches their deadlines."""
    senders = DestinationSenders(primary, clock)

    def open_transport(queue: str) -> StockTransport:
        return StockTransport(secondary.get_queue_receiver(queue), senders)

    return Syphon(queues, open_transport, options, clock), senders
