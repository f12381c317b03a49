"""One connection at the gateway: AMQP events in, links bound to entities, everything released at the end.

As free of I/O as the AMQP connection itself: the transport feeds bytes to `receive` and writes what `data_to_send` returns;
`wake` asks it to write when something is answered outside `receive`.

A client proves its rights by tokens on `$cbs` (or a key by SASL PLAIN). They are checked when a link attaches; a link whose
token expired is detached, and a connection without any valid token is closed after a while.
"""

from collections.abc import Callable
from typing import Any

from twinbus.amqp.codec.delivery_state import Rejected
from twinbus.amqp.codec.sasl import ANONYMOUS, MSSBCBS, PLAIN, SaslCode, read_plain
from twinbus.amqp.connection import NO_LIMIT, Connection
from twinbus.amqp.errors import CONNECTION_FORCED, RESOURCE_LIMIT_EXCEEDED, AmqpError
from twinbus.amqp.events import (
    CreditChanged,
    Deliveries,
    Dispositions,
    Event,
    LinkAttached,
    LinkDetached,
    Opened,
    OversizeDelivery,
    SaslInit,
)
from twinbus.clock import Millis
from twinbus.errors import MessageTooLarge, MessagingError, ServerBusy, Unauthorized
from twinbus.gateway.authorization import Grants, verify_key
from twinbus.gateway.links.attachment import Attachment
from twinbus.gateway.links.bindings import Bindings, LinkWatch, unbind
from twinbus.gateway.links.link_meter import who_of
from twinbus.gateway.links.receiver_binding import ReceiverBinding
from twinbus.gateway.links.sender_binding import SenderBinding
from twinbus.gateway.namespace_view import NamespaceView
from twinbus.gateway.nodes.coordinator import CoordinatorBinding
from twinbus.gateway.nodes.request_links import RequestBinding, ResponseLink
from twinbus.gateway.weight import Weight

TOKEN_WAIT: Millis = 20_000
"""How long a connection may live without a valid token."""
STRANGER_FRAMES_MAX = 2_000
STRANGER_BYTES_MAX = 1024 * 1024
"""What a connection may send before its first valid token. A client needs some ten frames, and a token of a few kilobytes."""
UNREAD_SIZE_MAX = 4 * 1024 * 1024
STRANGER_UNREAD_SIZE_MAX = 64 * 1024


