"""Pairing for threads: two clients of the SDK in, one client out whose senders survive an outage of the first."""

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.management import ServiceBusAdministrationClient

from twinbus.client.administration import administration_client
from twinbus.clock import Clock, Millis, SteadyClock
from twinbus.pairing.attendant import OPENING_TIMEOUT_S, Attendant, open_link
from twinbus.pairing.backlog.provision import Answer, AskName, Backlog, CreateQueue, Request
from twinbus.pairing.backlog.provisioning import RETRY_S, found_in_time, in_time
from twinbus.pairing.backlog.survey import Surveyor
from twinbus.pairing.courier import AskPartitioning
from twinbus.pairing.deciding.partitioning import Partitioning, ask
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.events import PairState
from twinbus.pairing.new_pair import NewPair, credential_of, leave_pair
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pair_life import PairLife, RunningSyphon
from twinbus.pairing.partnership import Effect, FaultPartner, Partner
from twinbus.pairing.pings import Pings
from twinbus.pairing.sender import PairedSender
from twinbus.pairing.stock.guarded_sender import GuardedSender, close_all
from twinbus.pairing.stock.local_lag import LocalLag
from twinbus.pairing.stock.steps import run

CLIENT_CLOSE_MAX_S = 5.0
"""A client that somebody still uses on another thread is not waited for longer."""


def pair_namespaces(
    primary: ServiceBusClient | str,
    secondary: ServiceBusClient | str,
    options: SendAvailabilityPairedNamespaceOptions | None = None,
    *,
    secondary_administration: ServiceBusAdministrationClient | None = None,
    **client_options: Any,
) -> "PairedNamespaceClient":
    """Pair two namespaces, given as clients of the SDK or as connection strings.

    Creates missing backlog queues on the secondary, which needs the Manage right there. Raises PairingError, with the reason,
    if the two cannot be paired. `secondary_administration` is needed where the SDK cannot reach the secondary's management by
    itself. `client_options` (such as `retry_total`) are for clients created from connection strings.
    """
    pair = NewPair(primary, secondary, options, client_options, ServiceBusClient, "twinbus.pairing.aio")
    clock, timeout_s = SteadyClock(), pair.options.pairing_timeout.total_seconds()

    def find_backlog() -> Backlog:
        steps = pair.provision(pair.may_be_one())
        if secondary_administration is not None:
            return run(steps, _management(secondary_administration, primary))
        with _administration(secondary) as administration:
            return run(steps, _management(administration, primary))

    def ask_primary(question: AskPartitioning) -> Partitioning | None:
        def work() -> Partitioning | None:
            with _administration(primary) as administration:
                return run(ask(question.path), lambda call: call(administration))

        return in_time(work, question.timeout_s)

    def syphon(backlog: Backlog) -> RunningSyphon | None:
        return pair.syphon(backlog.queues.values(), clock, lambda: (pair.primary, pair.secondary))

    with pair.entered():
        failure: Exception | None = None
        backlog = Backlog({})
        try:
            backlog = found_in_time(find_backlog, timeout_s)
        except Exception as error:
            if pair.options.require_backlog:
                raise
            failure = error
        client = PairedNamespaceClient(
            pair.primary,
            pair.secondary,
            pair.options,
            backlog,
            clock,
            syphon(backlog) if backlog.queues else None,
            owns_clients=pair.owns_clients,
            ask_primary=ask_primary,
            reach=pair.reach,
        )
        if failure is not None:
            client.protect_later(failure, lambda: found_in_time(find_backlog, timeout_s), syphon)
        return client


