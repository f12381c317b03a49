"""Pairing for threads: two clients of the SDK in, one whose senders outlive an outage of the first out."""

import contextlib
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusSender
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client.administration import administration_client
from twinbus.clock import Clock, Millis
from twinbus.pairing.attendant import Attendant
from twinbus.pairing.backlog import backlog_queue_path, primary_name
from twinbus.pairing.closing import close_all
from twinbus.pairing.events import PairState
from twinbus.pairing.guarded_sender import GuardedSender
from twinbus.pairing.open_senders import OpenSenders
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pair_life import PairLife
from twinbus.pairing.partnership import Effect, FaultPartner, Partner
from twinbus.pairing.provision import CreateQueue, Request, provision
from twinbus.pairing.sender import PairedSender
from twinbus.pairing.steady_clock import SteadyClock
from twinbus.pairing.steps import run
from twinbus.pairing.syphon.running import RunningSyphon
from twinbus.pairing.syphon.tasks import SyphonThread
from twinbus.pairing.syphon.threads import ThreadedSyphon
from twinbus.pairing.validation import (
    check_colour,
    check_hosts,
    check_reach,
    check_same_kind,
    credential_of,
    enter_pair,
    leave_pair,
    on_close,
    suits_bulk_client,
)


def pair_namespaces(
    primary: ServiceBusClient | str,
    secondary: ServiceBusClient | str,
    options: SendAvailabilityPairedNamespaceOptions | None = None,
    *,
    secondary_administration: ServiceBusAdministrationClient | None = None,
    **client_options: Any,
) -> "PairedNamespaceClient":
    """Pair two namespaces, given as clients of the SDK or as connection strings.

    Creates the backlog queues that are missing on the secondary, which needs the Manage right
    there. Raises PairingError, with the reason, when the two cannot be paired.
    `secondary_administration` is needed where the SDK cannot reach the secondary's management by
    itself. `client_options` (such as `retry_total`) are for clients made from connection strings.
    """
    chosen = options or SendAvailabilityPairedNamespaceOptions()
    check_same_kind(primary, secondary)
    clients = [_client(each, client_options) for each in (primary, secondary)]
    check_colour(clients, ServiceBusClient, "twinbus.pairing.aio")
    check_hosts(*(client.fully_qualified_namespace for client in clients))
    enter_pair(*clients)
    try:
        name = chosen.primary_name or primary_name(clients[0].fully_qualified_namespace)
        check_reach(clients[1], backlog_queue_path(name, 0))
        steps = provision(name, chosen.backlog_queue_count)
        if secondary_administration is not None:
            queues = run(steps, _management(secondary_administration))
        else:
            with _administration(secondary) as administration:
                queues = run(steps, _management(administration))
        clock = SteadyClock()
        is_own = isinstance(primary, str)
        syphon: RunningSyphon | None = None
        if chosen.enable_syphon and suits_bulk_client(primary, secondary, client_options):
            syphon = SyphonThread(str(primary), str(secondary), queues.values(), chosen, clock)
        elif chosen.enable_syphon:
            syphon = ThreadedSyphon(clients[0], clients[1], queues.values(), chosen, clock)
        return PairedNamespaceClient(clients[0], clients[1], chosen, queues, clock, syphon, owns_clients=is_own)
    except BaseException:
        leave_pair(*clients)
        raise


