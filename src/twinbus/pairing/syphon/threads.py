"""The syphon in threads over two clients of the SDK: one pump per backlog queue, started and stopped together."""

import threading
from collections.abc import Iterable
from functools import partial

from azure.servicebus import ServiceBusClient

from twinbus.clock import Clock, Millis
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.stock.guarded_sender import close_all
from twinbus.pairing.stock.steps import run
from twinbus.pairing.syphon.pump import Pump
from twinbus.pairing.syphon.pump_meter import metered
from twinbus.pairing.syphon.rate_cap import RateCap
from twinbus.pairing.syphon.stock_transport import DestinationSenders, StockTransport, as_syphon

STOP_LOOK_S = 0.25
STOP_MAX_S = 10.0


class ThreadedSyphon:
    """Takes whatever credentials the clients have. Somebody must call `interrupt_if_late` now and then."""

    def __init__(
        self,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        queues: Iterable[str],
        options: SendAvailabilityPairedNamespaceOptions,
        clock: Clock,
    ) -> None:
        self._destinations = DestinationSenders(primary, clock)
        self._stop = threading.Event()
        rate_cap = RateCap(options.syphon_messages_per_second_max)
        self._pumps = [Pump(queue, options.classifier, rate_cap, clock, options.on_event) for queue in queues]
        self._transports = [
            StockTransport(
                as_syphon(secondary.get_queue_receiver(pump.queue)),
                self._destinations,
                partial(self._wait, pump),
                clock,
                lambda queue: as_syphon(secondary.get_queue_receiver(queue)),
            )
            for pump in self._pumps
        ]
        self._threads = [
            threading.Thread(
                target=run,
                args=(metered(pump.run(), pump.queue, options.meter, clock), transport.perform),
                name="twinbus-pump",
                daemon=True,
            )
            for pump, transport in zip(self._pumps, self._transports, strict=True)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let passes under way finish, end the waits for messages, close.

        A pump that does not end in time is left to itself: it gives back what it may still
        receive, and its thread does not keep the process alive.
        """
        for pump in self._pumps:
            pump.is_stopping = True
        self._stop.set()
        looks = int(STOP_MAX_S / STOP_LOOK_S)
        while looks and any(thread.is_alive() for thread in self._threads):
            looks -= 1
            for thread, transport in zip(self._threads, self._transports, strict=True):
                if thread.is_alive():
                    transport.interrupt()
            for thread in self._threads:
                thread.join(STOP_LOOK_S / len(self._threads))
        close_all([*self._transports, self._destinations])

    def recovered(self, path: str) -> None:
        for pump in self._pumps:
            pump.destination_recovered(path)

    def interrupt_if_late(self, now: Millis) -> None:
        self._destinations.interrupt_if_late(now)
        for transport in self._transports:
            transport.interrupt_if_late(now)

    def _wait(self, pump: Pump, duration: Millis) -> None:
        left_s = duration / 1000
        while left_s > 0 and not pump.take_wake() and not self._stop.wait(min(STOP_LOOK_S, left_s)):
            left_s -= STOP_LOOK_S