class PairedNamespaceClient(ServiceBusClient):
    """Two paired namespaces. Its senders go to the primary, or to the backlog while the primary is down.

    Keep receiving from `primary`. Threads may share the client and its senders.
    """

    def __init__(
        self,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        options: SendAvailabilityPairedNamespaceOptions,
        backlog: Backlog,
        clock: Clock,
        syphon: RunningSyphon | None = None,
        *,
        owns_clients: bool = False,
        ask_primary: Callable[[AskPartitioning], Partitioning | None] = lambda _: None,
        reach: str | None = None,
    ) -> None:
        # Not the constructor of the SDK's: this client has no connection of its own. It is one of them for whoever checks types.
        self.fully_qualified_namespace = primary.fully_qualified_namespace
        self.primary, self.secondary = primary, secondary
        self.options = options
        self._clients = {Partner.PRIMARY: primary, Partner.SECONDARY: secondary}
        self._owns_clients = owns_clients
        self._clock = clock
        self._ask_primary = ask_primary
        self._closed = threading.Event()
        lag = LocalLag(clock)
        self._life: PairLife[PairedSender, GuardedSender] = PairLife(
            self._clients,
            options,
            backlog,
            clock,
            syphon,
            partial(GuardedSender, clock=clock, lag=lag),
            lambda partner, close: partial(self._close_partner, partner, close),
        )
        self._surveyor = Surveyor(secondary, clock, self._life.availability.meter)
        pings = None if reach is None else Pings(reach, self._life.availability, clock)
        self._attendant = Attendant(primary, self._life.availability, clock, self._watch, lag, pings)
        self._attendant.start()

    def __enter__(self) -> "PairedNamespaceClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get_queue_sender(self, queue_name: str, **sender_options: Any) -> PairedSender:
        """`sender_options` are those of the SDK's method. Links to backlog queues are shared, so they do not apply there."""
        return self._sender(lambda: self.primary.get_queue_sender(queue_name, **sender_options))

    def get_topic_sender(self, topic_name: str, **sender_options: Any) -> PairedSender:
        return self._sender(lambda: self.primary.get_topic_sender(topic_name, **sender_options))

    def get_queue_receiver(self, *args: Any, **options: Any) -> ServiceBusReceiver:
        """The primary's, as the SDK's client returns it."""
        return self.primary.get_queue_receiver(*args, **options)

    def get_subscription_receiver(self, *args: Any, **options: Any) -> ServiceBusReceiver:
        return self.primary.get_subscription_receiver(*args, **options)

    @property
    def backlog_queues(self) -> tuple[str, ...]:
        """Their paths on the secondary; none while the pair is unprotected."""
        return tuple(self._life.availability.backlog_queues.values())

    def state(self) -> PairState:
        """Every entity that has a sender, and every backlog queue, as they are now."""
        return self._life.state()

    def mark_healthy(self, path: str) -> None:
        """Send to the primary's entity again without waiting for a ping."""
        self._life.mark_healthy(path)

    def protect_later(
        self,
        failure: BaseException,
        find_backlog: Callable[[], Backlog],
        syphon: Callable[[Backlog], RunningSyphon | None],
    ) -> None:
        """For `pair_namespaces`: the backlog could not be found for this reason; look for it until it is."""
        self._life.backlog_missing(failure)

        def look() -> None:
            while not self._closed.wait(min(RETRY_S, self.options.pairing_timeout.total_seconds())):
                try:
                    backlog = find_backlog()
                except Exception as error:
                    self._life.backlog_missing(error)
                else:
                    self._life.backlog_found(backlog, syphon(backlog))
                    return

        threading.Thread(target=look, name="twinbus-provision", daemon=True).start()

    def fault(self, partner: Partner, error: BaseException) -> None:
        """Give up on a client that cannot be used any more, and with a syphon on the other too."""
        self._carry_out(self._life.partner_faulted(partner, error))

    def close(self) -> None:
        """Close pumps and senders, with a syphon also the secondary, and the clients created from connection strings."""
        if not self._life.begin_close():
            return
        self._closed.set()
        # From the last to the first, each even if one before it fails.
        with contextlib.ExitStack() as ending:
            if self._owns_clients:
                ending.callback(close_all, [self.primary], CLIENT_CLOSE_MAX_S)
            if self._life.has_syphon or self._owns_clients:
                ending.callback(close_all, [self.secondary], CLIENT_CLOSE_MAX_S)
            ending.callback(self._life.restore_closes)
            ending.callback(leave_pair, self.primary, self.secondary)
            ending.callback(lambda: close_all([*self._life.senders.all(), *self._life.links.take_all()]))
            ending.callback(self._surveyor.close)
            ending.callback(self._stop_pumps)
            self._attendant.stop()

    def _sender(self, open_stock: Callable[[], ServiceBusSender]) -> PairedSender:
        return self._life.new_sender(partial(PairedSender, ask_primary=self._ask_primary), open_stock)

    def _close_partner(self, partner: Partner, close: Callable[[], None]) -> None:
        close()
        self._carry_out(self._life.partner_closed(partner))

    def _watch(self, now: Millis) -> None:
        watched: list[PairedSender | GuardedSender] = [*self._life.senders.all(), *self._life.links.all()]
        for sender in watched:
            sender.interrupt_if_late(now)
        for index, link in self._life.links_to_open(now):
            threading.Thread(target=self._open_ahead, args=(index, link), name="twinbus-open", daemon=True).start()
        self._surveyor.interrupt_if_late(now)
        queues = self._life.survey_due(now)
        if queues is not None:
            self._surveyor.start(queues, self._surveyed)
        self._carry_out(self._life.advance(now))

    def _surveyed(self, survey: Survey | None) -> None:
        if self._life.surveyed(survey) or self._life.is_closed:
            self._surveyor.close()

    def _open_ahead(self, index: int, link: GuardedSender) -> None:
        try:
            link.run(open_link, OPENING_TIMEOUT_S)
        except Exception as error:
            self._life.link_failed(index, error, self._clock.now())

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, FaultPartner):
                with contextlib.suppress(Exception):  # the client is given up in any case
                    self._clients[effect.partner].close()
            else:
                self._stop_pumps()

    def _stop_pumps(self) -> None:
        syphon = self._life.take_syphon()
        if syphon is not None:
            syphon.stop()


def _administration(given: ServiceBusClient | str) -> ServiceBusAdministrationClient:
    if isinstance(given, str):
        return administration_client(given)
    return ServiceBusAdministrationClient(given.fully_qualified_namespace, credential_of(given))


def _management(
    administration: ServiceBusAdministrationClient, primary: ServiceBusClient | str
) -> Callable[[Request], Answer]:
    def perform(request: Request) -> Answer:
        if isinstance(request, AskName):
            if request.partner is Partner.SECONDARY:
                return {administration.get_namespace_properties().name: 0}
            with _administration(primary) as other:
                return {other.get_namespace_properties().name: 0}
        if isinstance(request, CreateQueue):
            administration.create_queue(request.path, **request.description)
            return {}
        found = administration.list_queues_runtime_properties()
        return {queue.name: queue.active_message_count or 0 for queue in found}

    return perform