class PairedNamespaceClient:
    """Two paired namespaces. Its senders go to the primary, or to the backlog while the primary is down.

    Receive from `primary` as ever. Threads may share the client and its senders.
    """

    def __init__(
        self,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        options: SendAvailabilityPairedNamespaceOptions,
        backlog_queues: dict[int, str],
        clock: Clock,
        syphon: RunningSyphon | None = None,
        *,
        owns_clients: bool = False,
    ) -> None:
        self.primary, self.secondary = primary, secondary
        self.options = options
        self.backlog_queues = tuple(backlog_queues.values())
        self._clock = clock
        self._life = PairLife(options, backlog_queues, clock, has_syphon=syphon is not None)
        self._senders: OpenSenders[PairedSender] = OpenSenders()
        self._stop_hearing: list[Callable[[], None]] = []
        self._syphon = syphon
        self._owns_clients = owns_clients
        if syphon is not None:
            syphon.start()
            self._watch_partners()
        self._attendant = Attendant(primary, self._life.availability, clock, self._watch)
        self._attendant.start()

    def __enter__(self) -> "PairedNamespaceClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_queue_sender(self, queue_name: str, **sender_options: Any) -> PairedSender:
        """`sender_options` are those of the SDK's method; they hold at the primary and at backlog queues."""
        return self._sender(lambda: self.primary.get_queue_sender(queue_name, **sender_options), sender_options)

    def get_topic_sender(self, topic_name: str, **sender_options: Any) -> PairedSender:
        return self._sender(lambda: self.primary.get_topic_sender(topic_name, **sender_options), sender_options)

    def state(self) -> PairState:
        """Every entity that has a sender, and every backlog queue, as they are now."""
        return self._life.state()

    def mark_healthy(self, path: str) -> None:
        """Send to the primary's entity again without waiting for a ping."""
        self._life.mark_healthy(path)

    def fault(self, partner: Partner, error: BaseException) -> None:
        """Give up on a client that cannot be used any more; where a syphon runs, on the other too."""
        self._carry_out(self._life.partner_faulted(partner), error)

    def close(self) -> None:
        """Close pumps and senders, and with a syphon the secondary. Clients that were made here are closed too."""
        if not self._life.begin_close():
            return
        # From the last to the first, each even if one before it fails.
        with contextlib.ExitStack() as ending:
            if self._owns_clients:
                ending.callback(self.primary.close)
            if self._life.has_syphon or self._owns_clients:
                ending.callback(self.secondary.close)
            for stop_hearing in self._stop_hearing:
                ending.callback(stop_hearing)
            ending.callback(leave_pair, self.primary, self.secondary)
            ending.callback(lambda: close_all(self._senders.all()))
            ending.callback(self._stop_pumps)
            self._attendant.stop()

    def _sender(self, open_stock: Callable[[], ServiceBusSender], sender_options: dict[str, Any]) -> PairedSender:
        self._life.check_live()
        primary = GuardedSender(open_stock, self._clock)
        courier = self._life.courier(primary.stock.entity_name)

        def open_backlog(index: int) -> GuardedSender:
            path = self._life.availability.backlog_queues[index]
            return GuardedSender(lambda: self.secondary.get_queue_sender(path, **sender_options), self._clock)

        sender = PairedSender(primary, open_backlog, courier, self.options, self._life.check_live)
        self._senders.add(sender)
        return sender

    def _watch_partners(self) -> None:
        for partner, client in ((Partner.PRIMARY, self.primary), (Partner.SECONDARY, self.secondary)):
            hear = partial(self._partner_closed, partner)
            self._stop_hearing.append(on_close(client, hear))

    def _stop_pumps(self) -> None:
        syphon, self._syphon = self._syphon, None
        if syphon is not None:
            syphon.stop()

    def _partner_closed(self, partner: Partner) -> None:
        self._carry_out(self._life.partner_closed(partner), None)

    def _watch(self, now: Millis) -> None:
        for sender in self._senders.all():
            sender.interrupt_if_late(now)
        if self._syphon is not None:
            self._syphon.interrupt_if_late(now)
        self._carry_out(self._life.advance(now), TimeoutError("its partner was closed and the pair was not"))

    def _carry_out(self, effects: list[Effect], error: BaseException | None) -> None:
        for effect in effects:
            if isinstance(effect, FaultPartner):
                self._life.note_fault(effect.partner, error)
                with contextlib.suppress(Exception):  # it is given up in any case
                    (self.primary if effect.partner is Partner.PRIMARY else self.secondary).close()
            else:
                self._stop_pumps()


def _client(given: ServiceBusClient | str, client_options: dict[str, Any]) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(given, **client_options) if isinstance(given, str) else given


def _administration(secondary: ServiceBusClient | str) -> ServiceBusAdministrationClient:
    if isinstance(secondary, str):
        return administration_client(secondary)
    credential = credential_of(secondary)
    return ServiceBusAdministrationClient(secondary.fully_qualified_namespace, credential)


def _management(administration: ServiceBusAdministrationClient) -> Callable[[Request], list[str]]:
    def perform(request: Request) -> list[str]:
        if isinstance(request, CreateQueue):
            administration.create_queue(request.path, **request.description)
            return []
        return [queue.name for queue in administration.list_queues()]

    return perform
