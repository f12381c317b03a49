"""Pairing for asyncio: two clients of the SDK in, one client out whose senders survive an outage of the first."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any

from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from twinbus.client.async_administration import async_administration_client
from twinbus.clock import Clock, Millis, SteadyClock
from twinbus.pairing.aio.attendant import Attendant
from twinbus.pairing.aio.backlog_survey import Surveyor
from twinbus.pairing.aio.blocking_clients import blocking_clients
from twinbus.pairing.aio.guarded_sender import GuardedSender
from twinbus.pairing.aio.sender import AskPrimary, PairedSender, not_asked
from twinbus.pairing.attendant import OPENING_TIMEOUT_S, open_link
from twinbus.pairing.backlog.provision import Answer, AskName, Backlog, CreateQueue, Request
from twinbus.pairing.backlog.provisioning import RETRY_S, late
from twinbus.pairing.courier import AskPartitioning
from twinbus.pairing.deciding.partitioning import Partitioning, ask
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.events import PairState
from twinbus.pairing.new_pair import NewPair, credential_of, leave_pair
from twinbus.pairing.options import SendAvailabilityPairedNamespaceOptions
from twinbus.pairing.pair_life import PairLife, RunningSyphon
from twinbus.pairing.partnership import Effect, FaultPartner, Partner
from twinbus.pairing.pings import Pings
from twinbus.pairing.stock.local_lag import LocalLag
from twinbus.pairing.stock.steps import run_async


async def pair_namespaces(
    primary: ServiceBusClient | str,
    secondary: ServiceBusClient | str,
    options: SendAvailabilityPairedNamespaceOptions | None = None,
    *,
    secondary_administration: ServiceBusAdministrationClient | None = None,
    **client_options: Any,
) -> "PairedNamespaceClient":
    """As `twinbus.pairing.pair_namespaces`, for clients of `azure.servicebus.aio`."""
    pair = NewPair(primary, secondary, options, client_options, ServiceBusClient, "twinbus.pairing")
    clock, timeout_s = SteadyClock(), pair.options.pairing_timeout.total_seconds()

    async def find_backlog() -> Backlog:
        try:
            async with asyncio.timeout(timeout_s):
                steps = pair.provision(await asyncio.to_thread(pair.may_be_one))
                if secondary_administration is not None:
                    return await run_async(steps, _management(secondary_administration, primary))
                async with _administration(secondary) as administration:
                    return await run_async(steps, _management(administration, primary))
        except TimeoutError:
            raise late(timeout_s) from None

    async def ask_primary(question: AskPartitioning) -> Partitioning | None:
        async with asyncio.timeout(question.timeout_s), _administration(primary) as administration:
            return await run_async(ask(question.path), lambda call: call(administration))

    def syphon(backlog: Backlog) -> RunningSyphon | None:
        return pair.syphon(backlog.queues.values(), clock, lambda: blocking_clients(pair.primary, pair.secondary))

    with pair.entered():
        failure: Exception | None = None
        backlog = Backlog({})
        try:
            backlog = await find_backlog()
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
            client.protect_later(failure, find_backlog, syphon)
        return client


class PairedNamespaceClient(ServiceBusClient):
    """Two paired namespaces, as `twinbus.pairing.PairedNamespaceClient`. Created on a running event loop."""

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
        ask_primary: AskPrimary = not_asked,
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
        lag = LocalLag(clock)
        self._opening: set[asyncio.Task[None]] = set()
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

    async def __aenter__(self) -> "PairedNamespaceClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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
        find_backlog: Callable[[], Awaitable[Backlog]],
        syphon: Callable[[Backlog], RunningSyphon | None],
    ) -> None:
        """For `pair_namespaces`: the backlog could not be found for this reason; look for it until it is."""
        self._life.backlog_missing(failure)

        async def look() -> None:
            while True:
                await asyncio.sleep(min(RETRY_S, self.options.pairing_timeout.total_seconds()))
                try:
                    backlog = await find_backlog()
                except Exception as error:
                    self._life.backlog_missing(error)
                else:
                    self._life.backlog_found(backlog, syphon(backlog))
                    return

        self._opening.add(task := asyncio.create_task(look()))
        task.add_done_callback(self._opening.discard)

    async def fault(self, partner: Partner, error: BaseException) -> None:
        """Give up on a client that cannot be used any more, and with a syphon on the other too."""
        await self._carry_out(self._life.partner_faulted(partner, error))

    async def close(self) -> None:
        """Close pumps and senders, with a syphon also the secondary, and the clients created from connection strings."""
        if not self._life.begin_close():
            return
        # From the last to the first, each even if one before it fails.
        async with contextlib.AsyncExitStack() as ending:
            if self._owns_clients:
                ending.push_async_callback(self.primary.close)
            if self._life.has_syphon or self._owns_clients:
                ending.push_async_callback(self.secondary.close)
            ending.callback(self._life.restore_closes)
            ending.callback(leave_pair, self.primary, self.secondary)
            ending.push_async_callback(self._close_senders)
            ending.push_async_callback(self._surveyor.close)
            ending.push_async_callback(self._stop_pumps)
            await self._attendant.stop()

    def _sender(self, open_stock: Callable[[], ServiceBusSender]) -> PairedSender:
        return self._life.new_sender(partial(PairedSender, ask_primary=self._ask_primary), open_stock)

    async def _close_senders(self) -> None:
        for task in self._opening:
            task.cancel()
        opened: list[PairedSender | GuardedSender] = [*self._life.senders.all(), *self._life.links.take_all()]
        await asyncio.gather(*(each.close() for each in opened))

    async def _close_partner(self, partner: Partner, close: Callable[[], Awaitable[None]]) -> None:
        await close()
        await self._carry_out(self._life.partner_closed(partner))

    async def _watch(self, now: Millis) -> None:
        for index, link in self._life.links_to_open(now):
            self._opening.add(task := asyncio.create_task(self._open_ahead(index, link)))
            task.add_done_callback(self._opening.discard)
        queues = self._life.survey_due(now)
        if queues is not None:
            self._opening.add(task := asyncio.create_task(self._survey(queues)))
            task.add_done_callback(self._opening.discard)
        await self._carry_out(self._life.advance(now))

    async def _survey(self, queues: dict[int, str]) -> None:
        survey: Survey | None = None
        with contextlib.suppress(Exception):
            survey = await self._surveyor.survey(queues)
        if self._life.surveyed(survey):
            await self._surveyor.close()

    async def _open_ahead(self, index: int, link: GuardedSender) -> None:
        try:
            await link.run(open_link, OPENING_TIMEOUT_S)
        except Exception as error:
            self._life.link_failed(index, error, self._clock.now())

    async def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, FaultPartner):
                with contextlib.suppress(Exception):  # the client is given up in any case
                    await self._clients[effect.partner].close()
            else:
                await self._stop_pumps()

    async def _stop_pumps(self) -> None:
        syphon = self._life.take_syphon()
        if syphon is not None:
            # On another thread: pumps may be waiting for tokens that this loop fetches.
            await asyncio.to_thread(syphon.stop)


def _administration(given: ServiceBusClient | str) -> ServiceBusAdministrationClient:
    if isinstance(given, str):
        return async_administration_client(given)
    return ServiceBusAdministrationClient(given.fully_qualified_namespace, credential_of(given))


def _management(
    administration: ServiceBusAdministrationClient, primary: ServiceBusClient | str
) -> Callable[[Request], Awaitable[Answer]]:
    async def perform(request: Request) -> Answer:
        if isinstance(request, AskName):
            if request.partner is Partner.SECONDARY:
                return {(await administration.get_namespace_properties()).name: 0}
            async with _administration(primary) as other:
                return {(await other.get_namespace_properties()).name: 0}
        if isinstance(request, CreateQueue):
            await administration.create_queue(request.path, **request.description)
            return {}
        found = administration.list_queues_runtime_properties()
        return {queue.name: queue.active_message_count or 0 async for queue in found}

    return perform