class ConnectionGateway:
    def __init__(self, connection: Connection, namespace: NamespaceView, now: Millis, wake: Callable[[], None]) -> None:
        self.connection = connection
        connection.restrain()
        self.refusal: MessagingError | None = None
        """The error that a connection over the limit is closed with, as soon as it is open."""
        self._namespace = namespace
        self._grants = Grants()
        self._bindings: Bindings = {}
        self._attachment = Attachment(namespace, self._grants, self._bindings, wake)
        self._authorized_at = now
        self.is_stranger = True
        """No token of the connection is valid: it gets less of everybody's time. Looked at with every read and every tick."""
        self._was_known = False
        self._stranger_bytes = 0
        self._watch = LinkWatch(namespace, self._grants, self._bindings)
        self._is_paused = False
        self._weight = Weight(now)
        self._wake = wake
        namespace.traffic.connections_opened += 1

    def receive(self, data: bytes, now: Millis, share: int = NO_LIMIT) -> None:
        """Take what the client sent, and work on about `share` bytes of it; the rest waits while `is_behind`."""
        if data and self._weight.is_heavy:
            self._namespace.heard_of(self._wake)
        self._weight.add(len(data), now)
        self._handle_all(self.connection.receive_data(data, now, share), now)
        if self.is_stranger:
            self._check_stranger(len(data), now)

    def data_to_send(self) -> bytes:
        return self.connection.data_to_send()

    @property
    def is_closed(self) -> bool:
        """Both sides closed, or the protocol was violated: the transport can be closed once everything is written."""
        return self.connection.should_disconnect

    @property
    def is_flooded(self) -> bool:
        """More has arrived than the stores have taken, or than is answered at once: reading must wait."""
        inflow = self.connection.inflow
        return (
            inflow.is_flooded
            or self._attachment.reads.is_behind
            or self._namespace.must_wait(inflow.size, self._weight.is_heavy, self._wake)
        )

    @property
    def is_behind(self) -> bool:
        """The client has sent more than was worked on: call `receive(b"", ...)` later, and do not read until then."""
        return self.connection.is_behind

    @property
    def unread_size_max(self) -> int:
        """The client has left this many bytes of answers unread: reading must wait too."""
        return STRANGER_UNREAD_SIZE_MAX if self.is_stranger else UNREAD_SIZE_MAX

    @property
    def held_back_size(self) -> int:
        """Bytes that wait for the client to open the windows of its sessions, or to give credit for replies."""
        return self.connection.held_back_size + self._attachment.replies_size()

    def shut_down(self, now: Millis) -> None:
        """The server stops: clients reconnect when it is back."""
        self.connection.close(AmqpError("The server is shutting down. Reconnect later.", CONNECTION_FORCED))
        self._handle_all(self.connection.take_events(), now)

    def pause(self) -> None:
        """The socket's buffer is full: hand over no more messages until `resume`."""
        self._is_paused = True
        self._attachment.pause()
        for binding in self._bindings.values():
            if isinstance(binding, ReceiverBinding):
                binding.pause()

    def resume(self, now: Millis) -> None:
        self._is_paused = False
        self._attachment.resume(now)
        for binding in list(self._bindings.values()):
            if isinstance(binding, ReceiverBinding):
                binding.resume(now)

    def tick(self, now: Millis) -> None:
        self.connection.tick(now)
        self._attachment.tick(now)
        for binding in list(self._bindings.values()):
            if isinstance(binding, ReceiverBinding):
                binding.tick(now)
        self._watch.tick(now)
        self._check_grants(now)
        # If this ended the connection, its client may not answer for seconds, and what its links hold is for others at once.
        self._handle_all(self.connection.take_events(), now)

    def clock_stepped(self, by: Millis) -> None:
        """The clock was set by this much: what measures how long something takes goes on from the new time. Tokens expire by the clock."""
        self.connection.clock_stepped(by)
        self._attachment.clock_stepped(by)
        for binding in self._bindings.values():
            if isinstance(binding, SenderBinding | ReceiverBinding):
                binding.clock_stepped(by)
        self._watch.clock_stepped(by)
        self._weight.clock_stepped(by)
        self._authorized_at += by

    def force_detach(self, path: str, now: Millis) -> int:
        """Detach the links to an entity; returns how many there were."""
        return self._watch.force_detach(path, now)

    def lost(self, now: Millis) -> None:
        """The transport is gone: release what the links held."""
        self._handle_all(self.connection.lost(), now)
        for binding in self._bindings.values():
            unbind(binding, now)
        self._bindings.clear()

    def _handle_all(self, events: list[Event], now: Millis) -> None:
        for event in events:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event, now)

    def _deliveries(self, event: Deliveries, now: Millis) -> None:
        binding = self._bindings.get(event.link)
        if isinstance(binding, SenderBinding | RequestBinding | CoordinatorBinding):
            if not self._weight.is_heavy:
                self._namespace.light_sent()
            binding.receive(event.deliveries, now)

    def _oversize(self, event: OversizeDelivery, now: Millis) -> None:
        binding, size_max = self._bindings.get(event.link), event.link.announced_size_max
        error: MessagingError
        if not event.is_over_limit:
            error = ServerBusy("There was no room for the frames of this message. Send it again later.")
        elif isinstance(binding, SenderBinding):
            error = MessageTooLarge.at(binding.path, event.size, size_max)
        else:
            error = MessageTooLarge(
                f"The request has {event.size} bytes; the limit is {size_max}. Ask for less at once."
            )
        if isinstance(binding, SenderBinding):
            binding.not_taken(-1 if event.settled else event.delivery_id, error)
        elif not event.settled:
            event.link.settle(event.delivery_id, event.delivery_id, Rejected.because(error))

    def _dispositions(self, event: Dispositions, now: Millis) -> None:
        binding = self._bindings.get(event.link)
        if isinstance(binding, ReceiverBinding):
            binding.dispositions(event.deliveries, event.state, is_settled=event.settled, now=now)

    def _credit_changed(self, event: CreditChanged, now: Millis) -> None:
        binding = self._bindings.get(event.link)
        if isinstance(binding, ReceiverBinding) and event.is_news:
            binding.credit_told(event.credit, drain=event.drain)
        if isinstance(binding, ReceiverBinding | ResponseLink):
            binding.credit_changed(now)

    def _link_attached(self, event: LinkAttached, now: Millis) -> None:
        try:
            self._attachment.bind(event.link, now)
        except MessagingError as error:
            event.link.refuse(error)
            return
        binding = self._bindings.get(event.link)
        if self._is_paused and isinstance(binding, ReceiverBinding):
            binding.pause()

    def _link_detached(self, event: LinkDetached, now: Millis) -> None:
        binding = self._bindings.pop(event.link, None)
        if binding is not None:
            unbind(binding, now)
        else:
            event.link.end()

    def _opened(self, event: Opened, now: Millis) -> None:
        self._attachment.opened_by(who_of(event.open))
        if self.refusal is not None:
            self.connection.close(self.refusal)

    def _sasl_init(self, event: SaslInit, now: Millis) -> None:
        self._handle_all(self.connection.sasl_outcome(self._authenticate(event)), now)

    def _authenticate(self, event: SaslInit) -> SaslCode:
        # Neither mechanism proves anything: the tokens on $cbs do.
        if event.mechanism in (ANONYMOUS, MSSBCBS):
            return SaslCode.OK
        credentials = read_plain(event.initial_response) if event.mechanism == PLAIN else None
        if credentials is None:
            return SaslCode.AUTH
        try:
            self._grants.add(verify_key(credentials.user, credentials.password, self._namespace.rules))
        except MessagingError:
            return SaslCode.AUTH
        return SaslCode.OK

    def _check_stranger(self, size: int, now: Millis) -> None:
        self._look_at_grants(now)
        if self._was_known:
            return
        self._stranger_bytes += size
        if self._stranger_bytes > STRANGER_BYTES_MAX or self.connection.frame_count > STRANGER_FRAMES_MAX:
            self.connection.close(
                AmqpError(
                    f"A connection sends at most {STRANGER_FRAMES_MAX} frames and {STRANGER_BYTES_MAX} bytes without a "
                    "valid token. Put one on $cbs after connecting.",
                    RESOURCE_LIMIT_EXCEEDED,
                )
            )

    def _look_at_grants(self, now: Millis) -> None:
        self.is_stranger = not self._grants.is_any_valid(now)
        if not self.is_stranger and not self._was_known:
            self._was_known = True
            self.connection.trust()

    def _check_grants(self, now: Millis) -> None:
        self._look_at_grants(now)
        if not self.is_stranger:
            self._authorized_at = now
        elif now - self._authorized_at >= TOKEN_WAIT:
            self.connection.close(
                Unauthorized(f"No valid token for {TOKEN_WAIT // 1000} seconds. Put one on $cbs after connecting.")
            )


_HANDLERS: dict[type[Any], Callable[[ConnectionGateway, Any, Millis], None]] = {
    Deliveries: ConnectionGateway._deliveries,
    Dispositions: ConnectionGateway._dispositions,
    CreditChanged: ConnectionGateway._credit_changed,
    LinkAttached: ConnectionGateway._link_attached,
    LinkDetached: ConnectionGateway._link_detached,
    OversizeDelivery: ConnectionGateway._oversize,
    SaslInit: ConnectionGateway._sasl_init,
    Opened: ConnectionGateway._opened,
}
