"""The thread of a pair: advances its timers, starts pings, and ends calls that are past their deadline."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from twinbus.clock import NEVER, Clock, Millis
from twinbus.model import wire_names
from twinbus.model.pairing_limits import PING_TIME_TO_LIVE
from twinbus.pairing.deciding.entity_watch import Ping
from twinbus.pairing.deciding.send_availability import SendAvailability
from twinbus.pairing.pings import Pings, PingThread, ping_timeout_s
from twinbus.pairing.stock.guarded_sender import GuardedSender
from twinbus.pairing.stock.local_lag import LocalLag

LOOK_INTERVAL: Millis = 100
"""How late a blocked call, or a process that did not run, may be noticed."""

OPENING_TIMEOUT_S = 15.0
"""Of a link that is opened ahead."""

PINGS_AT_ONCE_MAX = 128
"""By the SDK, which needs a connection for each."""

_LOGGER = logging.getLogger(__name__)


def ping_message(session_id: str) -> ServiceBusMessage:
    """Empty, and expired after a second. It has a session id so that queues which require one accept it too."""
    return ServiceBusMessage(
        b"", content_type=wire_names.PING_CONTENT_TYPE, time_to_live=PING_TIME_TO_LIVE, session_id=session_id
    )


def send_ping(session_id: str, stock: Any, timeout_s: float) -> Any:
    """With a stock sender of either kind; the one for asyncio returns what is to be awaited."""
    return stock.send_messages(ping_message(session_id), timeout=timeout_s)


def open_link(stock: Any, timeout_s: float) -> Any:
    """The SDK has no other public way to open a link without sending: to make a batch, it asks for the link's limits."""
    return stock.create_message_batch()


def until_next_look(availability: SendAvailability, now: Millis, at_most: Millis) -> Millis:
    """How long until a failover or a ping is due."""
    return min(at_most, max(1, availability.next_action_at() - now))


class Attendant:
    """`watch` is called with the time at each look, for everything else in the pair that has deadlines. `pings` go over one
    connection; without, the SDK sends them."""

    def __init__(
        self,
        primary: ServiceBusClient,
        availability: SendAvailability,
        clock: Clock,
        watch: Callable[[Millis], None],
        lag: LocalLag,
        pings: Pings | None = None,
    ) -> None:
        self._lag = lag
        self._ping_thread = None if pings is None else PingThread(pings)
        self._ping_timeout_s = ping_timeout_s(availability.options.ping_primary_interval)
        self._primary = primary
        self._availability = availability
        self._clock = clock
        self._watch = watch
        self._wake = threading.Event()
        self._is_stopped = False
        self._has_looked_last = threading.Event()
        self._pings: set[GuardedSender] = set()
        self._due: deque[Ping] = deque()
        self._ping_slots = threading.BoundedSemaphore(PINGS_AT_ONCE_MAX)
        self._thread = threading.Thread(target=self._run, name="twinbus-pair", daemon=True)

    def start(self) -> None:
        self._availability.wake = self._wake.set
        self._availability.lost = self._lag.total
        self._thread.start()

    def stop(self) -> None:
        """Returns after the last look. Pings that are still running are ended and not waited for."""
        self._is_stopped = True
        self._wake.set()
        if threading.current_thread() is not self._thread:
            self._has_looked_last.wait()

    def _run(self) -> None:
        while not self._is_stopped:
            now = self._clock.now()
            try:
                self._look(now)
            except Exception:  # without this thread nothing would ever ping again
                _LOGGER.exception("a look at the pair failed")
            pause = until_next_look(self._availability, now, LOOK_INTERVAL)
            self._lag.sleeps(pause)
            self._wake.wait(pause / 1000)
            self._lag.wakes()
            self._wake.clear()
        if self._ping_thread is not None:
            self._ping_thread.stop()
        self._has_looked_last.set()
        while self._pings:
            self._interrupt_pings(NEVER)
            self._wake.wait(LOOK_INTERVAL / 1000)
            self._wake.clear()

    def _look(self, now: Millis) -> None:
        self._due += self._availability.advance(now)
        self._start_pings()
        self._interrupt_pings(now)
        self._watch(now)

    def _interrupt_pings(self, now: Millis) -> None:
        for ping in list(self._pings):
            ping.interrupt_if_late(now)

    def _start_pings(self) -> None:
        """Over one connection, all of them. By the SDK, as many as there are slots; the others wait for one. A ping for which the
        system has no thread stays due: the entity gets no other before this one has ended."""
        while self._ping_thread is not None and self._due:
            self._ping_thread.send(self._due[0])
            self._due.popleft()
        while self._due and self._ping_slots.acquire(blocking=False):
            try:
                threading.Thread(target=self._ping, args=(self._due[0],), name="twinbus-ping", daemon=True).start()
            except RuntimeError:
                self._ping_slots.release()
                raise
            self._due.popleft()

    def _ping(self, ping: Ping) -> None:
        """With a sender of its own that is not paired: a ping must never end up in the backlog."""
        sender = GuardedSender(lambda: self._primary.get_queue_sender(ping.path), self._clock, self._lag)
        self._pings.add(sender)
        try:
            sender.run(partial(send_ping, ping.session_id), self._ping_timeout_s)
        except Exception as error:  # the classifier decides what it means
            if not self._is_stopped:
                self._availability.ping_failed(ping, error, self._clock.now())
        else:
            self._availability.ping_answered(ping, self._clock.now())
        finally:
            self._pings.discard(sender)
            self._ping_slots.release()
            self._wake.set()
            sender.close()
