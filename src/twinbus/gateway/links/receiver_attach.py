"""Binds the links that clients receive on: a link in, a receiver binding out, at once or when a message session is free."""

from collections.abc import Callable
from functools import partial

from twinbus.amqp.codec.performatives import SenderSettleMode
from twinbus.amqp.codec.terminus import Source
from twinbus.amqp.codec.types import Described
from twinbus.amqp.outgoing_link import OutgoingLink
from twinbus.broker.consumer import ReceiveMode, SessionLock
from twinbus.broker.source import Source as QueueSource
from twinbus.clock import Millis
from twinbus.errors import MessagingError, NotAllowed, NotImplementedHere, OperationTimeout, QuotaExceeded
from twinbus.gateway.addresses import EntityNode
from twinbus.gateway.links.bindings import Bindings
from twinbus.gateway.links.failure_pace import LeftPaces
from twinbus.gateway.links.link_meter import LinkMeters
from twinbus.gateway.links.outcome_states import outcome_of
from twinbus.gateway.links.receiver_binding import ReceiverBinding
from twinbus.gateway.links.session_attach import (
    PendingSession,
    has_session_filter,
    session_properties,
    session_source,
    unfiltered_source,
    wait_of,
    wanted_session,
)
from twinbus.gateway.namespace_view import Traffic
from twinbus.gateway.nodes.coordinator import Transactions
from twinbus.gateway.nodes.transaction_homes import TransactionHomes
from twinbus.meter.operation import Cause
from twinbus.model import wire_names

COPY = "copy"
SELECTOR_DESCRIPTORS = (wire_names.SELECTOR_FILTER, wire_names.SELECTOR_FILTER_CODE)
RECEIVERS_MAX = 5_000
"""Of one entity at a time."""


class ReceiverAttach:
    def __init__(
        self,
        bindings: Bindings,
        traffic: Traffic,
        meters: LinkMeters,
        transactions: Transactions,
        homes: TransactionHomes,
        wake: Callable[[], None],
    ) -> None:
        self._bindings = bindings
        self._meters = meters
        self._transactions = transactions
        self._homes = homes
        self._traffic = traffic
        self._wake = wake
        self._left_paces = LeftPaces()

    def bind(self, link: OutgoingLink, node: EntityNode, path: str, now: Millis) -> None:
        """Accept the link, now or once a message session is free. Raises MessagingError if it must be refused."""
        queue, source = node.queue, link.source
        self._homes.check_receiver(link, node.address)
        if queue is None:
            raise NotAllowed(f"'{path}' is a topic: receive from one of its subscriptions.")
        if queue.receiver_count >= RECEIVERS_MAX:
            raise QuotaExceeded(f"'{path}' has {RECEIVERS_MAX} receivers, which is the limit. Close some.")
        assert source is not None
        _check_supported(source, path)
        if has_session_filter(source):
            pending = PendingSession(node, path, self._meters.of(node), partial(self._homes.gone, link))
            self._wait_for_session(link, source, queue, pending, now)
            return
        binding = self._receiver(link, node, path, None, now)
        queue.attach(binding, now)
        link.accept(source=unfiltered_source(source))
        self._homes.attached(link, node.address, is_sender=False)
        # If the client has sent credit already, it is the next event.
        self._bindings[link] = binding

    def clock_stepped(self, by: Millis) -> None:
        self._left_paces.clock_stepped(by)

    def _receiver(
        self, link: OutgoingLink, node: EntityNode, path: str, session: SessionLock | None, now: Millis
    ) -> ReceiverBinding:
        is_settled = link.snd_settle_mode is SenderSettleMode.SETTLED
        mode = ReceiveMode.RECEIVE_AND_DELETE if is_settled else ReceiveMode.PEEK_LOCK
        traffic = self._traffic.of(node.path)
        meter = self._meters.of(node)
        return ReceiverBinding(
            link, node, path, mode, session, traffic, meter, self._transactions, now, self._wake, self._left_paces
        )

    def _wait_for_session(
        self, link: OutgoingLink, source: Source, queue: QueueSource, pending: PendingSession, now: Millis
    ) -> None:
        if not queue.requires_session:
            raise NotAllowed(f"'{pending.path}' has no message sessions: receive from it without a session.")
        wanted = wanted_session(source)
        self._bindings[link] = pending
        self._homes.waiting(link, pending.node.address)

        def reply(result: SessionLock | MessagingError) -> None:
            if self._bindings.get(link) is not pending:
                # The link ended while the session was being locked: nobody is left to hold the lock.
                if isinstance(result, SessionLock):
                    queue.release_session(result, result.locked_at)
                return
            del self._bindings[link]
            if isinstance(result, MessagingError):
                if isinstance(result, OperationTimeout):
                    pending.meter.counted(Cause.EMPTY_RECEIVE)
                self._refuse(link, result)
            else:
                self._open_session(link, source, queue, pending, result, result.locked_at)
            self._wake()

        pending.waiter = queue.accept_session(wanted, now + wait_of(link.properties), now, reply)

    def _open_session(
        self,
        link: OutgoingLink,
        source: Source,
        queue: QueueSource,
        pending: PendingSession,
        lock: SessionLock,
        now: Millis,
    ) -> None:
        binding = self._receiver(link, pending.node, pending.path, lock, now)
        try:
            queue.attach(binding, now)
        except MessagingError as error:
            queue.release_session(lock, now)
            self._refuse(link, error)
            return
        pending.meter.counted(Cause.SESSION)
        self._bindings[link] = binding
        self._homes.attached(link, pending.node.address, is_sender=False)
        link.accept(source=session_source(source, lock), properties=session_properties(lock))
        if pending.waiter is not None:
            # The client's credit came while the attach was held back, so no event will report it again. Otherwise it is the next event.
            binding.credit_told(link.credit, drain=link.is_draining)
            binding.credit_changed(now)

    def _refuse(self, link: OutgoingLink, error: MessagingError) -> None:
        self._homes.gone(link)
        link.refuse(error)


def _check_supported(source: Source, path: str) -> None:
    """Raise NotImplementedHere for what would be wrong, not merely less, if it were ignored, and ArgumentError for an outcome
    that makes no sense: a link that waits for a message session could not be refused later without losing one.

    By AMQP a filter that is not echoed is not applied, and the client has to look; the client for JMS does not.
    """
    if source.distribution_mode == COPY:
        raise NotImplementedHere(f"A link cannot browse '{path}' (distribution mode copy). Peek at its messages.")
    outcome_of(source.default_outcome)
    for value in (source.filter or {}).values():
        if isinstance(value, Described) and value.descriptor in SELECTOR_DESCRIPTORS:
            raise NotImplementedHere(
                f"A receiver of '{path}' cannot select messages. Use a subscription with a rule for them."
            )
